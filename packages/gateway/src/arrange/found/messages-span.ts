import type { ConversationMembers } from '../../intake/apis/prompt-api.js';
import { JsonScanner } from '../../intake/json-scanner.js';

/** Where an array of messages stands: behind its bracket, and behind its last message. Without messages, the two are one. */
export interface MessagesSpan {
  readonly open: number;
  readonly end: number;
}

/** The same of a JSON body that has one such array; `undefined` for any other. O(body), long strings in native searches. */
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
 * Where the first array of messages begins, behind its bracket, and where its first messages end, `most` of them. Nothing behind
 * them is read. `undefined` where no array comes first. O(bytes up to there).
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
