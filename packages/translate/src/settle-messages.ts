import { type ChatMessage, type ChatPart, contentOf, textPart } from './chat-request.js';
import { RawJson } from './request-value.js';

/** Messages in the order and the roles that chat templates take. */
export interface SettledMessages {
  readonly messages: readonly ChatMessage[];
  /** System messages that became the user's. */
  readonly movedSystem: number;
}

/**
 * Puts results of tools directly behind their calls, media out of results, and all system texts at the beginning into
 * one message. A later system message keeps its place as the user's: at the beginning, it would break the prefix.
 *
 * Each message depends on those before it only, and on late results: what was sent stays a prefix of what follows.
 * O(messages + parts).
 *
 * @param keepSystem Whether later system messages keep their role.
 */
export function settleMessages(given: readonly ChatMessage[], keepSystem: boolean): SettledMessages {
  const messages = mediaBehindResults(resultsBehindCalls(given));
  return keepSystem ? { messages, movedSystem: 0 } : systemFirst(messages);
}

/** Ids may come again: a result belongs to the last open call before it, else to the first one behind it. */
function resultsBehindCalls(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  const places = new Map<unknown, number[]>();
  for (const [place, message] of messages.entries()) {
    for (const { id } of callsOf(message)) places.set(id, [...(places.get(id) ?? []), place]);
  }
  const results = new Map<number, ChatMessage[]>();
  const moved = new Set<ChatMessage>();
  for (const [place, message] of messages.entries()) {
    const open = message.role === 'tool' ? places.get(message['tool_call_id']) : undefined;
    const call = open?.findLast((it) => it < place) ?? open?.[0];
    if (open === undefined || call === undefined) continue;
    open.splice(open.indexOf(call), 1);
    results.set(call, [...(results.get(call) ?? []), message]);
    moved.add(message);
  }
  return messages.flatMap((message, place) => (moved.has(message) ? [] : [message, ...(results.get(place) ?? [])]));
}

function callsOf(message: ChatMessage): readonly { readonly id: unknown }[] {
  return (message['tool_calls'] as readonly { readonly id: unknown }[] | undefined) ?? [];
}

/** Engines refuse images and files of role `tool`: the user brings them, behind the last result. */
function mediaBehindResults(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  const settled: ChatMessage[] = [];
  let media: ChatPart[] = [];
  const bring = (): void => {
    if (media.length > 0) settled.push({ role: 'user', content: contentOf(media) });
    media = [];
  };
  for (const message of messages) {
    if (message.role === 'tool') {
      const parts = partsOf(message);
      for (const part of parts) if (isMedia(part)) media.push(part);
      settled.push(parts.some(isMedia) ? { ...message, content: contentOf(parts.map(textInResult)) } : message);
    } else if (message.role === 'user' && media.length > 0) {
      settled.push({ ...message, content: contentOf([...media, ...partsOf(message)]) });
      media = [];
    } else {
      bring();
      settled.push(message);
    }
  }
  bring();
  return settled;
}

function isMedia({ type }: ChatPart): boolean {
  return type !== 'text' && type !== 'refusal';
}

function textInResult(part: ChatPart): ChatPart {
  if (!isMedia(part)) return part;
  return textPart(`[${part.type === 'image_url' ? 'image' : part.type} in the next message]`);
}

function systemFirst(messages: readonly ChatMessage[]): SettledMessages {
  const behind = messages.findIndex(({ role }) => role !== 'system');
  const opening = behind < 0 ? messages : messages.slice(0, behind);
  const [first] = opening;
  const settled: ChatMessage[] = [];
  if (first !== undefined) settled.push(opening.length === 1 ? first : joined(first, ...opening.slice(1)));
  let movedSystem = 0;
  // Some templates refuse two messages of the user in a row.
  let isOpen = false;
  for (const message of messages.slice(opening.length)) {
    const last = settled.at(-1);
    const isSystem = message.role === 'system';
    if (isSystem) movedSystem++;
    const own = isSystem ? { ...message, role: 'user' } : message;
    if (last?.role === 'user' && own.role === 'user' && (isSystem || isOpen)) settled.splice(-1, 1, joined(last, own));
    else settled.push(own);
    isOpen = own.role === 'user' && isSystem;
  }
  return { messages: settled, movedSystem };
}

function joined(first: ChatMessage, ...others: readonly ChatMessage[]): ChatMessage {
  return { ...first, content: contentOf([first, ...others].flatMap(partsOf)) };
}

function partsOf({ content }: ChatMessage): readonly ChatPart[] {
  if (content === null) return [];
  return typeof content === 'string' || content instanceof RawJson ? [textPart(content)] : content;
}
