import { Fingerprint } from '../fingerprint.js';
import type { ChatMessage, ContentPart } from '../render/prompt.js';

/**
 * The hash chain over a conversation: link `i` identifies the messages 0 to `i`, by their exact text and order.
 * O(length).
 *
 * @param messages texts of each message, for instance its JSON as the client wrote it
 * @param before the link that they follow, if any
 */
export function messageChain(messages: readonly (readonly string[])[], before = ''): readonly string[] {
  const hasher = new Fingerprint();
  let link = before;
  return messages.map((texts) => {
    hasher.reset().add(link);
    for (const text of texts) hasher.add(text);
    link = hasher.end().digits();
    return link;
  });
}

/** A range of bytes. `end` is exclusive. */
export interface ByteRange {
  readonly start: number;
  readonly end: number;
}

/** A hash chain over ranges of bytes. Its links differ from those of `messageChain`. O(bytes). */
export function byteChain(bytes: Uint8Array, messages: readonly ByteRange[]): readonly string[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const hasher = new Fingerprint();
  return messages.map(({ start, end }) => {
    // The lanes carry the hash of all ranges before.
    return hasher.addBytes(view, start, end).end().digits();
  });
}

/**
 * A hash of an answer: its trimmed text and its tool calls; `undefined` for an empty answer, which identifies nothing.
 * Content may be a string or parts. O(length).
 */
export function answerHash(
  message: Pick<ChatMessage, 'content'> & { readonly tool_calls?: unknown },
): string | undefined {
  const text = answerText(message.content).trim();
  const calls = Array.isArray(message.tool_calls) ? (message.tool_calls as readonly unknown[]).flatMap(readCall) : [];
  if (text === '' && calls.length === 0) return undefined;
  const hasher = new Fingerprint().add(text);
  for (const part of calls) hasher.add(part);
  return hasher.end().digits();
}

function answerText(content: ChatMessage['content']): string {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  return (content as readonly ContentPart[]).map((part) => (typeof part?.text === 'string' ? part.text : '')).join('');
}

function readCall(call: unknown): string[] {
  const given = (call as { readonly function?: { readonly name?: unknown; readonly arguments?: unknown } } | null)
    ?.function;
  return [String(given?.name ?? ''), asWritten(given?.arguments)];
}

/** Arguments in one form, because clients reformat their JSON. */
function asWritten(given: unknown): string {
  const text = String(given ?? '');
  try {
    return JSON.stringify(JSON.parse(text));
  } catch {
    return text;
  }
}
