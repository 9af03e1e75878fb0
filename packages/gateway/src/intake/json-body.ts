import { WarmpathError } from '@warmpath/core';
import type { JsonObject } from './apis/request-texts.js';
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

/**
 * Checks that a body is one JSON object that is parsed in a bounded time. O(body).
 *
 * @throws WarmpathError `WARMPATH_INVALID_JSON`, without any of the body's text; `WARMPATH_BODY_TOO_LARGE` and
 * `WARMPATH_BODY_TOO_COMPLEX` for one that is not parsed.
 */
export function checkBounds(body: Buffer): void {
  if (body.length > PARSED_BYTES) {
    const detail = `Only bodies of at most ${PARSED_BYTES} bytes are read, and this one has ${body.length}.`;
    throw new WarmpathError('WARMPATH_BODY_TOO_LARGE', { detail });
  }
  const scanner = new JsonScanner(body);
  const root = scanner.root();
  if (scanner.values > PARSED_VALUES) {
    const detail = `Only bodies of at most ${PARSED_VALUES} values are read, and this one has ${scanner.values}.`;
    throw new WarmpathError('WARMPATH_BODY_TOO_COMPLEX', { detail });
  }
  if (scanner.isObject(root)) return;
  throw new WarmpathError('WARMPATH_INVALID_JSON', { detail: 'The body is not a JSON object.' });
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
