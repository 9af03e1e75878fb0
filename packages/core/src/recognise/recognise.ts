import { type DocumentBlock, type DocumentSpan, FORMAT_NAMES, type FormatName, type PromptText } from './block.js';
import { type DocumentFormat, type DocumentGroup, Region } from './format.js';
import { fields } from './formats/fields.js';
import { headed, markdown } from './formats/headed.js';
import { json } from './formats/json.js';
import { numbered, separator } from './formats/numbered.js';
import { python } from './formats/python.js';
import { tags } from './formats/tags.js';
import { JsonTextReader, type JsonValue, memberOf } from './json-text.js';

/** Every format, the surest first: where two see documents in one place, the first has it. */
export const DOCUMENT_FORMATS: readonly DocumentFormat[] = [
  tags,
  python,
  json,
  headed,
  numbered,
  fields,
  markdown,
  separator,
];
const UNASKED = DOCUMENT_FORMATS.filter((format) => format.unasked);

export interface RecogniseOptions {
  /** `marked`: only documents that the prompt marks (`<warmpath-documents>`). `form`: also those of a known form. */
  readonly mode: 'marked' | 'form';
}

/**
 * Finds the documents in the texts of a prompt. Answers blocks in the order of the texts, none overlapping. A form says
 * where documents end, and nothing of their order: who moves them needs to know that nothing depends on it. What the
 * model said is never searched. Throws for no input.
 *
 * Cost: O(length of the texts), some ns a character; next to nothing for texts without any sign of documents
 * (`bench/recognise.js`).
 */
export function recognise(texts: readonly PromptText[], { mode }: RecogniseOptions): readonly DocumentBlock[] {
  return texts.flatMap((text, index) => blocksOf(text, index, mode));
}

function blocksOf(
  { role, text, kind }: PromptText,
  index: number,
  mode: RecogniseOptions['mode'],
): readonly DocumentBlock[] {
  if (role === 'assistant' || kind === 'verbatim') return [];
  if (kind === 'elements') {
    const found = mode === 'form' ? documentElements(text) : undefined;
    return found === undefined ? [] : [toBlock({ ...found, format: json }, index, false)];
  }
  const marked = markedRegions(text);
  const blocks = marked.flatMap((region) => {
    const found = inMarked(text, role, region);
    return found === undefined ? [] : [toBlock(found, index, true)];
  });
  if (mode === 'marked') return blocks;
  const found = guessed(new Region(text, { role, certain: false }), marked);
  return [...blocks, ...found.map((each) => toBlock(each, index, false))].sort((one, other) => one.start - other.start);
}

interface FoundGroup extends DocumentGroup {
  readonly format: DocumentFormat;
}

function toBlock(
  { documents, format, isReferred }: Pick<FoundGroup, 'documents' | 'format' | 'isReferred'>,
  index: number,
  marked: boolean,
): DocumentBlock {
  return {
    text: index,
    format: format.name,
    marked,
    start: documents[0]!.start,
    end: documents.at(-1)!.end,
    documents,
    fixed: isReferred ? 'order-referred' : undefined,
  };
}

/** The first format that sees documents where the prompt says there are some. */
function inMarked(text: string, role: PromptText['role'], { start, end, format: name }: MarkedRegion) {
  const region = new Region(text.slice(start, end), { role, certain: true });
  for (const format of DOCUMENT_FORMATS) {
    if (name !== undefined && format.name !== name) continue;
    const [found] = format.find(region);
    if (found !== undefined) return { documents: found.documents.map((span) => moved(span, start)), format };
  }
  return undefined;
}

/** The same document, `by` characters farther on. */
function moved(span: DocumentSpan, by: number): DocumentSpan {
  return {
    ...span,
    start: span.start + by,
    end: span.end + by,
    contentStart: span.contentStart + by,
    contentEnd: span.contentEnd + by,
    labels: span.labels.map(({ start, end }) => ({ start: start + by, end: end + by })),
  };
}

/**
 * What the formats see unasked: outside code, outside what is marked, and the surer format's where two see something.
 */
function guessed(region: Region, marked: readonly MarkedRegion[]): readonly FoundGroup[] {
  let taken = marked.map(({ outerStart, outerEnd }) => ({ start: outerStart, end: outerEnd }));
  const accepted: FoundGroup[] = [];
  for (const format of UNASKED) {
    const free = format.find(region).filter(({ start, end }) => !overlapsAny(taken, start, end));
    for (const found of free) accepted.push({ ...found, format });
    if (free.length > 0) taken = [...taken, ...free].sort((a, b) => a.start - b.start);
  }
  if (accepted.length === 0) return accepted;
  return outsideCode(
    region.text,
    accepted.sort((a, b) => a.start - b.start),
  );
}

/** Whether `[start, end)` overlaps one of the ranges, which are sorted and do not overlap each other. O(log ranges). */
function overlapsAny(sorted: readonly { readonly start: number; readonly end: number }[], start: number, end: number) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle]!.end <= start) low = middle + 1;
    else high = middle;
  }
  return low < sorted.length && sorted[low]!.start < end;
}

/**
 * Leaves out what opens inside a fence of code. Fences are counted from the end of the documents before, because a
 * passage may have been cut in the middle of its code. JSON stands in fences by custom.
 */
function outsideCode(text: string, found: readonly FoundGroup[]): readonly FoundGroup[] {
  if (!text.includes('```')) return found;
  const fence = /^[ \t]*```/gm;
  let open = false;
  let at = 0;
  return found.filter(({ start, end, format }) => {
    fence.lastIndex = at;
    for (let match = fence.exec(text); match !== null && match.index < start; match = fence.exec(text)) open = !open;
    if (open && format !== json) {
      at = start;
      return false;
    }
    at = end;
    return true;
  });
}

/** A part of a text that the prompt itself marks as documents. */
interface MarkedRegion {
  /** Of what stands inside the tags. */
  readonly start: number;
  readonly end: number;
  /** The tags included. */
  readonly outerStart: number;
  readonly outerEnd: number;
  /** How the documents are written, where the tag says so. */
  readonly format: FormatName | undefined;
}

/** The name of the tag that marks documents. */
const MARKER = 'warmpath-documents';

const OPEN = new RegExp(`<${MARKER}((?:\\s[^<>]{0,200})?)>`, 'g');
const CLOSE = `</${MARKER}>`;

/** `<warmpath-documents format="…">…</warmpath-documents>`, in the order of the text. O(text). */
function markedRegions(text: string): readonly MarkedRegion[] {
  const regions: MarkedRegion[] = [];
  if (!text.includes(CLOSE)) return regions;
  OPEN.lastIndex = 0;
  for (let match = OPEN.exec(text); match !== null; match = OPEN.exec(text)) {
    const start = OPEN.lastIndex;
    const end = text.indexOf(CLOSE, start);
    if (end < 0) break;
    const format = /\sformat="(\w+)"/.exec(match[1]!)?.[1];
    regions.push({
      start,
      end,
      outerStart: match.index,
      outerEnd: end + CLOSE.length,
      format: FORMAT_NAMES.find((name) => name === format),
    });
    OPEN.lastIndex = end + CLOSE.length;
  }
  return regions;
}

/** Members that name a document of an API, and its title. */
const ID_KEYS = ['source', 'file_id', 'id'];
const TITLE_KEYS = ['title', 'filename'];

/**
 * The documents in elements that an API calls documents (Anthropic's `search_result` and `document`, results of
 * OpenAI's file search): each moves as a whole, with every member. `undefined` for what are not at least two objects.
 * O(text).
 */
function documentElements(text: string): DocumentGroup | undefined {
  const value = new JsonTextReader(`[${text}]`).value(0);
  if (value?.kind !== 'array' || value.elements.length < 2) return undefined;
  if (value.elements.some(({ kind }) => kind !== 'object')) return undefined;
  const documents = value.elements.map((element) => documentOf(text, element));
  return { documents, start: documents[0]!.start, end: documents.at(-1)!.end };
}

/** Offsets count from behind the bracket that was put before the text. */
function documentOf(text: string, element: JsonValue): DocumentSpan {
  const words = wordsOf(element);
  const nowhere = element.end - 1;
  return {
    start: element.start - 1,
    end: element.end - 1,
    contentStart: words === undefined ? nowhere : words.start - 1,
    contentEnd: words === undefined ? nowhere : words.end - 1,
    id: stringOf(text, element, ID_KEYS),
    title: stringOf(text, element, TITLE_KEYS),
    labels: [],
  };
}

/** The string literal with the document's words, if there is one alone: several are never replaced by a reference. */
function wordsOf(element: JsonValue): JsonValue | undefined {
  const source = memberOf(element, 'source');
  const said =
    memberOf(element, 'text') ??
    memberOf(element, 'content') ??
    memberOf(source, 'data') ??
    memberOf(source, 'content');
  if (said?.kind !== 'array') return said?.kind === 'string' ? said : undefined;
  const words = said.elements.length === 1 ? memberOf(said.elements[0], 'text') : undefined;
  return words?.kind === 'string' ? words : undefined;
}

function stringOf(text: string, element: JsonValue, keys: readonly string[]): string | undefined {
  for (const key of keys) {
    const value = memberOf(element, key);
    if (value?.kind === 'string') return text.slice(value.start, value.end - 2);
  }
  return undefined;
}
