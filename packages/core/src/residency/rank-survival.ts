/** Ranks whose joint survival is learned; a document ranked lower takes no part in it. */
export const SURVIVAL_RANKS = 8;

/** What an older observation still counts after one more request. */
const FADE = 0.995;

/**
 * Learns which retrieval ranks of a request come back together: how many of the requests that follow one (within the
 * horizon of whoever calls `learn`) keep exactly this set of its ranks. Lately observed requests count more.
 *
 * One flat table of 256 counts, whatever is observed.
 */
export class RankSurvival {
  readonly #seen = new Float64Array(1 << SURVIVAL_RANKS);
  #requests = 0;
  #pairs = 0;

  /** One more request is compared with those before it; older observations count a little less from now on. O(256). */
  beginRequest(): void {
    const seen = this.#seen;
    for (let ranks = 0; ranks < seen.length; ranks++) seen[ranks]! *= FADE;
    this.#pairs *= FADE;
    this.#requests = this.#requests * FADE + 1;
  }

  /** The request kept exactly `ranks` (a bit mask, not 0) of an earlier one. O(1). */
  learn(ranks: number): void {
    this.#seen[ranks]! += 1;
    this.#pairs++;
  }

  /** Requests within the horizon that keep exactly `ranks` of one, on average; 0 before anything was learned. O(1). */
  expected(ranks: number): number {
    return this.#requests === 0 ? 0 : this.#seen[ranks]! / this.#requests;
  }

  /** Requests within the horizon that keep any of the first ranks of one, on average. O(1). */
  get recurrence(): number {
    return this.#requests === 0 ? 0 : this.#pairs / this.#requests;
  }

  /** Forgets everything. */
  clear(): void {
    this.#seen.fill(0);
    this.#requests = 0;
    this.#pairs = 0;
  }
}
