/** What a request that the engine was alone with says of its cache. Tokens as Warmpath counts them. */
export interface TimedPrompt {
  /** Tokens at its start that completed requests had brought into the cache, as it was believed. */
  readonly believedTokens: number;
  readonly promptTokens: number;
  /** Milliseconds to the first token. */
  readonly ttftMs: number;
}

/** Cold requests remembered, of which the median counts. */
const REMEMBERED = 15;
/** Fewer cold requests than this say nothing. */
const FEWEST_COLD = 5;
/** A request that is believed to find less than this share of its prompt is cold. */
const COLD_SHARE = 0.05;
/** With a smaller share than this, what is saved is lost in the noise (CacheWeaver's implementation has .3, too). */
const TELLING_SHARE = 0.3;
/** A miss: less of the time was saved than this part of what should have been. */
const MISSED_PART = 0.4;

/**
 * Reads off the time to the first token whether an engine that reports no cached tokens still held what it was believed
 * to hold (CacheWeaver §3.4): a request that should have found much and took as long as a cold one of its length did
 * not find it. Time per token of cold requests is the measure, so that prompts of different lengths compare.
 *
 * One slow answer is no proof: only the second miss in a row counts. What follows from it is the caller's: the prompt
 * itself was computed and is resident now; what was used before it is not. CacheWeaver's own implementation marks the
 * prompt's path as gone and takes it in again in the same step, so nothing ever changes.
 *
 * O(1), bounded.
 */
export class TtftFeedback {
  /** Milliseconds a token of the last cold requests, a ring. */
  readonly #cold: number[] = [];
  #next = 0;
  #missedBefore = false;

  /**
   * Tokens that the engine seems to have reused of the prompt: those believed, or after a second miss in a row only
   * what the time tells; `undefined` where it tells nothing. Call for one request after another.
   */
  cachedTokens({ believedTokens, promptTokens, ttftMs }: TimedPrompt): number | undefined {
    if (!isPositive(promptTokens) || !isPositive(ttftMs)) return undefined;
    const share = Math.min(1, believedTokens / promptTokens);
    if (share < COLD_SHARE) {
      this.#cold[this.#next] = ttftMs / promptTokens;
      this.#next = (this.#next + 1) % REMEMBERED;
      return undefined;
    }
    if (this.#cold.length < FEWEST_COLD || share < TELLING_SHARE) return undefined;
    const saved = 1 - ttftMs / (median(this.#cold) * promptTokens);
    const isMissed = saved < MISSED_PART * share;
    const isSecond = isMissed && this.#missedBefore;
    this.#missedBefore = isMissed;
    if (!isMissed) return believedTokens;
    return isSecond ? Math.max(0, saved * promptTokens) : undefined;
  }

  clear(): void {
    this.#cold.length = 0;
    this.#next = 0;
    this.#missedBefore = false;
  }
}

function isPositive(value: number): boolean {
  return value > 0 && Number.isFinite(value);
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[values.length >> 1]!;
}
