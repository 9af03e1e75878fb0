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
