import { canonicalJson, fingerprint } from '@warmpath/core/internal';
import type { ArrangedChat, LocalChatRequest, LocalWarmpath } from './local-warmpath.js';

/** A message in the form that the AI SDK hands to language models, in all its versions. */
export interface PromptMessage {
  readonly role: string;
  readonly content: string | readonly unknown[];
}

export interface PromptOptions {
  /**
   * Called, with the conversation's name, where `ArrangedChat.isForgotten`: documents of earlier turns are missing from
   * the prompt. What it throws refuses the call.
   */
  readonly onForgotten?: (session: string) => void;
}

/** Stands for a part that is no text: files may be bytes or URLs, which JSON would not bring back. */
interface StandIn {
  readonly type: 'stand-in';
  readonly message: number;
  readonly part: number;
  /** Another file in the same place is another message. */
  readonly hash: string;
}

/**
 * `LocalWarmpath.arrangeChat` for a prompt in that form: user messages stay lists of parts, and parts that are no text
 * (images as bytes or URLs) stay the very objects they were, in repeated turns as well. Same errors and that of
 * `onForgotten`; same cost.
 */
export function arrangePrompt(
  warmpath: LocalWarmpath,
  request: LocalChatRequest<PromptMessage>,
  { onForgotten }: PromptOptions = {},
): ArrangedChat<PromptMessage> {
  const chat = warmpath.arrangeChat({ ...request, messages: asPlainData(request.messages) });
  if (chat.isForgotten && request.session !== undefined) {
    try {
      onForgotten?.(request.session);
    } catch (error) {
      void chat.failed();
      throw error;
    }
  }
  return { ...chat, messages: asPrompt(chat.messages, request.messages) };
}

/** The prompt in plain data: parts of user messages that are no text are stood in for. Cost: O(length). */
function asPlainData(prompt: readonly PromptMessage[]): readonly PromptMessage[] {
  return prompt.map((message, at) => {
    if (message.role !== 'user' || typeof message.content === 'string' || message.content.every(isText)) return message;
    const content = message.content.map((part, place): unknown =>
      isText(part) ? part : { type: 'stand-in', message: at, part: place, hash: hashOf(part) },
    );
    return { ...message, content };
  });
}

/** The rendered prompt in the SDK's own form: the parts that were stood in for, and user messages as lists of parts. */
function asPrompt(rendered: readonly PromptMessage[], given: readonly PromptMessage[]): readonly PromptMessage[] {
  return rendered.map((message) => {
    if (message.role !== 'user') return message;
    if (typeof message.content === 'string') return { ...message, content: [{ type: 'text', text: message.content }] };
    if (!message.content.some(isStandIn)) return message;
    const content = message.content.map((part) => (isStandIn(part) ? given[part.message]!.content[part.part] : part));
    return { ...message, content };
  });
}

function isText(part: unknown): boolean {
  return (part as { readonly type?: unknown } | null)?.type === 'text';
}

function isStandIn(part: unknown): part is StandIn {
  return (part as { readonly type?: unknown } | null)?.type === 'stand-in';
}

function hashOf(part: unknown): string {
  const readable = JSON.stringify(part, (_, value: unknown) =>
    value instanceof Uint8Array ? fingerprint([new TextDecoder('latin1').decode(value)]) : value,
  );
  return fingerprint([canonicalJson(JSON.parse(readable))]);
}
