/** Least part of the estimate that one miss leaves: a single miss may mean a restart. */
const CUT_FACTOR = 0.8;

/** Growth a new token, times the requests in a row without a miss. */
const GROWTH_PER_REQUEST = 0.003;

/**
 * Estimates how many tokens of recently used paths an engine holds, for engines that evict what is least recent. Cut
 * when an expected document was missing, grown while nothing is. One miss cuts it by a fifth at most, so that a
 * restarted engine is not believed to be small for long.
 */
export class CapacityEstimate {
  #tokens = Number.POSITIVE_INFINITY;
  /** Requests since the last miss. */
  #calm = 0;

  /** Infinite until something was missing. */
  get tokens(): number {
    return this.#tokens;
  }

  /** A path was gone; of `believed` tokens, `left` were used after it. */
  missed(believed: number, left: number): void {
    this.#calm = 0;
    this.#tokens = Math.max(left, CUT_FACTOR * (this.#tokens === Number.POSITIVE_INFINITY ? believed : this.#tokens));
  }

  /** The engine held what had been forgotten here. */
  exceeded(): void {
    this.#tokens /= CUT_FACTOR;
  }

  /** Nothing was missing that should have been there, and the engine computed `newTokens`. */
  served(newTokens: number): void {
    this.#calm++;
    this.#tokens += GROWTH_PER_REQUEST * this.#calm * newTokens;
  }

  clear(): void {
    this.#tokens = Number.POSITIVE_INFINITY;
    this.#calm = 0;
  }
}
