import { randomInt } from 'node:crypto';
import { WarmpathError } from '@warmpath/core';
import type { SegmentedPrompt } from '../chat/segmented-prompt.js';
import type { GenerationRequest } from '../loop/generation.js';
import type { SamplingOptions } from '../loop/sampler.js';
import type { GenerationFields } from './schemas.js';

/** Random seeds are below this. */
const SEEDS = 2 ** 47;

/** The tokens that llama-server's `repeat_penalty` looks back at, where `repeat_last_n` does not say. */
const REPEAT_LAST_N = 64;

export interface GenerationLimits {
  readonly contextTokens: number;
  /** Most tokens of an answer when the request names no limit. */
  readonly defaultMaxTokens: number;
}

/** The grammar of an answer, and what it reports of its tokens. */
type AnswerWishes = Pick<GenerationRequest, 'grammar' | 'shownTokens'> & { readonly topLogprobs?: number | undefined };

/**
 * Turns the fields of an OpenAI request into what the loop computes.
 *
 * A `max_tokens` of 0 computes the prompt for the cache alone. -1 allows the rest of the context; without a limit, the
 * engine's default applies.
 *
 * @throws WARMPATH_EMPTY_PROMPT, WARMPATH_CONTEXT_TOO_LONG.
 */
export function toGenerationRequest(
  id: string,
  prompt: SegmentedPrompt,
  fields: GenerationFields & { readonly max_completion_tokens?: number | null | undefined },
  limits: GenerationLimits,
  { grammar, topLogprobs, shownTokens }: AnswerWishes,
): GenerationRequest {
  if (prompt.tokens.length === 0) throw new WarmpathError('WARMPATH_EMPTY_PROMPT');
  const room = limits.contextTokens - prompt.tokens.length;
  const limit = fields.max_completion_tokens ?? fields.max_tokens ?? fields.n_predict ?? undefined;
  const asked = limit === -1 ? Math.max(room, 1) : limit;
  if (room < Math.min(asked ?? 1, 1)) {
    throw new WarmpathError('WARMPATH_CONTEXT_TOO_LONG', {
      detail: `The maximum context length is ${limits.contextTokens} tokens, the answer included, but the prompt has ${prompt.tokens.length}.`,
    });
  }
  const stops = typeof fields.stop === 'string' ? [fields.stop] : (fields.stop ?? []);
  return {
    id,
    prompt: prompt.tokens,
    boundaries: prompt.boundaries,
    ...(typeof fields.cache_salt === 'string' && { salt: fields.cache_salt }),
    ...(typeof fields.priority === 'number' && { priority: fields.priority }),
    maxTokens: asked ?? Math.min(room, limits.defaultMaxTokens),
    isStreamed: fields.stream ?? false,
    sampling: samplingOf(fields),
    ...(grammar !== undefined && { grammar }),
    ...(shownTokens !== undefined && { shownTokens }),
    ...(topLogprobs !== undefined && { topLogprobs }),
    seed: (fields.seed ?? -1) < 0 ? randomInt(SEEDS) : fields.seed!,
    stops: stops.filter((stop) => stop !== ''),
    ignoreEndOfGeneration: fields.ignore_eos ?? false,
  };
}

function samplingOf(fields: GenerationFields): SamplingOptions {
  const { top_k: topK, logit_bias: biases, repeat_penalty: repeatPenalty } = fields;
  const repetitionPenalty = fields.repetition_penalty ?? repeatPenalty ?? 1;
  const window = fields.repeat_last_n ?? (typeof repeatPenalty === 'number' ? REPEAT_LAST_N : -1);
  return {
    temperature: fields.temperature ?? 1,
    topP: fields.top_p ?? 1,
    // -1 and 0 mean all, as in vLLM and llama-server.
    ...(typeof topK === 'number' && topK > 0 && { topK }),
    minP: fields.min_p ?? 0,
    ...(biases && { logitBias: new Map(Object.entries(biases).map(([token, bias]) => [Number(token), biasOf(bias)])) }),
    presencePenalty: fields.presence_penalty ?? 0,
    frequencyPenalty: fields.frequency_penalty ?? 0,
    repetitionPenalty,
    ...(window >= 0 && { repetitionWindow: window }),
  };
}

function biasOf(bias: number | false): number {
  return bias === false ? Number.NEGATIVE_INFINITY : bias;
}
