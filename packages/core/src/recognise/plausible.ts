import type { DocumentSpan } from './block.js';

/** Characters from which on a text is taken for more than a name or a path. */
const SENTENCE = 24;
/** Characters a passage has at the least, on the average of a block, in forms that other things share. */
export const PASSAGE = 40;

/** Whether a document says something: more than one word, or longer than names are. O(1). */
export function saysSomething(text: string, { contentStart, contentEnd }: DocumentSpan): boolean {
  const head = text.slice(contentStart, Math.min(contentEnd, contentStart + 400)).trim();
  return head.length >= SENTENCE || /\S\s+\S/.test(head);
}

/** Mean characters of the documents' contents. */
export function meanLength(documents: readonly DocumentSpan[]): number {
  let sum = 0;
  for (const { contentStart, contentEnd } of documents) sum += contentEnd - contentStart;
  return sum / Math.max(1, documents.length);
}

/** `[start, end)` without white space at either end; an empty one stands at `start`. */
export function trimmed(text: string, start: number, end: number): readonly [number, number] {
  let from = start;
  let to = end;
  while (from < to && isSpace(text.charCodeAt(from))) from++;
  while (to > from && isSpace(text.charCodeAt(to - 1))) to--;
  return [from, to];
}

/** Whether nothing but white space stands in `[start, end)`. */
export function isBlank(text: string, start: number, end: number): boolean {
  for (let at = start; at < end; at++) if (!isSpace(text.charCodeAt(at))) return false;
  return true;
}

function isSpace(code: number): boolean {
  return code === 32 || (code >= 9 && code <= 13) || code === 0xa0 || code === 0x2028 || code === 0x2029;
}
