import type { TokensByTier } from '../cache/tokens-by-tier.js';
import type { GenerationResult, GenerationTimings } from '../loop/generation.js';

/** OpenAI's usage object; the cached count stands in it always, also when it is 0. */
export interface Usage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly total_tokens: number;
  readonly prompt_tokens_details: {
    readonly cached_tokens: number;
    /** The same by where the tokens were found. */
    readonly cached_tokens_by_tier: TokensByTier;
  };
}

/** Usage and timings, as they stand at the end of every answer. */
export function accounts(result: GenerationResult): { usage: Usage; timings: GenerationTimings } {
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
