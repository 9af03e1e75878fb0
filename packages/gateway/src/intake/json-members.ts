import { BACKSLASH, CLOSE_BRACE, CLOSE_BRACKET, COMMA, OPEN_BRACE, OPEN_BRACKET, QUOTE } from './json-characters.js';

/**
 * Where the members of a JSON object stand in its text. The gateway changes one or two fields of a body and forwards
 * the rest as the client wrote it, byte for byte: numbers beyond 2^53, `1.0`, integer-like keys and key order would
 * not survive a round trip through JavaScript objects.
 *
 * Every function here expects text that `JSON.parse` has already accepted, and therefore checks nothing again.
 */

/** One member of an object: `text.slice(start, end)` is `"key": value`, `text.slice(valueStart, end)` its value. */
export interface JsonMember {
  readonly key: string;
  readonly start: number;
  readonly valueStart: number;
  readonly end: number;
}

/** A value's place in the text. */
export interface JsonSpan {
  readonly start: number;
  readonly end: number;
}

/** The members of the object that stands at `from`, in their order, duplicates included. O(object). */
export function objectMembers(text: string, from = 0): JsonMember[] {
  const members: JsonMember[] = [];
  let at = skipSpace(text, skipSpace(text, from) + 1);
  while (text.charCodeAt(at) !== CLOSE_BRACE) {
    const start = at;
    const keyEnd = endOfString(text, start);
    const rawKey = text.slice(start, keyEnd);
    const key = rawKey.includes('\\') ? (JSON.parse(rawKey) as string) : rawKey.slice(1, -1);
    const valueStart = skipSpace(text, skipSpace(text, keyEnd) + 1);
    const end = endOfValue(text, valueStart);
    members.push({ key, start, valueStart, end });
    at = skipSpace(text, end);
    if (text.charCodeAt(at) === COMMA) at = skipSpace(text, at + 1);
  }
  return members;
}

/** The elements of the array that stands at `start`. O(array). */
export function arrayElements(text: string, start: number): JsonSpan[] {
  const elements: JsonSpan[] = [];
  let at = skipSpace(text, start + 1);
  while (text.charCodeAt(at) !== CLOSE_BRACKET) {
    const end = endOfValue(text, at);
    elements.push({ start: at, end });
    at = skipSpace(text, end);
    if (text.charCodeAt(at) === COMMA) at = skipSpace(text, at + 1);
  }
  return elements;
}

/**
 * The object with some members left out and some values replaced; everything else is the client's own text. Of a key
 * that occurs more than once the last one counts, as in `JSON.parse`, and only that one is replaced; all are left out. A
 * value for a key that the object does not have is added at its end.
 */
export function rewriteObject(
  text: string,
  members: readonly JsonMember[],
  changes: ReadonlyMap<string, string | undefined>,
): string {
  const last = new Map<string, JsonMember>();
  for (const member of members) if (changes.has(member.key)) last.set(member.key, member);
  // Pieces that are put together once, when the text is read: joining them would copy a long body.
  let written = '';
  const keep = (piece: string): void => {
    written += written === '' ? piece : `,${piece}`;
  };
  for (const member of members) {
    const { key, start, valueStart, end } = member;
    const value = changes.get(key);
    if (value === undefined && changes.has(key)) continue;
    keep(
      value === undefined || last.get(key) !== member ? text.slice(start, end) : text.slice(start, valueStart) + value,
    );
  }
  for (const [key, value] of changes) {
    if (value !== undefined && !last.has(key)) keep(`${JSON.stringify(key)}:${value}`);
  }
  return `{${written}}`;
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
  const first = text.charCodeAt(start);
  if (first === QUOTE) return endOfString(text, start);
  if (first === OPEN_BRACE || first === OPEN_BRACKET) return endOfContainer(text, start);
  let at = start + 1;
  for (; ; at++) {
    const code = text.charCodeAt(at);
    if (code === COMMA || code === CLOSE_BRACE || code === CLOSE_BRACKET || code <= 0x20 || Number.isNaN(code)) {
      return at;
    }
  }
}

function endOfContainer(text: string, start: number): number {
  let depth = 0;
  for (let at = start; ; at++) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) at = endOfString(text, at) - 1;
    else if (code === OPEN_BRACE || code === OPEN_BRACKET) depth++;
    else if ((code === CLOSE_BRACE || code === CLOSE_BRACKET) && --depth === 0) return at + 1;
  }
}
