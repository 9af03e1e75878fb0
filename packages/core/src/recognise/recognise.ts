import type { DocumentBlock, DocumentSpan, PromptText } from './block.js';
import { documentElements } from './elements.js';
import { type DocumentFormat, type DocumentGroup, Region } from './format.js';
import { fields } from './formats/fields.js';
import { headed, markdown } from './formats/headed.js';
import { json } from './formats/json.js';
import { numbered, separator } from './formats/numbered.js';
import { python } from './formats/python.js';
import { tags } from './formats/tags.js';
import { type MarkedRegion, markedRegions } from './marker.js';
import { hasOwnOrder, saysOwnOrder, speaksOfOrder } from './references.js';
import { type DocumentTemplate, knownRegions, type TemplateRegion, templateRegions } from './template-regions.js';

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

export const RECOGNITION_MODES = ['off', 'marked', 'conservative'] as const;
/**
 * How documents are recognised in prompts that nobody wrote for Warmpath. `off`: not at all. `marked`: only where the
 * prompt marks them (`<warmpath-documents>`). `conservative`: also where their form leaves no reasonable doubt.
 */
export type RecognitionMode = (typeof RECOGNITION_MODES)[number];

export interface RecogniseOptions {
  readonly mode: RecognitionMode;
  /** Frames in which documents stand that nothing else tells apart; looked for in `conservative` mode. */
  readonly templates?: readonly DocumentTemplate[] | undefined;
}

/**
 * Finds the documents in the texts of a prompt. Answers blocks in the order of the texts, none overlapping; a block's
 * documents may change places unless it is `fixed`. What the model said is never searched. Throws for no input.
 *
 * Cost: O(length of the texts), some ns a character; next to nothing for texts without any sign of documents
 * (`bench/recognise.js`).
 */
export function recognise(texts: readonly PromptText[], options: RecogniseOptions): readonly DocumentBlock[] {
  if (options.mode === 'off') return [];
  const found = texts.flatMap((text, index) => blocksOf(text, index, options));
  // What the prompt marks, it has decided about.
  const isOrderReferred = found.some(({ marked }) => !marked) && speaksOfOrder(around(texts, found));
  return isOrderReferred ? found.map((block) => (block.marked ? block : { ...block, fixed: 'order-referred' })) : found;
}

function blocksOf(
  { role, text, kind }: PromptText,
  index: number,
  options: RecogniseOptions,
): readonly DocumentBlock[] {
  if (role === 'assistant' || kind === 'verbatim') return [];
  if (kind === 'elements') {
    const found = options.mode === 'conservative' ? documentElements(text) : undefined;
    if (found === undefined || hasOwnOrder(text, found.documents)) return [];
    return [toBlock({ ...found, format: json }, index, false)];
  }
  const marked = markedRegions(text);
  const blocks = marked.flatMap((region) => {
    const found = inMarked(text, role, region);
    if (found === undefined) return [];
    return [toBlock(found, index, true)];
  });
  if (options.mode === 'marked') return blocks;
  const framed = framedOutside(marked, text, options.templates);
  for (const region of framed) blocks.push(toBlock({ ...region, format: separator }, index, false));
  const taken = framed.length === 0 ? marked : [...marked, ...framed].sort((a, b) => a.outerStart - b.outerStart);
  const found = guessed(new Region(text, { role, certain: false }), taken);
  if (found.length === 0) return blocks.sort((a, b) => a.start - b.start);
  const isOrdered = role === 'tool' && saysOwnOrder(apartFrom(text, found));
  return [
    ...blocks,
    ...found.map((each) => ({
      ...toBlock(each, index, false),
      fixed: isOrdered || each.isReferred ? ('order-referred' as const) : undefined,
    })),
  ].sort((a, b) => a.start - b.start);
}

/** Frames that the caller knows, where the text itself marks nothing. */
function framedOutside(
  marked: readonly MarkedRegion[],
  text: string,
  templates: readonly DocumentTemplate[] | undefined,
): readonly TemplateRegion[] {
  const free = (regions: readonly TemplateRegion[], taken: readonly Pick<MarkedRegion, 'outerStart' | 'outerEnd'>[]) =>
    regions.filter(
      ({ outerStart, outerEnd }) => !taken.some((each) => each.outerStart < outerEnd && outerStart < each.outerEnd),
    );
  const known = knownRegions(text);
  if (templates === undefined || templates.length === 0) return free(known, marked);
  const own = free(templateRegions(text, templates), marked);
  return [...own, ...free(known, [...marked, ...own])];
}

/** What a text says before, between and behind what was found in it. */
function* apartFrom(text: string, found: readonly DocumentGroup[]): Generator<string> {
  let from = 0;
  for (const { documents } of found) {
    yield text.slice(from, documents[0]!.start);
    from = documents.at(-1)!.end;
  }
  yield text.slice(from);
}

interface FoundGroup extends DocumentGroup {
  readonly format: DocumentFormat;
}

function toBlock(
  { documents, format }: Pick<FoundGroup, 'documents' | 'format'>,
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
    fixed: undefined,
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
function guessed(
  region: Region,
  marked: readonly Pick<MarkedRegion, 'outerStart' | 'outerEnd'>[],
): readonly FoundGroup[] {
  let taken = marked.map(({ outerStart, outerEnd }) => ({ start: outerStart, end: outerEnd }));
  const accepted: FoundGroup[] = [];
  for (const format of UNASKED) {
    const free = format.find(region).filter(({ start, end }) => !overlapsAny(taken, start, end));
    for (const found of free) {
      if (!hasOwnOrder(region.text, found.documents)) accepted.push({ ...found, format });
    }
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

/** The texts without the documents in them. */
function* around(texts: readonly PromptText[], blocks: readonly DocumentBlock[]): Generator<PromptText> {
  let next = 0;
  for (const [index, { role, text, kind }] of texts.entries()) {
    // Their words are those of documents.
    if (kind !== undefined) continue;
    let from = 0;
    for (; next < blocks.length && blocks[next]!.text === index; next++) {
      yield { role, text: text.slice(from, blocks[next]!.start) };
      from = blocks[next]!.end;
    }
    yield { role, text: from === 0 ? text : text.slice(from) };
  }
}
