import type { PromptSpan } from '../workloads/workload.js';

/** A prompt as a prefix cache sees it. */
export interface CachedPrompt {
  /** From the start of the prompt; spans of no tokens count as absent. */
  readonly spans: readonly PromptSpan[];
  /** Prompts of different salts share nothing (vLLM's `cache_salt`). */
  readonly salt?: string;
}

/**
 * The prefix cache of one engine. Requests are served one after another: each is looked up, prefilled, entered and
 * released before the next. Deterministic; capacity is never exceeded.
 */
export interface PrefixCacheModel {
  readonly name: string;
  /** The cache counts in multiples of this many tokens: a span is as good as held if fewer than this are missing at its end. */
  readonly granularity: number;
  /** Whether what was used least recently goes first, so that one miss tells of others (see `ServedHistory`). */
  readonly evictsLeastRecent: boolean;
  /** Tokens of room in use. */
  readonly usedTokens: number;
  /** Tokens of room in all; infinite if unlimited. */
  readonly capacityTokens: number;
  /** Tokens at the start of the prompt that would be reused now; changes nothing. */
  cachedTokens(prompt: CachedPrompt): number;
  /**
   * Serves a prompt and answers how many of its tokens were reused; at least one token is always computed.
   * Error: `WARMPATH_CONTEXT_TOO_LONG` if the prompt does not fit the cache as a whole.
   */
  serve(prompt: CachedPrompt): number;
  /** Forgets everything. */
  clear(): void;
}

/** Tokens of a prompt. O(spans). */
export function promptTokens(prompt: CachedPrompt): number {
  return prompt.spans.reduce((sum, span) => sum + span.tokens, 0);
}
