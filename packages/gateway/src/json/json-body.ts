import { isUtf8 } from 'node:buffer';
import { WarmpathError } from '@warmpath/core';
import { describeJsonError, ERROR_TABLE } from '@warmpath/core/internal';
import { type ByteSpan, isObject, type JsonMember, type JsonObject, JsonScanner, parseJson } from './json-scanner.js';

const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/** A request body that is one JSON object, with the spans of its members. Values are parsed on demand. */
export class BodyView {
  readonly scan: JsonScanner;
  readonly members: readonly JsonMember[];
  readonly #root: ByteSpan;
  /** Of a key that occurs twice the last one counts, as in `JSON.parse`. */
  readonly #values = new Map<string, ByteSpan>();

  /** O(body). @throws WarmpathError `WARMPATH_INVALID_JSON`, `WARMPATH_BODY_TOO_COMPLEX`. */
  constructor(bytes: Buffer) {
    this.scan = new JsonScanner(bytes);
    const start = this.scan.space(0);
    if (bytes[start] !== OPEN_BRACE) {
      throw notAnObject('body');
    }
    this.members = this.scan.members(start);
    for (const { key, valueStart, end } of this.members) this.#values.set(key, { start: valueStart, end });
    this.#root = { start, end: this.#closingBrace() + 1 };
    if (this.scan.space(this.#root.end) < bytes.length) throw new WarmpathError('WARMPATH_INVALID_JSON');
  }

  get bytes(): Buffer {
    return this.scan.bytes;
  }

  /** Whether the bytes are UTF-8: others would not survive decoding. O(body), native. */
  get isUtf8(): boolean {
    return isUtf8(this.bytes);
  }

  /** The span of a top-level value. */
  value(key: string): ByteSpan | undefined {
    return this.#values.get(key);
  }

  has(key: string): boolean {
    return this.#values.has(key);
  }

  /** The JSON text of a top-level value, as the client wrote it. */
  raw(key: string): string | undefined {
    const span = this.value(key);
    return span && this.scan.text(span);
  }

  /** A top-level value as `JSON.parse` gives it. O(value). */
  parse(key: string): unknown {
    const span = this.value(key);
    return span && this.scan.parse(span);
  }

  /** A top-level string; `undefined` for any other value. */
  string(key: string): string | undefined {
    const span = this.value(key);
    return span && this.scan.string(span);
  }

  /** The edits that remove these members, duplicates included. O(members). */
  without(keys: ReadonlySet<string>): ByteEdit[] {
    return withoutMembers(this.members, keys);
  }

  /**
   * The edit that sets a member. A new member is added at the end of the object.
   *
   * @param isAlone whether no other member is left in the object.
   */
  with(key: string, value: string | Buffer, isAlone = this.members.length === 0): ByteEdit {
    const span = this.value(key);
    if (span !== undefined) return { ...span, pieces: [value] };
    const at = this.#root.end - 1;
    return { start: at, end: at, pieces: [`${isAlone ? '' : ','}${JSON.stringify(key)}:`, value] };
  }

  #closingBrace(): number {
    const last = this.members.at(-1);
    const from = last === undefined ? this.scan.space(0) + 1 : last.end;
    return this.bytes.indexOf(CLOSE_BRACE, from);
  }
}

const NOTHING: readonly never[] = [];

/** The edits that remove members of an object, duplicates included. O(members). */
export function withoutMembers(members: readonly JsonMember[], keys: ReadonlySet<string>): ByteEdit[] {
  const edits: ByteEdit[] = [];
  for (let first = 0; first < members.length; first++) {
    if (!keys.has(members[first]!.key)) continue;
    let last = first;
    while (last + 1 < members.length && keys.has(members[last + 1]!.key)) last++;
    // The comma before the members goes, too; at the beginning, the comma after them.
    const next = members[last + 1];
    const start = first === 0 ? members[0]!.start : members[first - 1]!.end;
    const end = first === 0 && next !== undefined ? next.start : members[last]!.end;
    edits.push({ start, end, pieces: NOTHING });
    first = last;
  }
  return edits;
}

/** Replaces the bytes `[start, end)` of a body by `pieces`. `start === end` inserts. */
export interface ByteEdit extends ByteSpan {
  readonly pieces: readonly (Buffer | string)[];
}

/**
 * The body with all edits made; without edits the same buffer. Edits come in any order and must not overlap. Insertions
 * at one place keep their order and stand before the replacement of the bytes that begin there. O(body).
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

/** A text as the inside of a JSON string. */
export function escaped(text: string): Buffer {
  return Buffer.from(JSON.stringify(text).slice(1, -1));
}

/** Bytes and values of a body that is parsed: they bound the time of `JSON.parse`. */
const MAX_PARSED_BYTES = 8_388_608;
const MAX_PARSED_VALUES = 50_000;

/** Characters of a model's name: it becomes a key of memories. */
const MAX_MODEL_LENGTH = 256;

/**
 * A body as one JSON object. A scan before `JSON.parse` bounds its time. O(body).
 *
 * @throws WarmpathError those of `checkBounds`; `WARMPATH_INVALID_REQUEST` for a `model` that is too long.
 */
export function readObject(body: Buffer): JsonObject {
  checkBounds(body);
  const object = parseJson(body.toString('utf8')) as JsonObject;
  const { model } = object;
  if (typeof model === 'string') checkModel(model);
  return object;
}

/**
 * The name of the model; empty where there is none.
 *
 * @throws WarmpathError `WARMPATH_INVALID_REQUEST` for a name that is too long.
 */
export function modelOf(body: BodyView): string {
  const model = body.string('model') ?? '';
  checkModel(model);
  return model;
}

function checkModel(model: string): void {
  if (model.length <= MAX_MODEL_LENGTH) return;
  throw invalid('model', `a name of at most ${MAX_MODEL_LENGTH} characters was expected`);
}

/** One line of a body of JSON lines, counted from 1. */
export interface ReadLine {
  readonly line: number;
  readonly object: JsonObject;
}

const NEWLINE = 10;

/**
 * A body of JSON lines (`application/x-ndjson`), each an object. Empty lines are skipped. The bounds are those of one
 * object, and a line counts as a value. O(body).
 *
 * @throws WarmpathError those of `checkBounds`, with the line.
 */
export function readLines(body: Buffer): ReadLine[] {
  checkSize(body);
  const read: ReadLine[] = [];
  let values = 0;
  for (let [start, line] = [0, 1]; start < body.length; line++) {
    const newline = body.indexOf(NEWLINE, start);
    const end = newline < 0 ? body.length : newline;
    const bytes = body.subarray(start, end);
    start = end + 1;
    checkValues(++values);
    // An empty line of Windows is `\r`.
    if (bytes.length === 0 || (bytes.length === 1 && bytes[0] === 13)) continue;
    try {
      values += checkScanned(bytes, values, 'line');
      read.push({ line, object: parseJson(bytes.toString('utf8')) as JsonObject });
    } catch (error) {
      if (!WarmpathError.isInstance(error)) throw error;
      throw new WarmpathError(error.code, { path: `line ${line}`, detail: error.message, cause: error });
    }
  }
  return read;
}

/**
 * Checks that a body is one JSON object within the bounds for `JSON.parse`. O(body).
 *
 * @throws WarmpathError `WARMPATH_INVALID_JSON`, without any of the body's text; `WARMPATH_BODY_TOO_LARGE`;
 * `WARMPATH_BODY_TOO_COMPLEX`.
 */
export function checkBounds(body: Buffer): void {
  checkSize(body);
  checkScanned(body, 0, 'body');
}

function checkSize({ length }: Buffer): void {
  if (length <= MAX_PARSED_BYTES) return;
  const detail = `Only bodies of at most ${MAX_PARSED_BYTES} bytes are read, and this one has ${length}.`;
  throw new WarmpathError('WARMPATH_BODY_TOO_LARGE', { detail });
}

/** The number of values of an object. @param before Values of the lines before. */
function checkScanned(bytes: Buffer, before: number, what: 'body' | 'line'): number {
  const scanner = new JsonScanner(bytes);
  const root = scanner.root();
  checkValues(before + scanner.values);
  if (scanner.isObject(root)) return scanner.values;
  throw notAnObject(what);
}

function checkValues(values: number): void {
  if (values <= MAX_PARSED_VALUES) return;
  const detail = `Only bodies of at most ${MAX_PARSED_VALUES} values are read, and this one has ${values}.`;
  throw new WarmpathError('WARMPATH_BODY_TOO_COMPLEX', { detail });
}

/** Whether a body is within the bounds for `JSON.parse`. O(body). */
export function isReadable(body: Buffer): boolean {
  if (body.length > MAX_PARSED_BYTES) return false;
  try {
    const scanner = new JsonScanner(body);
    scanner.root();
    return scanner.values <= MAX_PARSED_VALUES;
  } catch {
    return false;
  }
}

/**
 * Parses a text that must be one JSON object.
 *
 * @throws WarmpathError `WARMPATH_INVALID_JSON`, without any of the text.
 */
export function parseObject(text: string): JsonObject {
  const value = parseJson(text);
  if (!isObject(value)) throw notAnObject('body');
  return value;
}

/** Bytes of a text in which the place of a JSON error is looked for. */
const MAX_PLACED_BYTES = 1_048_576;

/** Adds the place of the JSON error to an error without one, unless the body is too long. O(body). */
export function withPlace(error: WarmpathError, body: Buffer): WarmpathError {
  const isPlaced = error.message !== ERROR_TABLE.WARMPATH_INVALID_JSON.message;
  if (error.code !== 'WARMPATH_INVALID_JSON' || isPlaced || body.length > MAX_PLACED_BYTES) return error;
  return new WarmpathError('WARMPATH_INVALID_JSON', { detail: describeJsonError(body.toString('utf8')), cause: error });
}

/** The error for a value of a request that is not as expected. */
export function invalid(path: string, detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_INVALID_REQUEST', { path, detail });
}

function notAnObject(what: 'body' | 'line'): WarmpathError {
  return new WarmpathError('WARMPATH_INVALID_JSON', { detail: `The ${what} is not a JSON object.` });
}
