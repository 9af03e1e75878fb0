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

/** Deeper nesting than any tool's answer; beyond it a text is not read as JSON. */
const MAX_DEPTH = 64;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const LITERAL = /true|false|null/y;
/** The inside of a string up to a sign that matters; strings do not span lines. */
const PLAIN = /[^"\\\n\r]*/y;

/** Reads one JSON value from text that may be anything. */
export class JsonScanner {
  readonly #text: string;
  /** How far the text was looked at: where the value ended, or where it turned out to be none. */
  at: number;

  constructor(text: string, start: number) {
    this.#text = text;
    this.at = start;
  }

  /** The value that starts here, or `undefined` if there is none. O(value, or what was read until it failed). */
  value(depth = 0): JsonValue | undefined {
    const start = this.at;
    switch (this.#text[start]) {
      case '"':
        return this.#string() ? { kind: 'string', start, end: this.at } : undefined;
      case '[':
        return depth < MAX_DEPTH ? this.#array(depth) : undefined;
      case '{':
        return depth < MAX_DEPTH ? this.#object(depth) : undefined;
      default:
        if (this.#match(NUMBER)) return { kind: 'number', start, end: this.at };
        return this.#match(LITERAL) ? { kind: 'literal', start, end: this.at } : undefined;
    }
  }

  #array(depth: number): JsonValue | undefined {
    const start = this.at++;
    const elements: JsonValue[] = [];
    this.#space();
    if (this.#take(']')) return { kind: 'array', start, end: this.at, elements };
    for (;;) {
      const element = this.value(depth + 1);
      if (element === undefined) return undefined;
      elements.push(element);
      this.#space();
      if (this.#take(']')) return { kind: 'array', start, end: this.at, elements };
      if (!this.#take(',')) return undefined;
      this.#space();
    }
  }

  #object(depth: number): JsonValue | undefined {
    const start = this.at++;
    const members: JsonEntry[] = [];
    this.#space();
    if (this.#take('}')) return { kind: 'object', start, end: this.at, members };
    for (;;) {
      const keyStart = this.at;
      if (!this.#string()) return undefined;
      const key = this.#text.slice(keyStart + 1, this.at - 1);
      this.#space();
      if (!this.#take(':')) return undefined;
      this.#space();
      const value = this.value(depth + 1);
      if (value === undefined) return undefined;
      members.push({ key, value });
      this.#space();
      if (this.#take('}')) return { kind: 'object', start, end: this.at, members };
      if (!this.#take(',')) return undefined;
      this.#space();
    }
  }

  #string(): boolean {
    if (!this.#take('"')) return false;
    for (;;) {
      this.#match(PLAIN);
      const next = this.#text[this.at];
      if (next === '"') {
        this.at++;
        return true;
      }
      if (next !== '\\' || this.at + 1 >= this.#text.length) return false;
      this.at += 2;
    }
  }

  #match(pattern: RegExp): boolean {
    pattern.lastIndex = this.at;
    const match = pattern.exec(this.#text);
    if (match === null) return false;
    this.at = pattern.lastIndex;
    return match[0] !== '';
  }

  #take(sign: string): boolean {
    if (this.#text[this.at] !== sign) return false;
    this.at++;
    return true;
  }

  #space(): void {
    const text = this.#text;
    for (let code = text.charCodeAt(this.at); code === 32 || (code >= 9 && code <= 13); ) {
      code = text.charCodeAt(++this.at);
    }
  }
}
