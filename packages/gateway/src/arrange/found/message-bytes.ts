import type { ConversationMembers } from '../../intake/apis/prompt-api.js';
import { JsonScanner } from '../../intake/json-scanner.js';

/**
 * Where an array of messages stands: behind its bracket, and behind its last message. Without messages, the two are
 * one.
 */
export interface MessagesSpan {
  readonly open: number;
  readonly end: number;
}

/**
 * The same of a JSON body that has one such array; `undefined` for any other. O(body), long strings in native searches.
 */
export function messagesSpan(
  body: Buffer,
  { messages }: Pick<ConversationMembers, 'messages'>,
): MessagesSpan | undefined {
  const scan = new JsonScanner(body);
  try {
    const named = scan.members(scan.space(0)).filter(({ key }) => key === messages);
    const [found] = named;
    if (found === undefined || named.length > 1) return undefined;
    const span = { start: found.valueStart, end: found.end };
    if (!scan.isArray(span)) return undefined;
    const open = span.start + 1;
    let end = span.end - 1;
    while (end > open && body[end - 1]! <= 0x20) end--;
    return { open, end };
  } catch {
    return undefined;
  }
}

/**
 * Where the first array of messages begins, behind its bracket, and where its first messages end, `most` of them.
 * Nothing behind them is read. `undefined` where no array comes first. O(bytes up to there).
 */
export function firstMessages(
  body: Buffer,
  { messages }: Pick<ConversationMembers, 'messages'>,
  most: number,
): { readonly open: number; readonly ends: readonly number[] } | undefined {
  const scan = new JsonScanner(body);
  try {
    const start = scan.firstValue(messages);
    if (start === undefined || !scan.isArray({ start, end: start })) return undefined;
    return { open: start + 1, ends: scan.elements(start, most).map(({ end }) => end) };
  } catch {
    return undefined;
  }
}

const CLOSE_BRACE = 0x7d;
const CLOSE_BRACKET = 0x5d;
const COMMA = 0x2c;

/** A body without its first messages: JSON if, and only if, the body is. */
export interface CutBody {
  readonly rest: Buffer;
  /** Where messages were left out, in both. */
  readonly open: number;
  /** What parts the last of them from the first that is left, and went with them. Empty if none is left. */
  readonly gap: Buffer;
  /** Whether there is one. */
  readonly isLonger: boolean;
}

/**
 * Leaves the messages out that stand in the `length` bytes behind the bracket at `open`. Those must be elements of an
 * array in JSON, and the last of them an object. `undefined` where something else follows than a further message or the
 * end of the array. O(body), native.
 */
export function cutBody(body: Buffer, open: number, length: number): CutBody | undefined {
  const end = open + length;
  if (body[end - 1] !== CLOSE_BRACE) return undefined;
  const at = pastSpace(body, end);
  const head = body.subarray(0, open);
  if (body[at] === CLOSE_BRACKET) {
    return { rest: Buffer.concat([head, body.subarray(end)]), open, gap: body.subarray(end, end), isLonger: false };
  }
  if (body[at] !== COMMA || body[pastSpace(body, at + 1)] === CLOSE_BRACKET) return undefined;
  const gap = body.subarray(end, at + 1);
  return { rest: Buffer.concat([head, body.subarray(at + 1)]), open, gap, isLonger: true };
}

/** JSON's own white space: a body with any other is none. */
function pastSpace(bytes: Buffer, from: number): number {
  let at = from;
  while (bytes[at] === 0x20 || bytes[at] === 0x0a || bytes[at] === 0x0d || bytes[at] === 0x09) at++;
  return at;
}
