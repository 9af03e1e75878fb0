import { WarmpathError } from '@warmpath/core';
import type { PromptSlotsOptions } from '@warmpath/core/internal';
import type { PromptSpan } from '../workloads/workload.js';

/** A prompt as a prefix cache sees it. */
export interface CachedPrompt {
  /** From the start of the prompt; spans of no tokens count as absent. */
  readonly spans: readonly PromptSpan[];
  /**
   * What will be generated behind the prompt and stand in memory: all of the answer but its last token. It takes room
   * while the prompt runs, and a later prompt that repeats it can reuse it. Default nothing.
   */
  readonly answer?: PromptSpan;
  /**
   * Which of the spans are documents, from one place to before another: what some caches reuse at other places too.
   * Default none.
   */
  readonly documents?: readonly [from: number, to: number];
  /** Prompts of different salts share nothing (vLLM's `cache_salt`). */
  readonly salt?: string;
}

/** What a prompt would reuse. */
export interface CachedPromptReuse {
  readonly cachedTokens: number;
  /** Those of them that must be copied from host memory first. */
  readonly hostTokens: number;
}

/**
 * A prompt that an engine works on: what it uses is pinned, and room for all of it is set aside, until it is released.
 */
export interface Admission {
  /** Tokens at the start of the prompt that are reused; at least one token of the prompt is always computed. */
  readonly cachedTokens: number;
  /** Reused tokens that must be copied from host memory to the device first. Default 0. */
  readonly hostTokens?: number;
  /**
   * Tokens behind the reused prefix that need not be computed either, because documents are reused where they did not
   * stand before. Default 0.
   */
  readonly graftedTokens?: number;
  /**
   * The first `tokens` tokens of prompt and answer are computed, and other prompts can share them from now on, where
   * the engine lets running prompts share. Counts only upwards; fewer than before changes nothing.
   */
  enter(tokens: number): void;
  /**
   * Ends the prompt, done or not: what was entered stays until its room is needed, the rest is free at once. To be
   * called once.
   */
  release(): void;
}

/**
 * The prefix cache of one engine. A prompt is admitted (looked up, pinned, room made for it), entered as it is
 * computed, and released; several can be under way at a time. Deterministic; capacity is never exceeded.
 */
export interface PrefixCacheModel {
  readonly name: string;
  /**
   * The cache counts in multiples of this many tokens: a span is as good as held if fewer than this are missing at its
   * end.
   */
  readonly granularity: number;
  /** Whether what was used least recently goes first, so that one miss tells of others (see `ServedHistory`). */
  readonly evictsLeastRecent: boolean;
  /** Present where whole prompts are kept in slots: an order for this cache follows them. */
  readonly slots?: PromptSlotsOptions;
  /** Tokens of room in use, by prompts under way too. */
  readonly usedTokens: number;
  /** Tokens of room in all; infinite if unlimited. */
  readonly capacityTokens: number;
  /** Tokens at the start of the prompt that would be reused now; changes nothing. */
  cachedTokens(prompt: CachedPrompt): number;
  /** The same, with the part of it that lies in host memory; for caches that have some there. Changes nothing. */
  reuse?(prompt: CachedPrompt): CachedPromptReuse;
  /**
   * Starts a prompt. `undefined`: the prompts under way leave no room for it now; ask again after a release.
   * Error: `WARMPATH_CONTEXT_TOO_LONG` if it does not fit the empty cache either.
   */
  admit(prompt: CachedPrompt): Admission | undefined;
  /** Forgets everything; what is under way is no longer known. */
  clear(): void;
}

/**
 * Serves a prompt as an engine does that works on one at a time: admitted, computed and released at once. Returns how
 * many of its tokens were reused. Errors: `WARMPATH_CONTEXT_TOO_LONG`, also if prompts under way leave no room.
 */
export function serveAtOnce(cache: PrefixCacheModel, prompt: CachedPrompt): number {
  const admission = cache.admit(prompt);
  if (admission === undefined) {
    throw new WarmpathError('WARMPATH_CONTEXT_TOO_LONG', { detail: 'Prompts under way hold the room.' });
  }
  admission.enter(promptTokens(prompt) + (prompt.answer?.tokens ?? 0));
  admission.release();
  return admission.cachedTokens;
}

/** Tokens of a prompt, its answer left out. O(spans). */
export function promptTokens(prompt: CachedPrompt): number {
  let tokens = 0;
  for (const span of prompt.spans) tokens += span.tokens;
  return tokens;
}

/** The spans that take room: those of the prompt, and the answer. */
export function allSpans({ spans, answer }: CachedPrompt): readonly PromptSpan[] {
  return answer === undefined ? spans : [...spans, answer];
}
