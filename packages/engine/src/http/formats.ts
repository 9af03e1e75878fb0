import type { GenerationResult } from '../loop/generation.js';
import type { AnswerFormat } from './exchange.js';
import { accounts } from './usage.js';

/** What every object of one answer begins with. */
interface AnswerHead {
  readonly id: string;
  /** Seconds since 1970. */
  readonly created: number;
  readonly model: string;
}

const GOES_ON = { finish_reason: null };

/** Why it ended; where a stop string was met, which one, as vLLM names it. */
function endingOf({ finishReason, stopString }: GenerationResult): object {
  return { finish_reason: finishReason, ...(stopString !== undefined && { stop_reason: stopString }) };
}

/** The answers of `POST /v1/chat/completions`. */
export function chatFormat(head: AnswerHead): AnswerFormat {
  const chunk = (delta: object, ending: object = GOES_ON): object => ({
    id: head.id,
    object: 'chat.completion.chunk',
    created: head.created,
    model: head.model,
    choices: [{ index: 0, delta, logprobs: null, ...ending }],
  });
  return {
    whole: (content, result) => ({
      id: head.id,
      object: 'chat.completion',
      created: head.created,
      model: head.model,
      choices: [{ index: 0, message: { role: 'assistant', content }, logprobs: null, ...endingOf(result) }],
      ...accounts(result),
    }),
    opening: () => [chunk({ role: 'assistant', content: '' })],
    piece: (content) => chunk({ content }),
    closing: (result) => ({ ...chunk({}, endingOf(result)), timings: result.timings }),
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
  const choice = (text: string, ending: object = GOES_ON): object => ({ index: 0, text, logprobs: null, ...ending });
  return {
    whole: (text, result) => ({ ...object([choice(text, endingOf(result))]), ...accounts(result) }),
    opening: () => [],
    piece: (text) => object([choice(text)]),
    closing: (result) => ({ ...object([choice('', endingOf(result))]), timings: result.timings }),
    usage: (result) => ({ ...object([]), ...accounts(result) }),
  };
}
