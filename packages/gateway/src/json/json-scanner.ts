import { isAscii } from 'node:buffer';
import { WarmpathError } from '@warmpath/core';

// Finds the byte spans of values in a body, so that a body is changed in a few places and forwarded otherwise as the
// client wrote it. Numbers beyond 2^53, `1.0` and the order of keys would not survive `JSON.parse`. The scanner checks
// structure (brackets, commas, colons, quotes, literals), not the inside of strings: the engine does.

/** The bytes of a value: `[start, end)`. */
export interface ByteSpan {
  readonly start: number;
  readonly end: number;
}

/** A JSON object as `JSON.parse` gives it. */
export type JsonObject = Readonly<Record<string, unknown>>;

/** One member of an object: `[start, end)` is `"key": value`, `[valueStart, end)` its value. */
export interface JsonMember extends ByteSpan {
  readonly key: string;
  readonly valueStart: number;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const COMMA = 0x2c;
const COLON = 0x3a;
const LETTER_U = 0x75;
const LETTER_E = 0x65;
const LOWER = 0x20;
const ZERO = 0x30;
const NINE = 0x39;
const MINUS = 0x2d;
const PLUS = 0x2b;
const POINT = 0x2e;

/** Members of an object whose members are read. Names of millions would take 100 MB. */
const MAX_MEMBERS = 4_096;
/** Levels of arrays and objects. */
const MAX_DEPTH = 256;
/** Values, and searches inside of strings, of one scan: it bounds the time. */
const MAX_STEPS = 600_000;

/** Bytes of a string that are compared one by one before a native search: names and roles are shorter. */
const SHORT_STRING = 24;
/** Bytes of a string whose end is remembered. */
const LONG_STRING = 1_024;

const WORDS = ['true', 'false', 'null'].map((word) => [...Buffer.from(word)]);

/**
 * Scans the bytes of one JSON text.
 *
 * @throws WarmpathError `WARMPATH_INVALID_JSON`; `WARMPATH_BODY_TOO_COMPLEX` beyond the bounds.
 */
export class JsonScanner {
  readonly bytes: Buffer;
  readonly #maxSteps: number;
  #steps = 0;
  #values = 0;
  /** Start and end of each long string, ascending: each container around it that is read passes it again. */
  #longStrings: number[] = [];
  /** The closing bracket of each open container. Never shortened, so that its memory is used again. */
  readonly #closers: number[] = [];

  /** @param maxSteps Values, and searches inside of strings, after which the text is too complex. */
  constructor(bytes: Buffer, maxSteps = MAX_STEPS) {
    this.bytes = bytes;
    this.#maxSteps = maxSteps;
  }

  /** Another scanner of the same bytes, with its own bound of steps and the same long strings. */
  again(): JsonScanner {
    const scanner = new JsonScanner(this.bytes, this.#maxSteps);
    scanner.#longStrings = this.#longStrings;
    return scanner;
  }

  /** Values inside of containers that were scanned. */
  get values(): number {
    return this.#values;
  }

  /** The only value of the text. O(text). */
  root(): ByteSpan {
    const start = this.space(0);
    const end = this.valueEnd(start);
    if (this.space(end) < this.bytes.length) throw invalidJson();
    return { start, end };
  }

  /**
   * The first `most` members of the object at `start`, duplicates included. O(members).
   *
   * @throws WarmpathError `WARMPATH_BODY_TOO_COMPLEX` also beyond `MAX_MEMBERS`.
   */
  members(start: number, most = Number.POSITIVE_INFINITY): JsonMember[] {
    const found: JsonMember[] = [];
    let at = this.#open(OPEN_BRACE, start);
    while (this.bytes[at] !== CLOSE_BRACE && found.length < most) {
      const { key, valueStart } = this.#memberHead(at);
      const end = this.valueEnd(valueStart);
      if (found.push({ key, start: at, valueStart, end }) > MAX_MEMBERS)
        throw tooComplex(`an object of more than ${MAX_MEMBERS} members`);
      at = this.#next(end, CLOSE_BRACE);
    }
    return found;
  }

  /** The first `most` elements of the array at `start`. O(elements). */
  elements(start: number, most = Number.POSITIVE_INFINITY): ByteSpan[] {
    const found: ByteSpan[] = [];
    let at = this.#open(OPEN_BRACKET, start);
    while (this.bytes[at] !== CLOSE_BRACKET && found.length < most) {
      this.#step();
      const end = this.valueEnd(at);
      found.push({ start: at, end });
      at = this.#next(end, CLOSE_BRACKET);
    }
    return found;
  }

  /**
   * The value of the last member of this name, as in `JSON.parse`. O(object).
   *
   * @returns `undefined` where the value is no object, or lacks the member.
   */
  member(start: number, name: string): ByteSpan | undefined {
    if (this.bytes[start] !== OPEN_BRACE) return undefined;
    const member = this.members(start).findLast(({ key }) => key === name);
    return member && { start: member.valueStart, end: member.end };
  }

  isArray({ start }: ByteSpan): boolean {
    return this.bytes[start] === OPEN_BRACKET;
  }

  isObject({ start }: ByteSpan): boolean {
    return this.bytes[start] === OPEN_BRACE;
  }

  isString({ start }: ByteSpan): boolean {
    return this.bytes[start] === QUOTE;
  }

  isNumber({ start }: ByteSpan): boolean {
    return isDigit(this.bytes[start]) || this.bytes[start] === MINUS;
  }

  isNull({ start, end }: ByteSpan): boolean {
    return end - start === 4 && this.bytes[start] === 0x6e;
  }

  /** The JSON text of a value. O(value). */
  text({ start, end }: ByteSpan): string {
    return this.bytes.toString('utf8', start, end);
  }

  /**
   * The value of a string; `undefined` for any other value. O(string).
   *
   * @throws WarmpathError `WARMPATH_INVALID_JSON` for a broken escape.
   */
  string(span: ByteSpan): string | undefined {
    if (!this.isString(span)) return undefined;
    const raw = this.bytes.toString('utf8', span.start + 1, span.end - 1);
    return raw.includes('\\') ? (this.parse(span) as string) : raw;
  }

  /**
   * The bytes at which characters of a string begin. The bytes must be UTF-8. O(string); for ASCII O(escapes).
   *
   * @param offsets UTF-16 units of the text, ascending, none of them inside a character.
   */
  placesIn({ start, end }: ByteSpan, offsets: readonly number[]): readonly number[] {
    const { bytes } = this;
    const isPlain = isAscii(bytes.subarray(start, end));
    let backslash = isPlain ? bytes.indexOf(BACKSLASH, start) : -1;
    let at = start + 1;
    let unit = 0;
    return offsets.map((offset) => {
      while (unit < offset) {
        if (isPlain && (backslash < 0 || backslash >= end || backslash - at >= offset - unit)) {
          at += offset - unit;
          unit = offset;
          continue;
        }
        if (isPlain) {
          unit += backslash - at;
          at = backslash;
        }
        const byte = bytes[at]!;
        const isEscape = byte === BACKSLASH;
        at += isEscape ? (bytes[at + 1] === LETTER_U ? 6 : 2) : byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
        unit += !isEscape && byte >= 0xf0 ? 2 : 1;
        if (isPlain) backslash = bytes.indexOf(BACKSLASH, at);
      }
      return at;
    });
  }

  /** A value as `JSON.parse` gives it. O(value). */
  parse(span: ByteSpan): unknown {
    return parseJson(this.text(span));
  }

  /** The first byte from `from` on that is not white space. */
  space(from: number): number {
    let at = from;
    while (this.bytes[at] === 0x20 || this.bytes[at] === 0x0a || this.bytes[at] === 0x0d || this.bytes[at] === 0x09)
      at++;
    return at;
  }

  /** The end of the value that begins at `start`. O(value). */
  valueEnd(start: number): number {
    const first = this.bytes[start];
    if (first === QUOTE) return this.stringEnd(start);
    return first === OPEN_BRACE || first === OPEN_BRACKET ? this.#containerEnd(start) : this.#literalEnd(start);
  }

  /** The end of the string that begins at `start`. O(string), once for a long one. */
  stringEnd(start: number): number {
    const known = this.#longStrings;
    const isBehind = known.length === 0 || start > known[known.length - 2]!;
    if (!isBehind) {
      const end = endOf(known, start);
      if (end !== undefined) return end;
    }
    const end = this.#stringEnd(start);
    if (isBehind && end - start >= LONG_STRING) known.push(start, end);
    return end;
  }

  #stringEnd(start: number): number {
    const { bytes } = this;
    for (let at = start + 1; ; ) {
      const end = at + SHORT_STRING;
      for (; at < end; at++) {
        const byte = bytes[at];
        if (byte === QUOTE) return at + 1;
        // The escaped byte belongs to the string.
        if (byte === BACKSLASH) at++;
      }
      const quote = bytes.indexOf(QUOTE, at);
      if (quote < 0) throw invalidJson();
      // An even number of backslashes before the quote escape each other.
      let first = quote;
      while (first > at && bytes[first - 1] === BACKSLASH) first--;
      this.#step();
      if ((quote - first) % 2 === 0) return quote + 1;
      at = quote + 1;
    }
  }

  /** Passes nested containers without recursion. */
  #containerEnd(start: number): number {
    const { bytes } = this;
    const open = this.#closers;
    let depth = 0;
    let at = start;
    for (;;) {
      this.#step();
      // A value begins here.
      this.#values++;
      const byte = bytes[at];
      let isComplete = true;
      if (byte === QUOTE) at = this.stringEnd(at);
      else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
        const close = byte === OPEN_BRACE ? CLOSE_BRACE : CLOSE_BRACKET;
        const first = this.space(at + 1);
        if (bytes[first] === close) at = first + 1;
        else {
          if (depth === MAX_DEPTH) throw tooComplex(`nested more than ${MAX_DEPTH} levels deep`);
          open[depth++] = close;
          at = close === CLOSE_BRACE ? this.#behindKey(first) : first;
          isComplete = false;
        }
      } else at = this.#literalEnd(at);
      // After a value: the ends of containers, then a comma and the next value.
      while (isComplete) {
        if (depth === 0) return at;
        at = this.space(at);
        const close = open[depth - 1]!;
        if (bytes[at] === close) {
          depth--;
          at++;
          continue;
        }
        this.#expect(COMMA, at);
        at = this.space(at + 1);
        if (close === CLOSE_BRACE) at = this.#behindKey(at);
        isComplete = false;
      }
    }
  }

  /** The key that begins at `start`, and the first byte of its value. */
  #memberHead(start: number): { readonly key: string; readonly valueStart: number } {
    this.#step();
    this.#expect(QUOTE, start);
    const end = this.stringEnd(start);
    return { key: this.string({ start, end })!, valueStart: this.#behindColon(end) };
  }

  /** From a key to the first byte of its value. */
  #behindKey(start: number): number {
    this.#expect(QUOTE, start);
    return this.#behindColon(this.stringEnd(start));
  }

  /** From the end of a key to the first byte of its value. */
  #behindColon(keyEnd: number): number {
    const colon = this.space(keyEnd);
    this.#expect(COLON, colon);
    return this.space(colon + 1);
  }

  #literalEnd(start: number): number {
    const { bytes } = this;
    const end = isDigit(bytes[start]) || bytes[start] === MINUS ? this.#numberEnd(start) : this.#wordEnd(start);
    if (isOfLiteral(bytes[end])) throw invalidJson();
    return end;
  }

  #wordEnd(start: number): number {
    const word = WORDS.find((each) => each[0] === this.bytes[start]);
    if (word === undefined || word.some((byte, i) => this.bytes[start + i] !== byte)) throw invalidJson();
    return start + word.length;
  }

  #numberEnd(start: number): number {
    const { bytes } = this;
    let at = bytes[start] === MINUS ? start + 1 : start;
    at = bytes[at] === ZERO ? at + 1 : this.#digitsEnd(at);
    if (bytes[at] === POINT) at = this.#digitsEnd(at + 1);
    if (bytes[at] === LETTER_E || bytes[at] === LETTER_E - LOWER) {
      const sign = bytes[at + 1];
      at = this.#digitsEnd(sign === PLUS || sign === MINUS ? at + 2 : at + 1);
    }
    return at;
  }

  /** The end of one digit or more. */
  #digitsEnd(start: number): number {
    let at = start;
    while (isDigit(this.bytes[at])) at++;
    if (at === start) throw invalidJson();
    return at;
  }

  /** The first byte after the bracket and white space. */
  #open(bracket: number, at: number): number {
    this.#expect(bracket, at);
    return this.space(at + 1);
  }

  /** The start of the next member or element, or the closing bracket. */
  #next(from: number, close: number): number {
    const at = this.space(from);
    if (this.bytes[at] === close) return at;
    this.#expect(COMMA, at);
    const next = this.space(at + 1);
    if (this.bytes[next] === close) throw invalidJson();
    return next;
  }

  #expect(byte: number, at: number): void {
    if (this.bytes[at] !== byte) throw invalidJson();
  }

  #step(): void {
    if (++this.#steps > this.#maxSteps) throw tooComplex(`more than ${this.#maxSteps} values and escaped quotes`);
  }
}

/**
 * `JSON.parse`.
 *
 * @throws WarmpathError `WARMPATH_INVALID_JSON`. The parser's own message would quote the text.
 */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw invalidJson();
  }
}

function isDigit(byte: number | undefined): boolean {
  return byte !== undefined && byte >= ZERO && byte <= NINE;
}

function isOfLiteral(byte: number | undefined): boolean {
  return byte !== undefined && byte > 0x20 && byte !== COMMA && byte !== CLOSE_BRACE && byte !== CLOSE_BRACKET;
}

/** The end of the string that begins at `start`, from ascending pairs of start and end. O(log pairs). */
function endOf(strings: readonly number[], start: number): number | undefined {
  let first = 0;
  let last = strings.length / 2;
  while (first < last) {
    const middle = (first + last) >> 1;
    if (strings[2 * middle]! < start) first = middle + 1;
    else last = middle;
  }
  return strings[2 * first] === start ? strings[2 * first + 1] : undefined;
}

function invalidJson(): WarmpathError {
  return new WarmpathError('WARMPATH_INVALID_JSON');
}

function tooComplex(what: string): WarmpathError {
  return new WarmpathError('WARMPATH_BODY_TOO_COMPLEX', { detail: `The body has ${what}.` });
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
