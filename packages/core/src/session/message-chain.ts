import { Fingerprint } from '../fingerprint.js';
import type { ChatMessage, ContentPart } from '../render/prompt.js';

/**
 * The hash chain over a conversation: link `i` stands for messages 0 to `i`, all of them and in this order, by their
 * exact text. Two conversations share a link if, and only if, they are equal up to there; the same message behind
 * another history has another link. `messages` are the texts of each, for instance its JSON as the client wrote it;
 * `before` is the link that they stand behind, if any. O(length), about 0.5 ns a character of long messages.
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

/** Where a message stands among bytes: its first one, and the one behind its last. */
export interface ByteRange {
  readonly start: number;
  readonly end: number;
}

/**
 * The same chain over messages of which only the bytes are known. Its links are others than those of `messageChain`.
 * O(bytes), below 0.5 ns a byte.
 */
export function byteChain(bytes: Uint8Array, messages: readonly ByteRange[]): readonly string[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const hasher = new Fingerprint();
  return messages.map(({ start, end }) => {
    // The lanes as they are stand for all messages before.
    return hasher.addBytes(view, start, end).end().digits();
  });
}

/**
 * A hash of what the model said in one message: its text without white space around it, and its tool calls.
 * `undefined` if it said nothing, for that tells no two conversations apart. The text may come as a string or as parts,
 * for clients hand back either. O(length).
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

/** Arguments without the white space that a client drops which hands them back as an object. */
function asWritten(given: unknown): string {
  const text = String(given ?? '');
  try {
    return JSON.stringify(JSON.parse(text));
  } catch {
    return text;
  }
}
