/** A value of a JSON text, and where it stands. Strings are not decoded. */
export type JsonValue =
  | { readonly kind: 'array'; readonly start: number; readonly end: number; readonly elements: readonly JsonValue[] }
  | { readonly kind: 'object'; readonly start: number; readonly end: number; readonly members: readonly JsonEntry[] }
  | { readonly kind: 'string' | 'number' | 'literal'; readonly start: number; readonly end: number };

export interface JsonEntry {
  /** Without quotes, escapes as they stand. */
  readonly key: string;
  readonly value: JsonValue;
}

/** A member of an object; `undefined` where the value is none, or has none of that name. O(members). */
export function memberOf(value: JsonValue | undefined, name: string): JsonValue | undefined {
  return value?.kind === 'object' ? value.members.find(({ key }) => key === name)?.value : undefined;
}

/** Deeper nesting than any tool's answer; beyond it a text is not read as JSON. */
const MAX_DEPTH = 64;

export interface JsonTextOptions {
  /** Levels of arrays and objects beyond which a value counts as none. Default 64. */
  readonly maxDepth?: number;
}
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const LITERAL = /true|false|null/y;

const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/**
 * Reads JSON values from text that may be anything, from its start towards its end: places count UTF-16 units, as in
 * the text itself.
 */
export class JsonTextReader {
  readonly #text: string;
  readonly #quotes: SignPlaces;
  readonly #backslashes: SignPlaces;
  readonly #lineFeeds: SignPlaces;
  readonly #carriageReturns: SignPlaces;
  readonly #maxDepth: number;
  #at = 0;

  constructor(text: string, { maxDepth = MAX_DEPTH }: JsonTextOptions = {}) {
    this.#maxDepth = maxDepth;
    this.#text = text;
    this.#quotes = new SignPlaces(text, '"');
    this.#backslashes = new SignPlaces(text, '\\');
    this.#lineFeeds = new SignPlaces(text, '\n');
    this.#carriageReturns = new SignPlaces(text, '\r');
  }

  /** How far the text was looked at: where the last value ended, or where it turned out to be none. */
  get at(): number {
    return this.#at;
  }

  /**
   * The value that stands here, behind white space, and not before `at`; `undefined` if there is none. O(value, or what
   * was read until it turned out to be none).
   */
  value(from: number): JsonValue | undefined {
    this.#at = from;
    this.#space();
    return this.#value(0);
  }

  #value(depth: number): JsonValue | undefined {
    const start = this.#at;
    switch (this.#text.charCodeAt(start)) {
      case QUOTE:
        return this.#string() ? { kind: 'string', start, end: this.#at } : undefined;
      case OPEN_BRACKET:
        return depth < this.#maxDepth ? this.#array(depth) : undefined;
      case OPEN_BRACE:
        return depth < this.#maxDepth ? this.#object(depth) : undefined;
      default:
        if (this.#match(NUMBER)) return { kind: 'number', start, end: this.#at };
        return this.#match(LITERAL) ? { kind: 'literal', start, end: this.#at } : undefined;
    }
  }

  #array(depth: number): JsonValue | undefined {
    const start = this.#at++;
    const elements: JsonValue[] = [];
    this.#space();
    if (this.#take(CLOSE_BRACKET)) return { kind: 'array', start, end: this.#at, elements };
    for (;;) {
      const element = this.#value(depth + 1);
      if (element === undefined) return undefined;
      elements.push(element);
      this.#space();
      if (this.#take(CLOSE_BRACKET)) return { kind: 'array', start, end: this.#at, elements };
      if (!this.#take(COMMA)) return undefined;
      this.#space();
    }
  }

  #object(depth: number): JsonValue | undefined {
    const start = this.#at++;
    const members: JsonEntry[] = [];
    this.#space();
    if (this.#take(CLOSE_BRACE)) return { kind: 'object', start, end: this.#at, members };
    for (;;) {
      const keyStart = this.#at;
      if (this.#text.charCodeAt(keyStart) !== QUOTE || !this.#string()) return undefined;
      const key = this.#text.slice(keyStart + 1, this.#at - 1);
      this.#space();
      if (!this.#take(COLON)) return undefined;
      this.#space();
      const value = this.#value(depth + 1);
      if (value === undefined) return undefined;
      members.push({ key, value });
      this.#space();
      if (this.#take(CLOSE_BRACE)) return { kind: 'object', start, end: this.#at, members };
      if (!this.#take(COMMA)) return undefined;
      this.#space();
    }
  }

  /** Strings do not span lines. */
  #string(): boolean {
    const text = this.#text;
    for (let from = this.#at + 1; ; ) {
      const quote = this.#quotes.from(from);
      const backslash = this.#backslashes.from(from);
      const stop = Math.min(backslash, this.#lineFeeds.from(from), this.#carriageReturns.from(from), text.length);
      if (quote < stop) {
        this.#at = quote + 1;
        return true;
      }
      if (stop !== backslash || stop + 1 >= text.length) {
        this.#at = stop;
        return false;
      }
      from = stop + 2;
    }
  }

  #match(pattern: RegExp): boolean {
    pattern.lastIndex = this.#at;
    const match = pattern.exec(this.#text);
    if (match === null) return false;
    this.#at = pattern.lastIndex;
    return match[0] !== '';
  }

  #take(sign: number): boolean {
    if (this.#text.charCodeAt(this.#at) !== sign) return false;
    this.#at++;
    return true;
  }

  #space(): void {
    const text = this.#text;
    for (let code = text.charCodeAt(this.#at); code === 32 || (code >= 9 && code <= 13); ) {
      code = text.charCodeAt(++this.#at);
    }
  }
}

/**
 * Where a sign stands in a text, asked for from its start towards its end: all answers together are one pass over the
 * text.
 */
class SignPlaces {
  readonly #text: string;
  readonly #sign: string;
  #next = -1;

  constructor(text: string, sign: string) {
    this.#text = text;
    this.#sign = sign;
  }

  /** The first place from here on; `Infinity` if there is none. */
  from(at: number): number {
    if (this.#next < at) {
      const next = this.#text.indexOf(this.#sign, at);
      this.#next = next < 0 ? Number.POSITIVE_INFINITY : next;
    }
    return this.#next;
  }
}
