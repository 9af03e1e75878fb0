import { JsonTextReader, type JsonValue } from '@warmpath/core/internal';
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

/**
 * A value in a request's body: what `JSON.parse` made of it, its path, and its bytes. Values that are not there have a
 * path, too, so that an error can name it. Where values stand in the text is looked up once, when it is first asked.
 */
export class RequestValue {
  readonly value: unknown;
  readonly #text: string;
  readonly #parent: RequestValue | undefined;
  readonly #step: string | number;
  #members: ReadonlyMap<string | number, JsonValue> | undefined;

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
    const tooDeep = stepsToTooDeep(root.value);
    if (tooDeep === undefined) return root;
    const detail = `nested deeper than the ${MAX_DEPTH} levels that are read`;
    let named = root;
    for (const step of tooDeep) named = new RequestValue(undefined, text, named, step);
    throw new TranslateError('WARMPATH_INVALID_REQUEST', detail, named.path);
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
    const span = this.#place();
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

  /** Where it stands in the text; `undefined` for what is not there. The text is read once, O(text). */
  #place(): JsonValue | undefined {
    if (this.#parent !== undefined) return this.#parent.#places().get(this.#step);
    return new JsonTextReader(this.#text, { maxDepth: MAX_DEPTH }).value(0);
  }

  #places(): ReadonlyMap<string | number, JsonValue> {
    const place = this.#members === undefined ? this.#place() : undefined;
    this.#members ??= place === undefined ? new Map() : placesOf(place);
    return this.#members;
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

/** The first steps to a value that is nested too deep; `undefined` if none is. O(values). */
function stepsToTooDeep(value: unknown, depth = 0): (string | number)[] | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  if (depth === MAX_DEPTH) return [];
  const isArray = Array.isArray(value);
  for (const [key, inner] of Object.entries(value)) {
    const steps = stepsToTooDeep(inner, depth + 1);
    if (steps === undefined) continue;
    if (depth < NAMED_STEPS) steps.unshift(isArray ? Number(key) : key);
    return steps;
  }
  return undefined;
}

/** The members of an object, or the elements of an array. Of a key that occurs twice the last one counts. */
function placesOf(place: JsonValue): ReadonlyMap<string | number, JsonValue> {
  if (place.kind === 'array') return new Map(place.elements.entries());
  if (place.kind !== 'object') return new Map();
  return new Map(place.members.map(({ key, value }) => [unescaped(key), value]));
}

function unescaped(key: string): string {
  return key.includes('\\') ? (JSON.parse(`"${key}"`) as string) : key;
}
