import { grown } from './eviction-queue.js';

/** Numbers of a ring entry. */
const USE_FIELDS = 3;

export interface UseStatisticsOptions {
  /** Requests that count as frequency. */
  readonly window: number;
  /** Called for a node whose last use left the window, children before parents. */
  readonly onExpired: (node: number) => void;
}

/**
 * How often nodes were used in the window, and what computing them cost. O(nodes of a request) amortised; 40 bytes a
 * handle, 12 a use.
 */
export class UseStatistics {
  readonly #window: number;
  readonly #onExpired: (node: number) => void;
  #frequencies = new Int32Array(0);
  /** How often a handle was reused. Uses by an earlier bearer are not counted. */
  #bearers = new Int32Array(0);
  #costs = new Float64Array(0);
  #misses = new Float64Array(0);
  /** Expected cost a token of nodes that were not computed yet. */
  #expectedCosts = new Float64Array(0);
  /** Ring of the uses in the window: node, bearer, number of uses. */
  #uses = new Int32Array(USE_FIELDS * 128);
  #first = 0;
  #used = 0;
  /** Ring of the number of entries in `#uses` of each request. */
  readonly #perRequest: Int32Array;
  #requests = 0;

  constructor({ window, onExpired }: UseStatisticsOptions) {
    this.#window = window;
    this.#onExpired = onExpired;
    this.#perRequest = new Int32Array(window);
  }

  /** Requests recorded so far. */
  get requests(): number {
    return this.#requests;
  }

  /** Uses of a node in the window. */
  frequency(node: number): number {
    return this.#frequencies[node] ?? 0;
  }

  /** Mean cost a token of the requests that computed a node; the expected cost before the first. */
  costPerToken(node: number): number {
    const misses = this.#misses[node] ?? 0;
    return misses === 0 ? (this.#expectedCosts[node] ?? 0) : this.#costs[node]! / misses;
  }

  /** Sets the expected cost a token of a node. */
  expectCost(node: number, costPerToken: number): void {
    this.#ensure(node);
    this.#expectedCosts[node] = costPerToken;
  }

  /** Copies uses and cost of another node to a node without uses. They leave the window as uses of the last request. */
  inherit(node: number, from: number): void {
    this.#ensure(Math.max(node, from));
    this.#count(node, this.frequency(from));
    this.#costs[node] = this.#costs[from]!;
    this.#misses[node] = this.#misses[from]!;
  }

  /** Sets the uses of a node before this process started. They count as in {@link inherit}. */
  restoreUses(node: number, uses: number): void {
    this.#ensure(node);
    this.#count(node, Math.min(uses, this.#window));
  }

  /** Counts a request that used these nodes, parents before children. The oldest request leaves the window. */
  record(nodes: readonly number[]): void {
    const slot = this.#requests % this.#window;
    const leaving = this.#perRequest[slot]!;
    this.#perRequest[slot] = nodes.length;
    this.#requests++;
    for (const node of nodes) {
      this.#ensure(node);
      this.#frequencies[node]!++;
      this.#push(node, 1);
    }
    if (leaving > 0) this.#expire(leaving);
  }

  /** A request had to compute the node, at this mean cost a token. */
  recordMiss(node: number, costPerToken: number): void {
    this.#ensure(node);
    this.#costs[node]! += costPerToken;
    this.#misses[node]!++;
  }

  /** Forgets a node. Its handle may be reused. */
  reset(node: number): void {
    if (node >= this.#bearers.length) return;
    this.#bearers[node]!++;
    this.#frequencies[node] = 0;
    this.#costs[node] = 0;
    this.#misses[node] = 0;
    this.#expectedCosts[node] = 0;
  }

  #count(node: number, uses: number): void {
    if (uses === 0) return;
    // Uses before the first request count as a request.
    if (this.#requests === 0) this.#requests = 1;
    this.#frequencies[node]! += uses;
    this.#perRequest[(this.#requests - 1) % this.#window]!++;
    this.#push(node, uses);
  }

  #expire(count: number): void {
    const expired: number[] = [];
    for (let use = 0; use < count; use++) {
      const node = this.#uses[this.#first]!;
      const bearer = this.#uses[this.#first + 1]!;
      const uses = this.#uses[this.#first + 2]!;
      this.#first = (this.#first + USE_FIELDS) % this.#uses.length;
      this.#used -= USE_FIELDS;
      if (this.#bearers[node] !== bearer) continue;
      this.#frequencies[node]! -= uses;
      if (this.#frequencies[node] === 0) expired.push(node);
    }
    for (let last = expired.length - 1; last >= 0; last--) this.#onExpired(expired[last]!);
  }

  #push(node: number, uses: number): void {
    if (this.#used === this.#uses.length) this.#growRing();
    const place = (this.#first + this.#used) % this.#uses.length;
    this.#uses[place] = node;
    this.#uses[place + 1] = this.#bearers[node]!;
    this.#uses[place + 2] = uses;
    this.#used += USE_FIELDS;
  }

  #growRing(): void {
    const larger = new Int32Array(this.#uses.length * 2);
    larger.set(this.#uses.subarray(this.#first));
    larger.set(this.#uses.subarray(0, this.#first), this.#uses.length - this.#first);
    this.#uses = larger;
    this.#first = 0;
  }

  #ensure(node: number): void {
    if (node < this.#bearers.length) return;
    this.#frequencies = grown(this.#frequencies, node + 1);
    this.#bearers = grown(this.#bearers, node + 1);
    this.#costs = grown(this.#costs, node + 1);
    this.#misses = grown(this.#misses, node + 1);
    this.#expectedCosts = grown(this.#expectedCosts, node + 1);
  }
}
