import type { ChosenToken, GenerationResult, TokenChance } from '../loop/generation.js';
import type { ToldPart } from './answer-form.js';
import type { AnswerFormat } from './exchange.js';

export interface AnswerHead {
  readonly id: string;
  /** Seconds since 1970. */
  readonly created: number;
  readonly model: string;
}

function answerObject({ id, created, model }: AnswerHead, object: string, choices: readonly object[]) {
  return { id, object, created, model, choices };
}

const GOES_ON = { finish_reason: null };

/** Why the answer ended, and the stop string by vLLM's name for it. */
function endingOf({ finishReason, stopString }: GenerationResult): object {
  return { finish_reason: finishReason, ...(stopString !== undefined && { stop_reason: stopString }) };
}

interface ChatFormatOptions {
  readonly hasLogprobs: boolean;
  /** Separates reasoning and calls from the content; without it, the whole answer is content. */
  readonly reader: { push(text: string): ToldPart[]; end(): ToldPart[] } | undefined;
  readonly callIds: string;
  readonly isParallel: boolean;
}

/** The answers of `POST /v1/chat/completions`. */
export function chatFormat(
  head: AnswerHead,
  { hasLogprobs, reader, callIds, isParallel }: ChatFormatOptions,
): AnswerFormat {
  const chunk = (delta: object, ending: object = GOES_ON) =>
    answerObject(head, 'chat.completion.chunk', [{ index: 0, delta, logprobs: null, ...ending }]);
  const logprobsOf = (tokens: readonly ChosenToken[]): object | null =>
    hasLogprobs ? { content: tokens.map(chatToken), refusal: null } : null;
  let count = 0;
  /** Tokens of text that is held back. */
  let waiting: readonly ChosenToken[] = [];
  const partsOf = (text: string): readonly ToldPart[] => reader?.push(text) ?? [{ kind: 'content', text }];
  const message = (parts: readonly ToldPart[]) => {
    const texts = (kind: 'content' | 'reasoning'): string =>
      parts.map((part) => (part.kind === kind ? part.text : '')).join('');
    const calls = parts.flatMap((part): object[] => {
      if (part.kind === 'arguments') return [{ index: count - 1, function: { arguments: part.text } }];
      if (part.kind !== 'call' || (count > 0 && !isParallel)) return [];
      const index = count++;
      return [{ index, id: `${callIds}_${index}`, type: 'function', function: part.call }];
    });
    return { content: texts('content'), reasoning: texts('reasoning'), calls };
  };
  const deltaOf = (parts: readonly ToldPart[]): object => {
    const { content, reasoning, calls } = message(parts);
    return {
      ...(reasoning !== '' && { reasoning_content: reasoning }),
      ...(content !== '' && { content }),
      ...(calls.length > 0 && { tool_calls: calls }),
    };
  };
  const ending = (result: GenerationResult): object =>
    count > 0 && result.finishReason === 'stop' && result.stopString === undefined
      ? { finish_reason: 'tool_calls' }
      : endingOf(result);
  return {
    whole: (text, result, tokens) => {
      const { content, reasoning, calls } = message(joined([...partsOf(text), ...(reader?.end() ?? [])]));
      const said = {
        role: 'assistant',
        content: content === '' && calls.length > 0 ? null : content,
        ...(reasoning !== '' && { reasoning_content: reasoning }),
        ...(calls.length > 0 && { tool_calls: calls.map((call) => ({ ...call, index: undefined })) }),
      };
      const choice = { index: 0, message: said, ...ending(result), logprobs: logprobsOf(tokens) };
      return answerObject(head, 'chat.completion', [choice]);
    },
    opening: () => [chunk({ role: 'assistant', content: '' })],
    piece: (text, tokens) => {
      const parts = partsOf(text);
      waiting = [...waiting, ...tokens];
      if (parts.length === 0) return undefined;
      const told = waiting;
      waiting = [];
      return chunk(deltaOf(parts), { ...GOES_ON, logprobs: logprobsOf(told) });
    },
    closing: (result) => {
      const delta = deltaOf(reader?.end() ?? []);
      return {
        ...chunk(delta, { ...ending(result), logprobs: waiting.length > 0 ? logprobsOf(waiting) : null }),
        timings: result.timings,
      };
    },
    empty: () => answerObject(head, 'chat.completion.chunk', []),
  };
}

/** The same parts with calls that have all their arguments. */
function joined(parts: readonly ToldPart[]): readonly ToldPart[] {
  const whole: ToldPart[] = [];
  for (const part of parts) {
    const last = whole.at(-1);
    if (part.kind === 'arguments' && last?.kind === 'call') {
      whole[whole.length - 1] = { ...last, call: { ...last.call, arguments: last.call.arguments + part.text } };
    } else {
      whole.push(part);
    }
  }
  return whole;
}

/** A token as chats report it. One that holds a part of a character only is known by its bytes. */
function chatToken(token: ChosenToken): object {
  return { ...chatChance(token), top_logprobs: token.top.map(chatChance) };
}

function chatChance({ bytes, logprob }: TokenChance): object {
  return { token: Buffer.from(bytes).toString('utf8'), logprob, bytes: [...bytes] };
}

/**
 * The answers of `POST /v1/completions`.
 *
 * @param echo The text of the prompt, where the request asks to repeat it.
 */
export function completionFormat(head: AnswerHead, hasLogprobs: boolean, echo = ''): AnswerFormat {
  const object = (choices: readonly object[]) => answerObject(head, 'text_completion', choices);
  let offset = 0;
  const logprobsOf = (tokens: readonly ChosenToken[]): object | null => {
    if (!hasLogprobs) return null;
    const texts = tokens.map(({ bytes }) => Buffer.from(bytes).toString('utf8'));
    return {
      tokens: texts,
      token_logprobs: tokens.map(({ logprob }) => logprob),
      top_logprobs: tokens.map(({ top }) =>
        Object.fromEntries(top.map(({ bytes, logprob }) => [Buffer.from(bytes).toString('utf8'), logprob])),
      ),
      text_offset: texts.map((text) => {
        const start = offset;
        offset += text.length;
        return start;
      }),
    };
  };
  const choice = (text: string, ending: object = GOES_ON): object => ({ index: 0, text, logprobs: null, ...ending });
  return {
    whole: (text, result, tokens) =>
      object([choice(echo + text, { ...endingOf(result), logprobs: logprobsOf(tokens) })]),
    opening: () => (echo === '' ? [] : [object([choice(echo)])]),
    piece: (text, tokens) => object([choice(text, { ...GOES_ON, logprobs: logprobsOf(tokens) })]),
    closing: (result) => ({ ...object([choice('', endingOf(result))]), timings: result.timings }),
    empty: () => object([]),
  };
}
