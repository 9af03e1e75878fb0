import { isAscii } from 'node:buffer';
import { WarmpathError } from '@warmpath/core';
import { describeJsonError, ERROR_TABLE } from '@warmpath/core/internal';

/**
 * The one JSON scanner of the gateway. It finds where values stand in the bytes of a body, so that a body is changed in
 * a few places and forwarded otherwise as the client wrote it: numbers beyond 2^53, `1.0` and the order of keys would
 * not survive a round trip through JavaScript objects. A scan costs a tenth of `JSON.parse`, because long strings are
 * skipped by native searches.
 *
 * It checks structure (brackets, commas, colons, quotes, literals), not the inside of strings: that is the engine's.
 */

/** Where a value stands: its first byte, and the one behind its last. */
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

/** Members of an object that is looked into: a hundred times as many as any API has. Names of millions are 100 MB. */
const MAX_MEMBERS = 4_096;
/** Levels of arrays and objects. Real requests have about ten (schemas of tools). */
const MAX_DEPTH = 256;
/**
 * Values, and searches inside of strings, of one scan: some 15 ms of work. A real body of 32 MB has a third of that.
 */
const MAX_STEPS = 600_000;

/**
 * Bytes of a string that are looked at one by one before a native search is worth its call: names and roles are
 * shorter.
 */
const SHORT_STRING = 24;
/** Bytes from which on the end of a string is remembered: few enough of these are in a body. */
const LONG_STRING = 1_024;

const WORDS = ['true', 'false', 'null'].map((word) => [...Buffer.from(word)]);

/** Scans the bytes of one JSON text. Errors: `WARMPATH_INVALID_JSON`; `WARMPATH_BODY_TOO_COMPLEX` beyond the bounds. */
export class JsonScanner {
  readonly bytes: Buffer;
  readonly #maxSteps: number;
  #steps = 0;
  #values = 0;
  /**
   * Start and end of each long string, in their order: one is passed once for each container around it that is looked
   * into.
   */
  #longStrings: number[] = [];
  /** What closes each container that is open while one is passed over. Never shortened: that would free its memory. */
  readonly #closers: number[] = [];

  /** @param maxSteps Values, and searches inside of strings, after which the text is too complex. */
  constructor(bytes: Buffer, maxSteps = MAX_STEPS) {
    this.bytes = bytes;
    this.#maxSteps = maxSteps;
  }

  /** Another scanner of the same bytes, with a bound of steps of its own, that knows what this one has passed. */
  again(): JsonScanner {
    const scanner = new JsonScanner(this.bytes, this.#maxSteps);
    scanner.#longStrings = this.#longStrings;
    return scanner;
  }

  /** Values inside of containers that were scanned so far. */
  get values(): number {
    return this.#values;
  }

  /** Where the only value of the text stands; anything but white space beside it is an error. O(text). */
  root(): ByteSpan {
    const start = this.space(0);
    const end = this.valueEnd(start);
    if (this.space(end) < this.bytes.length) throw invalidJson();
    return { start, end };
  }

  /**
   * The members of the object at `start`, in their order, duplicates included, the first `most` of them. O(members).
   * Error: `WARMPATH_BODY_TOO_COMPLEX` also for an object of thousands.
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

  /** The elements of the array at `start`, the first `most` of them. O(elements). */
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
   * Where the value of the first member of this name begins, without a look behind it; `undefined` if there is none.
   */
  firstValue(name: string): number | undefined {
    const start = this.space(0);
    let at = this.#open(OPEN_BRACE, start);
    while (this.bytes[at] !== CLOSE_BRACE) {
      const { key, valueStart } = this.#memberHead(at);
      if (key === name) return valueStart;
      at = this.#next(this.valueEnd(valueStart), CLOSE_BRACE);
    }
    return undefined;
  }

  /**
   * The value of the last member of this name, as in `JSON.parse`; `undefined` where the value is no object or lacks
   * it. O(object).
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
   * A string's value; `undefined` for any other value. O(string). Error: `WARMPATH_INVALID_JSON` for a broken escape.
   */
  string(span: ByteSpan): string | undefined {
    if (!this.isString(span)) return undefined;
    const raw = this.bytes.toString('utf8', span.start + 1, span.end - 1);
    return raw.includes('\\') ? (this.parse(span) as string) : raw;
  }

  /**
   * Where characters of a string's text stand among the bytes: `offsets` count UTF-16 units of the text, ascending, and
   * none is inside a character. The bytes must be UTF-8. O(string); of plain ASCII O(escapes), native.
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

  /** A value as `JSON.parse` gives it. O(value). Error: `WARMPATH_INVALID_JSON`. */
  parse(span: ByteSpan): unknown {
    return parseJson(this.text(span));
  }

  /** The first byte from `from` on that is no white space. */
  space(from: number): number {
    let at = from;
    while (this.bytes[at] === 0x20 || this.bytes[at] === 0x0a || this.bytes[at] === 0x0d || this.bytes[at] === 0x09)
      at++;
    return at;
  }

  /** Behind the value that begins at `start`. O(value). */
  valueEnd(start: number): number {
    const first = this.bytes[start];
    if (first === QUOTE) return this.stringEnd(start);
    return first === OPEN_BRACE || first === OPEN_BRACKET ? this.#containerEnd(start) : this.#literalEnd(start);
  }

  /** Behind the closing quote of the string that opens at `start`. O(string), once for a long one. */
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
        // What follows is part of the string, whatever it is.
        if (byte === BACKSLASH) at++;
      }
      const quote = bytes.indexOf(QUOTE, at);
      if (quote < 0) throw invalidJson();
      // Back over the backslashes before it: an even number of them belongs to themselves.
      let first = quote;
      while (first > at && bytes[first - 1] === BACKSLASH) first--;
      this.#step();
      if ((quote - first) % 2 === 0) return quote + 1;
      at = quote + 1;
    }
  }

  /** Walks through nested containers without recursion: what closes each open one is kept in a list. */
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
      // Behind a complete value come the ends of containers, then a comma and the next value.
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

  /** Behind one digit or more. */
  #digitsEnd(start: number): number {
    let at = start;
    while (isDigit(this.bytes[at])) at++;
    if (at === start) throw invalidJson();
    return at;
  }

  /** Behind the bracket and white space. */
  #open(bracket: number, at: number): number {
    this.#expect(bracket, at);
    return this.space(at + 1);
  }

  /** Where the next member or element begins, or the bracket that closes. */
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

/** Texts up to so many bytes get the place where they stop being JSON, which takes some ms. */
const PLACED_BYTES = 1_048_576;

/**
 * The place where a body stops being JSON, for an error that has none; the same error where it has, or where that would
 * take too long. O(body).
 */
export function withPlace(error: WarmpathError, body: Buffer): WarmpathError {
  const isPlaced = error.message !== ERROR_TABLE.WARMPATH_INVALID_JSON.message;
  if (error.code !== 'WARMPATH_INVALID_JSON' || isPlaced || body.length > PLACED_BYTES) return error;
  return new WarmpathError('WARMPATH_INVALID_JSON', { detail: describeJsonError(body.toString('utf8')), cause: error });
}

/** `JSON.parse`. Error: `WARMPATH_INVALID_JSON`, without any of the text: the parser's own message quotes it. */
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

/** The end of the string that starts there, of pairs of start and end in their order. Binary search: O(log pairs). */
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

/**
 * Bytes in place of others: `[start, end)` of the body becomes `pieces`, one after the other. `start === end` inserts.
 */
export interface ByteEdit extends ByteSpan {
  readonly pieces: readonly (Buffer | string)[];
}

/**
 * The body with all edits made, every other byte as it was; with no edits, the very same buffer. Edits may come in any
 * order and must not overlap. What is inserted at one place stands in the order given, before what replaces the bytes
 * that begin there. O(body), native copies.
 */
export function applyEdits(body: Buffer, edits: readonly ByteEdit[]): Buffer {
  if (edits.length === 0) return body;
  const sorted =
    edits.length === 1 ? edits : edits.toSorted((one, other) => one.start - other.start || one.end - other.end);
  let length = body.length;
  for (const { start, end, pieces } of sorted) {
    length -= end - start;
    for (const piece of pieces) length += typeof piece === 'string' ? Buffer.byteLength(piece) : piece.length;
  }
  const written = Buffer.allocUnsafe(length);
  let from = 0;
  let to = 0;
  for (const { start, end, pieces } of sorted) {
    to += body.copy(written, to, from, start);
    for (const piece of pieces) {
      to += typeof piece === 'string' ? written.write(piece, to) : piece.copy(written, to);
    }
    from = end;
  }
  body.copy(written, to, from);
  return written;
}

/** Parses a body that must be one JSON object. Error: `WARMPATH_INVALID_JSON`, without any of the body's text. */
export function parseObject(text: string): Readonly<Record<string, unknown>> {
  const value = parseJson(text);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new WarmpathError('WARMPATH_INVALID_JSON', { detail: 'The body is not a JSON object.' });
  }
  return value as Readonly<Record<string, unknown>>;
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** A text as the inside of a JSON string. */
export function escaped(text: string): Buffer {
  return Buffer.from(JSON.stringify(text).slice(1, -1));
}
