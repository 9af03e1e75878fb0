import { Fingerprint } from '../fingerprint.js';

/** A part of a text between line ends, and its salted hash. White space at the ends of lines belongs to none. */
export interface Stretch {
  readonly start: number;
  readonly end: number;
  readonly hash: number;
}

/** Characters of words in front of a colon that stand apart from what follows on the line: `Question: …`. */
const MAX_LEAD_IN = 200;
const TAG_LENGTH = 60;
const OPENING_TAG = /<[\p{L}_-]{1,40}>/uy;
const CLOSING_TAG = /<\/[\p{L}_-]{1,40}>$/u;

/** Hashes text with a salt. The hash tells nothing about the text to readers who do not know the salt. */
export class StretchHasher {
  readonly #salt: string;
  readonly #fingerprint = new Fingerprint();

  constructor(salt: string) {
    this.#salt = salt;
  }

  /** 52 bits, never negative. O(length). */
  hash(text: string): number {
    const { low, high } = this.#fingerprint.reset().add(this.#salt).add(text).end();
    return (high >>> 0) * 2 ** 20 + (low >>> 12);
  }

  /** The lines of `[start, end)` that hold more than white space. O(length). */
  lines(text: string, start: number, end: number): readonly Stretch[] {
    const lines: Stretch[] = [];
    for (const [from, to] of lineSpans(text, start, end)) {
      lines.push({ start: from, end: to, hash: this.hash(text.slice(from, to)) });
    }
    return lines;
  }

  /** The same, with words in front of a colon and tags around a line apart from the rest of the line. */
  pieces(text: string): readonly Stretch[] {
    const pieces: Stretch[] = [];
    const add = (start: number, end: number) => {
      if (start < end) pieces.push({ start, end, hash: this.hash(text.slice(start, end)) });
    };
    for (const [start, end] of lineSpans(text, 0, text.length)) {
      const opened = endOfLeadIn(text, start, end);
      const closed = start + text.slice(Math.max(start, end - TAG_LENGTH), end).search(CLOSING_TAG);
      const close = closed < start ? end : closed + Math.max(0, end - TAG_LENGTH - start);
      const from = opened < close ? opened : start;
      add(start, from);
      let at = from;
      while (at < close && isBlank(text.charCodeAt(at))) at++;
      add(at, close);
      add(close, end);
    }
    return pieces;
  }
}

/** Where the words in front of a colon, or an opening tag, end; the start of a line that has neither. */
function endOfLeadIn(text: string, start: number, end: number): number {
  OPENING_TAG.lastIndex = start;
  if (OPENING_TAG.test(text) && OPENING_TAG.lastIndex < end) return OPENING_TAG.lastIndex;
  const head = text.slice(start, Math.min(end, start + MAX_LEAD_IN));
  const colon = /: |：/.exec(head);
  return colon === null ? start : start + colon.index + 1;
}

/** Lines without white space behind them, and without the white space of blank lines. */
function* lineSpans(text: string, start: number, end: number): Generator<readonly [number, number]> {
  for (let from = start; from < end; ) {
    const feed = text.indexOf('\n', from);
    const stop = feed < 0 || feed > end ? end : feed;
    let to = stop;
    while (to > from && isBlank(text.charCodeAt(to - 1))) to--;
    if (to > from) yield [from, to];
    from = stop + 1;
  }
}

function isBlank(code: number): boolean {
  return code === 32 || code === 9 || code === 13;
}
