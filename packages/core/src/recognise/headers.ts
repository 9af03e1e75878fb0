import type { DocumentSpan, LabelSpan } from './block.js';
import { trimmed } from './document-text.js';
import type { DocumentGroup, Region } from './format.js';
import { beforeRule, endOfLast, shapeOf } from './open-end.js';

/** Where a document opens that is closed by nothing but the next one. */
export interface Header {
  /** Start of the header, white space before it not counted. */
  readonly start: number;
  readonly contentStart: number;
  /** Headers of one block are written alike. */
  readonly form: string;
  /** The document's number, where the form counts. */
  readonly number: number | undefined;
  readonly label: LabelSpan | undefined;
  readonly id?: string | undefined;
  readonly title?: string | undefined;
}

/** Where a document closes itself, if it does. */
export type CloserOf = (
  header: Header,
  end: number,
) => { readonly end: number; readonly contentEnd: number; readonly label: LabelSpan } | undefined;

interface Opened {
  readonly header: Header;
  /** Further headers of the same number belong to the same document. */
  readonly labels: LabelSpan[];
}

/**
 * Documents between headers that stand in the order of the text. Numbers must rise; a number that falls back to 0 or 1
 * opens a new block; anything else makes it uncertain what is a header and what is quoted, and there is no block at
 * all. O(headers + text between).
 */
export function blocksBetween(
  region: Region,
  headers: readonly Header[],
  closerOf?: CloserOf,
): readonly DocumentGroup[] {
  const found: DocumentGroup[] = [];
  let run: Opened[] = [];
  let uncertain = false;
  const close = (end: number) => {
    if (!uncertain && run.length >= 2) {
      const block = blockOf(region, run, { end, closerOf });
      if (block !== undefined) found.push(block);
    }
    run = [];
    uncertain = false;
  };
  for (const header of headers) {
    const last = run.at(-1);
    const { number } = header;
    const opens = last === undefined || header.form !== last.header.form;
    if (opens || (number !== undefined && number <= 1 && number !== last.header.number && !isNext(last, number))) {
      if (last !== undefined) close(header.start);
      run = [{ header, labels: labelsOf(header) }];
    } else if (number === undefined || number > last.header.number!) run.push({ header, labels: labelsOf(header) });
    else if (number === last.header.number && header.label !== undefined) last.labels.push(header.label);
    else uncertain = true;
  }
  close(region.text.length);
  return found;
}

function isNext({ header }: Opened, number: number): boolean {
  return header.number === 0 && number === 1;
}

function labelsOf({ label }: Header): LabelSpan[] {
  return label === undefined ? [] : [label];
}

function blockOf(
  region: Region,
  run: readonly Opened[],
  { end, closerOf }: { readonly end: number; readonly closerOf: CloserOf | undefined },
): DocumentGroup | undefined {
  const { text, role } = region;
  const counts = run.every(({ header }, place) => header.number === run[0]!.header.number! + place);
  const startsRight = run[0]!.header.number === 0 || run[0]!.header.number === 1;
  const ends = endsOf(text, run, end);
  const open = run.slice(0, -1).map(({ header }, place) => [header.contentStart, ends[place]!] as const);
  const shape = shapeOf(text, open);
  const documents: DocumentSpan[] = [];
  for (const [place, { header, labels }] of run.entries()) {
    const isLast = place === run.length - 1;
    const closer = closerOf?.(header, ends[place]!);
    const last =
      isLast && closer === undefined ? endOfLast(text, header.contentStart, { end, role, shape }) : ends[place];
    if (closer === undefined && last === undefined) break;
    const [, to] = trimmed(text, header.start, closer?.end ?? last!);
    const [contentStart, contentEnd] = trimmed(text, Math.min(header.contentStart, to), closer?.contentEnd ?? to);
    const all = closer === undefined ? labels : [...labels, closer.label];
    // A number behind the end of the last document is none of its labels.
    const counted = counts && startsRight ? all.filter((label) => label.end <= to) : [];
    const { id, title } = header;
    documents.push({ start: header.start, end: to, contentStart, contentEnd, id, title, labels: counted });
  }
  if (documents.length < 2 || (!region.certain && isExampled(text, documents, end))) return undefined;
  return { documents, start: documents[0]!.start, end: documents.at(-1)!.end };
}

/** Where each document ends at the latest: a rule that parts each from the next belongs to none of them. */
function endsOf(text: string, run: readonly Opened[], end: number): readonly number[] {
  const ends = run.map((_, place) => run[place + 1]?.header.start ?? end);
  const cut = run.map(({ header }, place) => beforeRule(text, header.contentStart, ends[place]!));
  const areAllCut = cut.slice(0, -1).every((before) => before !== undefined);
  return areAllCut ? ends.map((latest, place) => cut[place] ?? latest) : ends;
}

/** The last line of a prompt that the model is to write on: `Label:`. */
const UNFINISHED = /(?:^|\n)[ \t]*([^\n:：]{1,40})[:：]\s*$/;
/** Characters of the end of a prompt that are read for it. */
const UNFINISHED_LENGTH = 80;

/** Whether they are examples of what the model is to do: each has the line that the prompt ends in. O(documents). */
function isExampled(text: string, documents: readonly DocumentSpan[], end: number): boolean {
  if (end < text.length) return false;
  const key = UNFINISHED.exec(text.slice(-UNFINISHED_LENGTH))?.[1];
  if (key === undefined) return false;
  return documents.slice(0, -1).every(({ start, end: to }) => text.slice(start, to).includes(`\n${key}:`));
}
