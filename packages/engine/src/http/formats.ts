import type { AnswerFormat } from './exchange.js';
import { accounts } from './usage.js';

/** What every object of one answer begins with. */
interface AnswerHead {
  readonly id: string;
  /** Seconds since 1970. */
  readonly created: number;
  readonly model: string;
}

/** The answers of `POST /v1/chat/completions`. */
export function chatFormat(head: AnswerHead): AnswerFormat {
  const chunk = (delta: object, finishReason: string | null): object => ({
    id: head.id,
    object: 'chat.completion.chunk',
    created: head.created,
    model: head.model,
    choices: [{ index: 0, delta, logprobs: null, finish_reason: finishReason }],
  });
  return {
    whole: (content, result) => ({
      id: head.id,
      object: 'chat.completion',
      created: head.created,
      model: head.model,
      choices: [
        { index: 0, message: { role: 'assistant', content }, logprobs: null, finish_reason: result.finishReason },
      ],
      ...accounts(result),
    }),
    opening: () => [chunk({ role: 'assistant', content: '' }, null)],
    piece: (content) => chunk({ content }, null),
    closing: (result) => ({ ...chunk({}, result.finishReason), timings: result.timings }),
    usage: (result) => ({
      id: head.id,
      object: 'chat.completion.chunk',
      created: head.created,
      model: head.model,
      choices: [],
      ...accounts(result),
    }),
  };
}

/** The answers of `POST /v1/completions`. */
export function completionFormat(head: AnswerHead): AnswerFormat {
  const object = (choices: readonly object[]): object => ({
    id: head.id,
    object: 'text_completion',
    created: head.created,
    model: head.model,
    choices,
  });
  const choice = (text: string, finishReason: string | null): object => ({
    index: 0,
    text,
    logprobs: null,
    finish_reason: finishReason,
  });
  return {
    whole: (text, result) => ({ ...object([choice(text, result.finishReason)]), ...accounts(result) }),
    opening: () => [],
    piece: (text) => object([choice(text, null)]),
    closing: (result) => ({ ...object([choice('', result.finishReason)]), timings: result.timings }),
    usage: (result) => ({ ...object([]), ...accounts(result) }),
  };
}
