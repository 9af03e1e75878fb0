import { WarmpathError } from '@warmpath/core';
import { describeJsonError } from '@warmpath/core/internal';

/** Levels of arrays and objects. Real requests have about ten. */
const MAX_DEPTH = 256;

/** Arrays, objects and members of objects: some 50 ms of `JSON.parse`. Numbers and strings in arrays cost a tenth. */
const MAX_CONTAINERS = 50_000;

/** Bytes of one character of a prompt when it is escaped: `\u0041`. */
const ESCAPED_BYTES = 6;

/** Bytes of a body beside its prompt. */
const OTHER_BYTES = 1_048_576;

const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/**
 * The largest body whose prompt can fit the context: what is longer need not be received.
 *
 * @param longestPiece Most bytes of text that one token stands for.
 */
export function largestBodyBytes(contextTokens: number, longestPiece: number): number {
  return contextTokens * longestPiece * ESCAPED_BYTES + OTHER_BYTES;
}

/** Bodies up to so many characters get the place where they stop being JSON, which takes some ms. */
const PLACED_LENGTH = 1_048_576;

/**
 * `JSON.parse` of a body, after a look for what would hold the event loop for seconds: millions of values, or deep
 * nesting. Cost: O(bytes).
 *
 * @throws WARMPATH_BODY_TOO_COMPLEX; WARMPATH_INVALID_JSON without any of the text.
 */
export function parseJson(body: Buffer, contextTokens: number): unknown {
  checkComplexity(body, contextTokens + MAX_CONTAINERS);
  const text = body.toString('utf8');
  try {
    return JSON.parse(text);
  } catch (cause) {
    if (text.length > PLACED_LENGTH) throw new WarmpathError('WARMPATH_INVALID_JSON', { cause });
    throw new WarmpathError('WARMPATH_INVALID_JSON', { detail: describeJsonError(text), cause });
  }
}

/** Counts brackets, colons and commas outside of strings; whether they are in order is for `JSON.parse` to say. */
function checkComplexity(body: Buffer, maxCommas: number): void {
  let depth = 0;
  let containers = 0;
  let commas = 0;
  let isInString = false;
  for (let at = 0; at < body.length; at++) {
    const byte = body[at];
    if (isInString) {
      if (byte === BACKSLASH) at++;
      isInString = byte !== QUOTE;
    } else if (byte === QUOTE) {
      isInString = true;
    } else if (byte === OPEN_BRACKET || byte === OPEN_BRACE) {
      depth++;
      containers++;
      if (depth > MAX_DEPTH) throw tooComplex(`is nested more than ${MAX_DEPTH} levels deep`);
    } else if (byte === CLOSE_BRACKET || byte === CLOSE_BRACE) {
      depth--;
    } else if (byte === COLON) {
      containers++;
    } else if (byte === COMMA) {
      commas++;
    }
    if (containers > MAX_CONTAINERS) throw tooComplex(`has more than ${MAX_CONTAINERS} arrays, objects and members`);
    if (commas > maxCommas) throw tooComplex(`has more than ${maxCommas} values`);
  }
}

function tooComplex(what: string): WarmpathError {
  return new WarmpathError('WARMPATH_BODY_TOO_COMPLEX', { detail: `The body ${what}.` });
}
