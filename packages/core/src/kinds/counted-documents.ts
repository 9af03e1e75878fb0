import type { DocumentBlock, DocumentSpan } from '../recognise/block.js';
import type { Gap } from './program-text.js';

/**
 * The beginning of a line that counts: `[1] `, `1. `, `(1)`, `Quelle 1:`, `来源1：`. The number is part of nothing
 * longer, such as `1.5` or `1 of 4`.
 */
const COUNTED_LINE =
  /^[ \t]*([^\d\n]{0,24}?)(\d{1,3})([^\d\s\p{L}]{0,3})(?!\d|[ \t]*(?:of|\/)[ \t]*\d)(?:[ \t]*$|(?<=[^\d\s])|[ \t])/dmu;
const COUNTED_LINES = new RegExp(COUNTED_LINE, 'dgmu');
/** Characters of a document in which a second number that counts is looked for. */
const HEAD_LENGTH = 200;
/** Numbers with which a list begins. */
const FIRST_NUMBERS: ReadonlySet<number> = new Set([0, 1]);

interface CountedLine {
  /** What stands around the number. */
  readonly frame: string;
  readonly number: number;
  readonly start: number;
  readonly contentStart: number;
  readonly label: Gap;
}

/** The frame of the number with which a changing part of a prompt begins; `undefined` where it begins with none. */
export function countedFrame(text: string, gap: Gap): string | undefined {
  const first = firstLine(text, gap);
  return first !== undefined && FIRST_NUMBERS.has(first.number) ? first.frame : undefined;
}

/**
 * The documents of a changing part that counts them in this frame. `undefined` with fewer than two, and in doubt: the
 * frame comes again out of turn, the space between documents varies, or a second number counts with them. O(gap).
 */
export function countedBlock(text: string, gap: Gap, frame: string): DocumentBlock | undefined {
  const first = firstLine(text, gap);
  if (first?.frame !== frame || !FIRST_NUMBERS.has(first.number)) return undefined;
  const more = countedLines(text, { start: first.contentStart, end: gap.end }).filter((line) => line.frame === frame);
  const lines = [first, ...more];
  if (lines.length < 2 || lines.some(({ number }, rank) => number !== first.number + rank)) return undefined;
  const last = gap.start + text.slice(gap.start, gap.end).trimEnd().length;
  const documents = lines.map(({ start, contentStart, label }, rank): DocumentSpan => {
    const next = lines[rank + 1]?.start;
    const end = next === undefined ? last : first.start + text.slice(first.start, next).trimEnd().length;
    return { start, end, contentStart, contentEnd: end, id: undefined, title: undefined, labels: [label] };
  });
  if (hasSecondCount(text, documents)) return undefined;
  const separators = new Set(documents.slice(1).map(({ start }, rank) => text.slice(documents[rank]!.end, start)));
  if (separators.size > 1 || documents.some(({ contentStart, end }) => end <= contentStart)) return undefined;
  const { start } = documents[0]!;
  return { text: 0, format: 'counted', marked: false, start, end: last, documents, fixed: undefined };
}

/** Whether another number of the documents counts with their places: later text may refer to either. */
function hasSecondCount(text: string, documents: readonly DocumentSpan[]): boolean {
  const numbers = documents.map(({ contentStart, end }) =>
    [...text.slice(contentStart, Math.min(end, contentStart + HEAD_LENGTH)).matchAll(/\d{1,9}/g)].map(Number),
  );
  return numbers[0]!.some((first, slot) => numbers.every((own, rank) => own[slot] === first + rank));
}

/** The parts of a text that count on from line to line, up to the line of the last number. O(text). */
export function countedLists(text: string): readonly Gap[] {
  const lists = new Map<string, CountedLine[]>();
  for (const line of countedLines(text, { start: 0, end: text.length })) {
    const known = lists.get(line.frame);
    if (known === undefined) lists.set(line.frame, [line]);
    else known.push(line);
  }
  return [...lists.values()].flatMap((lines) => {
    const runs: CountedLine[][] = [];
    for (const line of lines) {
      const run = runs.at(-1);
      if (run?.at(-1)?.number === line.number - 1) run?.push(line);
      else if (FIRST_NUMBERS.has(line.number)) runs.push([line]);
    }
    return runs.flatMap((run) => {
      if (run.length < 2) return [];
      const feed = text.indexOf('\n', run.at(-1)!.contentStart);
      return [{ start: run[0]!.start, end: feed < 0 ? text.length : feed }];
    });
  });
}

function firstLine(text: string, { start, end }: Gap): CountedLine | undefined {
  const at = start + /^\s*/.exec(text.slice(start, end))![0].length;
  const feed = text.indexOf('\n', at);
  const match = COUNTED_LINE.exec(text.slice(at, feed < 0 ? end : Math.min(feed, end)));
  return match === null ? undefined : lineOf(match, at);
}

function countedLines(text: string, { start, end }: Gap): readonly CountedLine[] {
  // The rest of the line on which the part begins is no beginning of a line.
  const feed = start === 0 ? 0 : text.indexOf('\n', start);
  if (feed < 0 || feed >= end) return [];
  return [...text.slice(feed, end).matchAll(COUNTED_LINES)].flatMap((match) => lineOf(match, feed) ?? []);
}

function lineOf({ 1: before, 2: digits, 3: behind, indices, 0: whole }: RegExpExecArray, at: number) {
  if (`${before}${behind}` === '') return undefined;
  const [from, to] = indices![2]!;
  return {
    frame: `${before}#${behind}`,
    number: Number(digits),
    start: at + indices![1]![0],
    contentStart: at + indices![0]![0] + whole.length,
    label: { start: at + from, end: at + to },
  };
}
