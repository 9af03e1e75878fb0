import { isObject, type JsonObject, TranslateError } from './errors.js';

/** Levels of objects and arrays that a body may have. */
export const MAX_DEPTH = 256;
/** Steps of a path by which a place that is nested too deep is named. */
const NAMED_STEPS = 8;
/** Characters from which on copying a text from the body takes less than writing it anew. */
const LONG_TEXT = 200;

/** JSON that is written as it stands: numbers beyond 2^53 and `1.0` survive. */
export class RawJson {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** A text, or the JSON string of it as the client wrote it. */
export type JsonText = string | RawJson;

interface Span {
  readonly start: number;
  readonly end: number;
}

/**
 * A value in a request's body: what `JSON.parse` made of it, its path, and its bytes. Values that are not there have a
 * path, too, so that an error can name it. Where the members of a value stand in the text is looked up once, when it is
 * first asked.
 */
export class RequestValue {
  readonly value: unknown;
  readonly #text: string;
  readonly #parent: RequestValue | undefined;
  readonly #step: string | number;
  #memberSpans: ReadonlyMap<string | number, Span> | undefined;

  private constructor(value: unknown, text: string, parent: RequestValue | undefined, step: string | number) {
    this.value = value;
    this.#text = text;
    this.#parent = parent;
    this.#step = step;
  }

  /**
   * The value of a body, which must be an object of at most 256 levels. O(text).
   *
   * @throws TranslateError `WARMPATH_INVALID_JSON`; `WARMPATH_INVALID_REQUEST` if it is nested too deep.
   */
  static parse(text: string): RequestValue {
    const root = new RequestValue(parseObject(text), text, undefined, '');
    const tooDeep = findTooDeep(text);
    if (tooDeep === undefined) return root;
    const detail = `nested deeper than the ${MAX_DEPTH} levels that are read`;
    throw new TranslateError('WARMPATH_INVALID_REQUEST', detail, root.#ancestorOf(tooDeep).path);
  }

  /** `messages[2].content[0].text`. */
  get path(): string {
    if (this.#parent === undefined) return '';
    const before = this.#parent.path;
    if (typeof this.#step === 'number') return `${before}[${this.#step}]`;
    return before === '' ? this.#step : `${before}.${this.#step}`;
  }

  /** Whether the value asks for something: not `null`, `false`, or an empty string or array. */
  get isGiven(): boolean {
    const { value } = this;
    if (value === undefined || value === null || value === false || value === '') return false;
    return !Array.isArray(value) || value.length > 0;
  }

  /** The member of that name; its value is `undefined` if there is none. */
  get(key: string): RequestValue {
    return new RequestValue(isObject(this.value) ? this.value[key] : undefined, this.#text, this, key);
  }

  /** @throws TranslateError `WARMPATH_INVALID_REQUEST` if it is none. */
  object(): JsonObject {
    if (isObject(this.value)) return this.value;
    throw this.wrongType('an object');
  }

  /**
   * The elements of an array; none if the value is missing or `null`.
   *
   * @throws TranslateError `WARMPATH_INVALID_REQUEST` if it is anything else.
   */
  elements(): readonly RequestValue[] {
    const { value } = this;
    if (value === undefined || value === null) return [];
    if (!Array.isArray(value)) throw this.wrongType('an array');
    return value.map((element: unknown, place) => new RequestValue(element, this.#text, this, place));
  }

  /** @throws TranslateError `WARMPATH_INVALID_REQUEST` if it is none. */
  string(): string {
    if (typeof this.value === 'string') return this.value;
    throw this.wrongType('a string');
  }

  /** The same, for `writeJson`: long texts as the client wrote them. */
  text(): JsonText {
    const text = this.string();
    return text.length < LONG_TEXT ? text : this.raw()!;
  }

  /** The value as the client wrote it, for `writeJson`. */
  raw(): RawJson | undefined {
    const span = this.#span();
    return span === undefined ? undefined : new RawJson(this.#text.slice(span.start, span.end));
  }

  /** The members of other names, as the client wrote them. */
  rawMembersExcept(names: ReadonlySet<string>): Readonly<Record<string, RawJson | undefined>> {
    const others = Object.keys(this.object()).filter((key) => !names.has(key));
    return Object.fromEntries(others.map((key) => [key, this.get(key).raw()]));
  }

  wrongType(expected: string): TranslateError {
    return new TranslateError('WARMPATH_INVALID_REQUEST', `${expected} was expected`, this.path);
  }

  /** For a part of the conversation, or a demand on the answer, that chat completions cannot express. */
  notTranslatable(reason = 'Chat completions have no equivalent for this'): TranslateError {
    const detail = `${reason}, and the engine speaks nothing else.`;
    return new TranslateError('WARMPATH_NOT_TRANSLATABLE', detail, this.path);
  }

  /** The value some steps from the top in which a place of the text lies. */
  #ancestorOf(place: number): RequestValue {
    let ancestor: RequestValue = this;
    for (let step = 0; step < NAMED_STEPS; step++) {
      const held = [...ancestor.#spansOfMembers()].find(([, { start, end }]) => start <= place && place < end);
      if (held === undefined) break;
      ancestor = new RequestValue(undefined, this.#text, ancestor, held[0]);
    }
    return ancestor;
  }

  #span(): Span | undefined {
    if (this.#parent === undefined) return { start: skipSpace(this.#text, 0), end: this.#text.length };
    return this.#parent.#spansOfMembers().get(this.#step);
  }

  #spansOfMembers(): ReadonlyMap<string | number, Span> {
    this.#memberSpans ??= memberSpans(this.#text, this.#span()!.start);
    return this.#memberSpans;
  }
}

/** The parser's own message quotes the body, and is not passed on. */
function parseObject(text: string): JsonObject {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new TranslateError('WARMPATH_INVALID_JSON', 'The body is not valid JSON.');
  }
  if (isObject(value)) return value;
  throw new TranslateError('WARMPATH_INVALID_JSON', 'The body is not a JSON object.');
}

// The functions below read text that `JSON.parse` has accepted, and check nothing again.

export const QUOTE = 0x22;
const COMMA = 0x2c;
export const OPEN_BRACKET = 0x5b;
export const BACKSLASH = 0x5c;
export const CLOSE_BRACKET = 0x5d;
export const OPEN_BRACE = 0x7b;
export const CLOSE_BRACE = 0x7d;

/** Where the first value stands that is nested too deep; `undefined` if none is. O(text). */
function findTooDeep(text: string): number | undefined {
  let depth = 0;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) at = endOfString(text, at) - 1;
    else if (code === OPEN_BRACE || code === OPEN_BRACKET) {
      if (++depth > MAX_DEPTH) return at;
    } else if (code === CLOSE_BRACE || code === CLOSE_BRACKET) depth--;
  }
  return undefined;
}

/**
 * Where the members of an object, or the elements of an array, stand. Of a key that occurs twice the last one counts.
 * O(value).
 */
function memberSpans(text: string, start: number): ReadonlyMap<string | number, Span> {
  const spans = new Map<string | number, Span>();
  const isArray = text.charCodeAt(start) === OPEN_BRACKET;
  if (!isArray && text.charCodeAt(start) !== OPEN_BRACE) return spans;
  const close = isArray ? CLOSE_BRACKET : CLOSE_BRACE;
  let at = skipSpace(text, start + 1);
  for (let place = 0; text.charCodeAt(at) !== close; place++) {
    let step: string | number = place;
    if (!isArray) {
      const keyEnd = endOfString(text, at);
      step = JSON.parse(text.slice(at, keyEnd)) as string;
      at = skipSpace(text, skipSpace(text, keyEnd) + 1);
    }
    const end = endOfValue(text, at);
    spans.set(step, { start: at, end });
    at = skipSpace(text, end);
    if (text.charCodeAt(at) === COMMA) at = skipSpace(text, at + 1);
  }
  return spans;
}

function skipSpace(text: string, from: number): number {
  let at = from;
  // Space, tab, line feed and carriage return are all of JSON's white space, and no other character is as small.
  while (text.charCodeAt(at) <= 0x20) at++;
  return at;
}

function endOfString(text: string, start: number): number {
  let at = start;
  for (;;) {
    at = text.indexOf('"', at + 1);
    let backslashes = 0;
    while (text.charCodeAt(at - 1 - backslashes) === BACKSLASH) backslashes++;
    if (backslashes % 2 === 0) return at + 1;
  }
}

function endOfValue(text: string, start: number): number {
  let depth = 0;
  for (let at = start; ; at++) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) {
      at = endOfString(text, at) - 1;
      if (depth === 0) return at + 1;
    } else if (code === OPEN_BRACE || code === OPEN_BRACKET) depth++;
    else if (code === CLOSE_BRACE || code === CLOSE_BRACKET) {
      // A number, `true`, `false` or `null` ends where what it stands in does.
      if (depth === 0) return at;
      if (--depth === 0) return at + 1;
    } else if (depth === 0 && (code === COMMA || code <= 0x20)) return at;
  }
}
