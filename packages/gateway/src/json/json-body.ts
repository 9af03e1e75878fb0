import { WarmpathError } from '@warmpath/core';
import type { JsonObject } from './json-scanner.js';
import { JsonScanner, parseJson } from './json-scanner.js';

/**
 * The largest body that becomes JavaScript objects, in bytes, and the values in it: together some 50 ms of
 * `JSON.parse`.
 */
const PARSED_BYTES = 8_388_608;
const PARSED_VALUES = 50_000;

/** Characters of a model's name. */
const MODEL_MAX_LENGTH = 256;

/**
 * A body as one JSON object. It is scanned before it is parsed, so that none takes long however it is built. O(body).
 * Errors: those of `checkBounds`; `WARMPATH_INVALID_REQUEST` for a model's name that is too long.
 */
export function readObject(body: Buffer): JsonObject {
  checkBounds(body);
  const object = parseJson(body.toString('utf8')) as JsonObject;
  const { model } = object;
  if (typeof model === 'string' && model.length > MODEL_MAX_LENGTH) {
    const detail = `a name of at most ${MODEL_MAX_LENGTH} characters was expected`;
    throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'model', detail });
  }
  return object;
}

/** One line of a body of JSON lines, counted from 1. */
export interface ReadLine {
  readonly line: number;
  readonly object: JsonObject;
}

const NEWLINE = 10;

/**
 * A body of JSON lines (`application/x-ndjson`), each an object; empty lines are passed over. It is bounded as a whole
 * as one object is, and a line counts as a value. O(body).
 * Errors: those of `checkBounds`, with the line.
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
    // `\r` alone is what Windows leaves of an empty line.
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
 * Checks that a body is one JSON object that is parsed in a bounded time. O(body).
 *
 * @throws WarmpathError `WARMPATH_INVALID_JSON`, without any of the body's text; `WARMPATH_BODY_TOO_LARGE` and
 * `WARMPATH_BODY_TOO_COMPLEX` for one that is not parsed.
 */
export function checkBounds(body: Buffer): void {
  checkSize(body);
  checkScanned(body, 0, 'body');
}

function checkSize({ length }: Buffer): void {
  if (length <= PARSED_BYTES) return;
  const detail = `Only bodies of at most ${PARSED_BYTES} bytes are read, and this one has ${length}.`;
  throw new WarmpathError('WARMPATH_BODY_TOO_LARGE', { detail });
}

/** How many values an object has, beside so many before it. */
function checkScanned(bytes: Buffer, before: number, what: 'body' | 'line'): number {
  const scanner = new JsonScanner(bytes);
  const root = scanner.root();
  checkValues(before + scanner.values);
  if (scanner.isObject(root)) return scanner.values;
  throw new WarmpathError('WARMPATH_INVALID_JSON', { detail: `The ${what} is not a JSON object.` });
}

function checkValues(values: number): void {
  if (values <= PARSED_VALUES) return;
  const detail = `Only bodies of at most ${PARSED_VALUES} values are read, and this one has ${values}.`;
  throw new WarmpathError('WARMPATH_BODY_TOO_COMPLEX', { detail });
}

/**
 * Whether a body is one that `readObject` would parse; what is not is forwarded as it is, and nothing is learned from
 * it. O(body).
 */
export function isWorthReading(body: Buffer): boolean {
  if (body.length > PARSED_BYTES) return false;
  try {
    const scanner = new JsonScanner(body);
    scanner.root();
    return scanner.values <= PARSED_VALUES;
  } catch {
    return false;
  }
}
