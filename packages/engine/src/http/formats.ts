import type { AnswerPart, AnswerReader } from '../chat/answer-reader.js';
import type { ChosenToken, GenerationResult, TokenChance } from '../loop/generation.js';
import { type PartialCall, readCall } from './answer-form.js';
import type { AnswerFormat } from './exchange.js';

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

/** What a format says of the tokens: nothing, unless the request asked for it. */
export interface FormatOptions {
  readonly hasLogprobs: boolean;
}

/** How an answer of a chat is told. */
interface ChatFormatOptions extends FormatOptions {
  /** What tells reasoning and calls from the content; all of the answer is content where it is left out. */
  readonly reader: AnswerReader | undefined;
  /** What the ids of calls begin with. */
  readonly callIds: string;
  /** Whether calls behind the first are told. */
  readonly isParallel: boolean;
}

/** The answers of `POST /v1/chat/completions`. */
export function chatFormat(
  head: AnswerHead,
  { hasLogprobs, reader, callIds, isParallel }: ChatFormatOptions,
): AnswerFormat {
  const { chunk, whole, usage } = chatObjects(head);
  const logprobsOf = (tokens: readonly ChosenToken[]): object | null =>
    hasLogprobs ? { content: tokens.map(chatToken), refusal: null } : null;
  let count = 0;
  /** Tokens of text that is held back. */
  let waiting: readonly ChosenToken[] = [];
  const partsOf = (text: string): readonly AnswerPart[] => reader?.push(text) ?? [{ kind: 'content', text }];
  const message = (parts: readonly AnswerPart[]) => {
    const texts = (kind: 'content' | 'reasoning'): string =>
      parts.map((part) => (part.kind === kind ? part.text : '')).join('');
    const calls = parts.flatMap((part) => (part.kind === 'call' ? [part.call] : []));
    const told = isParallel ? calls : calls.slice(0, Math.max(0, 1 - count));
    return {
      content: texts('content'),
      reasoning: texts('reasoning'),
      calls: told.map((call) => {
        const index = count++;
        return { index, id: `${callIds}_${index}`, type: 'function', function: call };
      }),
    };
  };
  const deltaOf = (parts: readonly AnswerPart[]): object => {
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
      const { content, reasoning, calls } = message([...partsOf(text), ...(reader?.end() ?? [])]);
      const said = {
        role: 'assistant',
        content: content === '' && calls.length > 0 ? null : content,
        ...(reasoning !== '' && { reasoning_content: reasoning }),
        ...(calls.length > 0 && { tool_calls: calls.map(({ index: _, ...call }) => call) }),
      };
      return whole(said, result, { ...ending(result), logprobs: logprobsOf(tokens) });
    },
    opening: () => [chunk({ role: 'assistant', content: '' })],
    piece: (text, tokens) => {
      const parts = partsOf(text);
      waiting = [...waiting, ...tokens];
      if (parts.length === 0) {
        return undefined;
      }
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
    usage,
  };
}

/**
 * The same for an answer that calls a function: what it says as text is sent as the call.
 *
 * @param id The id of the call.
 */
export function toolCallFormat(head: AnswerHead, id: string): AnswerFormat {
  const { chunk, whole, usage } = chatObjects(head);
  const isComplete = ({ finishReason, stopString }: GenerationResult): boolean =>
    finishReason === 'stop' && stopString === undefined;
  const ending = (result: GenerationResult): object =>
    isComplete(result) ? { finish_reason: 'tool_calls' } : endingOf(result);
  let text = '';
  let sent: PartialCall | undefined;
  const delta = (call: PartialCall | undefined): object | undefined => {
    const before = sent;
    if (call === undefined || call.arguments === before?.arguments) {
      return undefined;
    }
    sent = call;
    const next = call.arguments.slice(before?.arguments.length ?? 0);
    return before === undefined
      ? { tool_calls: [{ index: 0, id, type: 'function', function: { name: call.name, arguments: next } }] }
      : { tool_calls: [{ index: 0, function: { arguments: next } }] };
  };
  return {
    whole: (content, result) => {
      const call = isComplete(result) ? readCall(content, 'whole') : readCall(content, 'cut');
      const calls = call === undefined ? [] : [{ id, type: 'function', function: call }];
      return whole({ role: 'assistant', content: null, tool_calls: calls }, result, ending(result));
    },
    opening: () => [chunk({ role: 'assistant', content: null })],
    piece: (piece) => {
      text += piece;
      const next = delta(readCall(text, 'open'));
      return next === undefined ? undefined : chunk(next);
    },
    closing: (result) => {
      const last = delta(readCall(text, isComplete(result) ? 'whole' : 'cut'));
      return { ...chunk(last ?? {}, ending(result)), timings: result.timings };
    },
    usage,
  };
}

/** The objects of a chat's answer, whole and in pieces. */
function chatObjects(head: AnswerHead) {
  const object = (name: string, choices: readonly object[]): object => ({
    id: head.id,
    object: name,
    created: head.created,
    model: head.model,
    choices,
  });
  return {
    chunk: (delta: object, ending: object = GOES_ON): object =>
      object('chat.completion.chunk', [{ index: 0, delta, logprobs: null, ...ending }]),
    whole: (message: object, result: GenerationResult, ending: object): object => ({
      ...object('chat.completion', [{ index: 0, message, logprobs: null, ...ending }]),
      ...accounts(result),
    }),
    usage: (result: GenerationResult): object => ({ ...object('chat.completion.chunk', []), ...accounts(result) }),
  };
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
 * @param echo What each answer begins with: the text of its prompt, where the request wants that.
 */
export function completionFormat(head: AnswerHead, { hasLogprobs }: FormatOptions, echo = ''): AnswerFormat {
  const object = (choices: readonly object[]): object => ({
    id: head.id,
    object: 'text_completion',
    created: head.created,
    model: head.model,
    choices,
  });
  let offset = 0;
  const logprobsOf = (tokens: readonly ChosenToken[]): object | null => {
    if (!hasLogprobs) {
      return null;
    }
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
    whole: (text, result, tokens) => ({
      ...object([choice(echo + text, { ...endingOf(result), logprobs: logprobsOf(tokens) })]),
      ...accounts(result),
    }),
    opening: () => (echo === '' ? [] : [object([choice(echo)])]),
    piece: (text, tokens) => object([choice(text, { ...GOES_ON, logprobs: logprobsOf(tokens) })]),
    closing: (result) => ({ ...object([choice('', endingOf(result))]), timings: result.timings }),
    usage: (result) => ({ ...object([]), ...accounts(result) }),
  };
}

/** Usage and timings, as they stand at the end of every answer. The cached count is there always, also when it is 0. */
function accounts(result: GenerationResult): object {
  return {
    usage: {
      prompt_tokens: result.promptTokens,
      completion_tokens: result.completionTokens,
      total_tokens: result.promptTokens + result.completionTokens,
      prompt_tokens_details: { cached_tokens: result.cachedTokens, cached_tokens_by_tier: result.cachedByTier },
    },
    timings: result.timings,
  };
}
