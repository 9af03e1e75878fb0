import type { ChatMessage, LayoutName } from '@warmpath/core';
import type { PromptApi } from '../intake/apis/prompt-api.js';

/** What would make a request more than the prefill of a prompt, or is none of the engine's business: members to leave out. */
export const NO_MORE_THAN_PREFILL: ReadonlyMap<string, undefined> = new Map(
  [
    'documents',
    'warmpath',
    'stream',
    'stream_options',
    'background',
    'n',
    'max_tokens',
    'max_completion_tokens',
    'max_output_tokens',
    'min_tokens',
  ].map((key) => [key, undefined]),
);

/** The messages before the documents, then a user's turn that has just begun. */
export function withEmptyQuestion(messages: readonly ChatMessage[], layout: LayoutName): readonly ChatMessage[] {
  const question: ChatMessage = { role: 'user', content: '' };
  if (layout === 'system') {
    const system = messages.findIndex(({ role }) => role === 'system' || role === 'developer');
    return [...messages.slice(0, system + 1), question];
  }
  const last = messages.at(-1)?.role === 'user' ? messages.length - 1 : messages.length;
  return [...messages.slice(0, last), question];
}

/** A JSON object without a bound on the answer that asks for the least that every engine answers with. */
export function withLeastAnswer(body: string, { answerLimit: { field, least } }: PromptApi): string {
  return `${body.slice(0, -1)},"${field}":${least}}`;
}
