/** The place of a JSON syntax error. */
export interface JsonErrorPlace {
  /** UTF-16 units before it. */
  readonly offset: number;
  /** Both counted from 1; columns in UTF-16 units. */
  readonly line: number;
  readonly column: number;
  /** Whether the text ends too soon. */
  readonly isCutShort: boolean;
}

const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const WORD = /true|false|null/y;
const SPACE = /[ \t\n\r]*/y;

/**
 * Finds the first syntax error of a JSON text; `undefined` for valid JSON. Never quotes the text, which may be private,
 * as the messages of `JSON.parse` do. O(text), without recursion.
 */
export function findJsonError(text: string): JsonErrorPlace | undefined {
  const offset = firstError(text);
  if (offset === undefined) return undefined;
  const before = text.slice(0, offset).split('\n');
  return { offset, line: before.length, column: before.at(-1)!.length + 1, isCutShort: offset >= text.length };
}

/** Describes the error, for the detail of an error message. */
export function describeJsonError(text: string): string {
  const place = findJsonError(text);
  if (place === undefined) return 'This is valid JSON, but not what is expected here.';
  if (text.trim() === '') return 'There is no JSON: it is empty.';
  const where = `line ${place.line}, column ${place.column}`;
  return place.isCutShort ? `The JSON ends too soon, at ${where}.` : `Not valid JSON at ${where}.`;
}

/** What may come next in an open array or object. */
type Expected = 'value' | 'first element' | 'first key' | 'key' | 'end';

function firstError(text: string): number | undefined {
  const open: ('[' | '{')[] = [];
  let expected: Expected = 'value';
  let at = 0;
  const takes = (pattern: RegExp): boolean => {
    pattern.lastIndex = at;
    if (!pattern.test(text)) return false;
    at = pattern.lastIndex;
    return true;
  };
  /** Moves to the end of a string, or to its first error. */
  const takesString = (): boolean => {
    at = endOfString(text, at + 1);
    if (text[at] !== '"') return false;
    at += 1;
    return true;
  };
  for (;;) {
    takes(SPACE);
    const sign = text[at];
    if (expected === 'end') {
      const inside = open.at(-1);
      if (inside === undefined) return at < text.length ? at : undefined;
      if (sign === ',') expected = inside === '{' ? 'key' : 'value';
      else if (sign === (inside === '{' ? '}' : ']')) open.pop();
      else return at;
      at += 1;
    } else if (expected === 'first key' && sign === '}') {
      open.pop();
      at += 1;
      expected = 'end';
    } else if (expected === 'key' || expected === 'first key') {
      if (sign !== '"') return at;
      if (!takesString()) return at;
      takes(SPACE);
      if (text[at] !== ':') return at;
      at += 1;
      expected = 'value';
    } else if (expected === 'first element' && sign === ']') {
      open.pop();
      at += 1;
      expected = 'end';
    } else if (sign === '[' || sign === '{') {
      open.push(sign);
      at += 1;
      expected = sign === '{' ? 'first key' : 'first element';
    } else {
      if (sign === '"' ? !takesString() : !takes(NUMBER) && !takes(WORD)) return at;
      expected = 'end';
    }
  }
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const ESCAPE = /["\\/bfnrt]|u[0-9a-fA-F]{4}/y;
const CUT_ESCAPE = /^(?:u[0-9a-fA-F]{0,3})?$/;

/** Index of the closing quote, or of the first error, of a string that opens before `at`. */
function endOfString(text: string, at: number): number {
  for (let next = at; next < text.length; next++) {
    const unit = text.charCodeAt(next);
    if (unit === QUOTE || unit < 0x20) return next;
    if (unit !== BACKSLASH) continue;
    ESCAPE.lastIndex = next + 1;
    if (!ESCAPE.test(text)) return CUT_ESCAPE.test(text.slice(next + 1)) ? text.length : next + 1;
    next = ESCAPE.lastIndex - 1;
  }
  return text.length;
}
