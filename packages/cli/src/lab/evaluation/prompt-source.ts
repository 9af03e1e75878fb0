import type { ChatMessage } from '@warmpath/core';
import type { EvaluationQuestion } from '@warmpath/lab';

/** What the engine said of a prompt that it answered. */
interface PromptUsage {
  readonly promptTokens: number | null;
  readonly cachedTokens: number | null;
}

/** A prompt that is about to be sent. */
export interface SentPrompt {
  readonly messages: readonly ChatMessage[];
  /** Places that its documents stand away from their retrieval ranks, of all together. */
  readonly placesMoved: number;
  /** It was answered. */
  answered(usage: PromptUsage): void;
  /** It was not. */
  failed(): void;
}

/** What turns questions into prompts, one after the other: a strategy. */
export interface PromptSource {
  /** The prompt of the next question. It counts as sent. */
  send(question: EvaluationQuestion): SentPrompt;
}

/** What all sources of prompts have in common. */
export interface PromptSettings {
  readonly model: string;
  /** Mark and words of the system message. */
  readonly system: string;
}

/** The messages of a question without documents. */
export function plainMessages({ text, conversation }: EvaluationQuestion, system: string): readonly ChatMessage[] {
  const before = (conversation?.before ?? []).flatMap(({ question, answer }) => [
    { role: 'user', content: question },
    { role: 'assistant', content: answer },
  ]);
  return [{ role: 'system', content: system }, ...before, { role: 'user', content: text }];
}
