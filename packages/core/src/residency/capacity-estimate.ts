/**
 * What one miss leaves of the estimate at least: a single one may mean a restart, and says nothing of capacity then.
 */
const CUT = 0.8;

/** Growth a new token, for every request in a row without a miss: slow beside misses, fast where none comes. */
const GROWTH = 0.003;

/**
 * How many tokens of recently used paths the engine seems to hold, learned from what it reports as cached: cut when
 * something was missing that should have been there, grown while nothing is. In tokens as Warmpath counts them, so that
 * wrong counts and whatever else takes room in the engine (questions, answers, other clients) are in the estimate.
 * Needs no knowledge of the engine; it is meant for engines that evict what is least recent.
 *
 * One miss takes a fifth at the most, so that an engine that was restarted is not believed to be small for long; after
 * 115 requests of 800 new tokens without a miss it has grown by 16,000. O(1).
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
    this.#tokens = Math.max(left, CUT * (this.#tokens === Number.POSITIVE_INFINITY ? believed : this.#tokens));
  }

  /** The engine held what had been forgotten here. */
  exceeded(): void {
    this.#tokens /= CUT;
  }

  /** Nothing was missing that should have been there, and the engine computed `newTokens`. */
  served(newTokens: number): void {
    this.#calm++;
    this.#tokens += GROWTH * this.#calm * newTokens;
  }

  clear(): void {
    this.#tokens = Number.POSITIVE_INFINITY;
    this.#calm = 0;
  }
}
