export interface UseStatisticsOptions {
  /** Requests that count as frequency. */
  readonly window: number;
  /** Called for a node whose last use left the window, children before parents. */
  readonly onExpired: (node: number) => void;
}

interface NodeStatistic {
  readonly node: number;
  /** Uses in the window. */
  frequency: number;
  /** Costs a token of the requests that computed it, and their number. */
  costs: number;
  misses: number;
  /** Expected cost a token before the first of these. */
  expectedCost: number;
}

/** Uses of a node that leave the window together. */
interface Use {
  readonly statistic: NodeStatistic;
  readonly count: number;
}

/** How often nodes were used in the window, and what computing them cost. O(nodes of a request). */
export class UseStatistics {
  readonly #window: number;
  readonly #onExpired: (node: number) => void;
  readonly #statistics = new Map<number, NodeStatistic>();
  /** A ring of the requests in the window. */
  readonly #uses: Use[][] = [];
  #requests = 0;

  constructor({ window, onExpired }: UseStatisticsOptions) {
    this.#window = window;
    this.#onExpired = onExpired;
  }

  /** Requests recorded so far. */
  get requests(): number {
    return this.#requests;
  }

  /** Uses of a node in the window. */
  frequency(node: number): number {
    return this.#statistics.get(node)?.frequency ?? 0;
  }

  /** Mean cost a token of the requests that computed a node; the expected cost before the first. */
  costPerToken(node: number): number {
    const { costs, misses, expectedCost } = this.#statistics.get(node) ?? NO_STATISTIC;
    return misses === 0 ? expectedCost : costs / misses;
  }

  /** Sets the expected cost a token of a node. */
  expectCost(node: number, costPerToken: number): void {
    this.#of(node).expectedCost = costPerToken;
  }

  /** Copies uses and cost of another node to a node without uses. They leave the window as uses of the last request. */
  inherit(node: number, from: number): void {
    const { frequency, costs, misses } = this.#of(from);
    const statistic = this.#of(node);
    this.#count(statistic, frequency);
    statistic.costs = costs;
    statistic.misses = misses;
  }

  /** Sets the uses of a node before this process started. They count as in {@link inherit}. */
  restoreUses(node: number, uses: number): void {
    this.#count(this.#of(node), Math.min(uses, this.#window));
  }

  /** Counts a request that used these nodes, parents before children. The oldest request leaves the window. */
  record(nodes: readonly number[]): void {
    const slot = this.#requests % this.#window;
    const leaving = this.#uses[slot] ?? [];
    this.#uses[slot] = nodes.map((node) => ({ statistic: this.#of(node), count: 1 }));
    for (const { statistic } of this.#uses[slot]) statistic.frequency++;
    this.#requests++;
    this.#expire(leaving);
  }

  /** A request had to compute the node, at this mean cost a token. */
  recordMiss(node: number, costPerToken: number): void {
    const statistic = this.#of(node);
    statistic.costs += costPerToken;
    statistic.misses++;
  }

  /** Forgets a node. Its handle may be reused. */
  reset(node: number): void {
    this.#statistics.delete(node);
  }

  #of(node: number): NodeStatistic {
    let statistic = this.#statistics.get(node);
    if (statistic === undefined) {
      statistic = { ...NO_STATISTIC, node };
      this.#statistics.set(node, statistic);
    }
    return statistic;
  }

  #count(statistic: NodeStatistic, count: number): void {
    if (count === 0) return;
    // Uses before the first request count as a request.
    if (this.#requests === 0) this.record([]);
    statistic.frequency += count;
    this.#uses[(this.#requests - 1) % this.#window]!.push({ statistic, count });
  }

  #expire(uses: readonly Use[]): void {
    const expired: number[] = [];
    for (const { statistic, count } of uses) {
      // A node that was forgotten meanwhile has no uses to take back, nor has the next one with its handle.
      if (this.#statistics.get(statistic.node) !== statistic) continue;
      statistic.frequency -= count;
      if (statistic.frequency === 0) expired.push(statistic.node);
    }
    for (const node of expired.reverse()) this.#onExpired(node);
  }
}

const NO_STATISTIC: NodeStatistic = { node: -1, frequency: 0, costs: 0, misses: 0, expectedCost: 0 };
