/** Ranks whose joint survival is learned; a document ranked lower takes no part in it. */
export const SURVIVAL_RANKS = 8;

/** What an older observation still counts after one more request. */
const FADE = 0.995;

/**
 * Learns which retrieval ranks of a request come back together in a later one: of all pairs of requests that shared a
 * document, the share in which exactly this set of ranks of the earlier request was kept. Recent pairs count more.
 *
 * One flat table of 256 shares, whatever is observed.
 */
export class RankSurvival {
  readonly #seen = new Float64Array(1 << SURVIVAL_RANKS);
  #pairs = 0;

  /** Lets what was learned count a little less; once a request. O(256). */
  fade(): void {
    if (this.#pairs === 0) return;
    const seen = this.#seen;
    for (let ranks = 0; ranks < seen.length; ranks++) seen[ranks]! *= FADE;
    this.#pairs *= FADE;
  }

  /** A later request kept exactly `ranks` (a bit mask, not 0) of an earlier one. O(1). */
  learn(ranks: number): void {
    this.#seen[ranks]! += 1;
    this.#pairs++;
  }

  /** Share of the pairs in which exactly `ranks` were kept; 0 before anything was learned. O(1). */
  share(ranks: number): number {
    return this.#pairs === 0 ? 0 : this.#seen[ranks]! / this.#pairs;
  }

  /** Forgets everything. */
  clear(): void {
    this.#seen.fill(0);
    this.#pairs = 0;
  }
}
