import { WarmpathError } from '../errors.js';
import { EvictionQueue, grown, type NodeOwner } from './eviction-queue.js';
import type { ReplacementPolicy, Tier } from './policy.js';
import { UseStatistics } from './use-statistics.js';

/** Requests whose uses count for frequencies, unless said otherwise. */
const DEFAULT_USE_WINDOW = 4_096;

export interface ReplacementOptions {
  readonly policy: ReplacementPolicy;
  readonly tiers: readonly Tier[];
  /** Requests whose uses count for frequencies. Default 4,096. */
  readonly window?: number;
  /**
   * Called for every node that lies in no tier and of which nothing is known any more: its handle may be given to
   * another.
   */
  readonly onForgotten: (node: number) => void;
}

/** What a request found when it used its nodes. */
export interface PathUse {
  /** The nodes that the request used, parents before children. */
  readonly nodes: readonly number[];
  /** Place in `nodes` from which they had to be computed; the number of nodes if none. */
  readonly computedFrom: number;
  /**
   * Milliseconds a token of what had to be computed: prefill time over all uncached tokens, the question's too
   * (RAGCache Eq. 4).
   */
  readonly costPerToken: number;
}

/**
 * Decides which node of a KV tree is evicted first, in each tier (RAGCache §5.1): one policy, shared statistics, and
 * one {@link EvictionQueue} a tier. The tree says what enters and leaves a tier, and what may be evicted from it.
 *
 * Nodes are handles: small whole numbers that the tree chooses. Its clock is the number of requests. O(log candidates)
 * an operation.
 */
export class Replacement {
  readonly #policy: ReplacementPolicy;
  readonly #statistics: UseStatistics;
  readonly #queues: ReadonlyMap<Tier, EvictionQueue>;
  readonly #onForgotten: (node: number) => void;
  /** Tiers that each node lies in. */
  readonly #residencies: Tier[][] = [];
  readonly #owners: (NodeOwner | undefined)[] = [];
  #sizes = new Float64Array(0);
  readonly #common: NodeOwner = { canWait: false, usedAt: 0 };

  /** Error: `WARMPATH_INVALID_REQUEST` for a window that is no whole number above 0. */
  constructor({ policy, tiers, window = DEFAULT_USE_WINDOW, onForgotten }: ReplacementOptions) {
    if (!Number.isSafeInteger(window) || window < 1) {
      const detail = 'A whole number above 0 was expected.';
      throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'window', detail });
    }
    this.#policy = policy;
    this.#onForgotten = onForgotten;
    this.#queues = new Map(tiers.map((tier) => [tier, new EvictionQueue()]));
    this.#statistics = new UseStatistics({ window, onExpired: (node) => this.#forgetIfAbsent(node) });
  }

  /** Counts a request's uses and gives its nodes new priorities in every tier that they lie in. */
  use({ nodes, computedFrom, costPerToken }: PathUse): void {
    this.#statistics.record(nodes);
    for (const [place, node] of nodes.entries()) {
      if (place >= computedFrom) this.#statistics.recordMiss(node, costPerToken);
      for (const tier of this.#tiersOf(node)) this.#prioritise(node, tier);
    }
    for (const owner of new Set(nodes.map((node) => this.#owners[node] ?? this.#common))) {
      owner.usedAt = this.#statistics.requests;
      for (const queue of this.#queues.values()) queue.use(owner);
    }
  }

  /** A new owner for {@link assign}. It counts as used now. */
  newOwner(canWait: boolean): NodeOwner {
    return { canWait, usedAt: this.#statistics.requests };
  }

  /**
   * Sets the owner of a node and its size, in one unit for all nodes. Without it, a node belongs to a common owner and
   * has size 1.
   */
  assign(node: number, owner: NodeOwner, size: number): void {
    this.#owners[node] = owner;
    if (node >= this.#sizes.length) this.#sizes = grown(this.#sizes, node + 1);
    this.#sizes[node] = size;
    for (const tier of this.#tiersOf(node)) this.#queue(tier).hold(node, owner, size);
  }

  /** What computing a node will cost a token (T(start, size) / size), which counts until a request had to. */
  expectCost(node: number, costPerToken: number): void {
    this.#statistics.expectCost(node, costPerToken);
    for (const tier of this.#tiersOf(node)) this.#prioritise(node, tier);
  }

  /** A node was a part of another until now: unless it is known by its own uses, it has the other's. */
  inherit(node: number, from: number): void {
    if (this.#statistics.frequency(node) === 0) this.#statistics.inherit(node, from);
    for (const tier of this.#tiersOf(node)) this.#prioritise(node, tier);
  }

  /** A node was used so often before this process began. */
  restoreUses(node: number, uses: number): void {
    this.#statistics.restoreUses(node, uses);
    for (const tier of this.#tiersOf(node)) this.#prioritise(node, tier);
  }

  /** Uses of a node in the window. */
  uses(node: number): number {
    return this.#statistics.frequency(node);
  }

  /** A node lies in a tier from now on; it cannot be evicted until it is offered. */
  enter(node: number, tier: Tier): void {
    const tiers = this.#tiersOf(node);
    if (!tiers.includes(tier)) tiers.push(tier);
    this.#queue(tier).hold(node, this.#owners[node] ?? this.#common, this.#sizes[node] || 1);
    this.#prioritise(node, tier);
  }

  /**
   * A node lies in a tier no more. What is known of it is forgotten with the last tier, unless the policy remembers.
   */
  leave(node: number, tier: Tier): void {
    this.#queue(tier).release(node);
    const tiers = this.#tiersOf(node);
    const place = tiers.indexOf(tier);
    if (place >= 0) tiers.splice(place, 1);
    if (!this.#policy.remembersEvicted || this.#statistics.frequency(node) === 0) this.#forgetIfAbsent(node);
  }

  /** A node that lies in a tier may be evicted from it: no child there, no running request. */
  allowEviction(node: number, tier: Tier): void {
    this.#queue(tier).allowEviction(node);
  }

  /** A node may not be evicted from a tier for now. */
  forbidEviction(node: number, tier: Tier): void {
    this.#queue(tier).forbidEviction(node);
  }

  /**
   * Chooses what to evict from a tier, and moves its clock; undefined if nothing may be. The node still lies there
   * until the tree says `leave`, so that it can enter another tier first.
   */
  evict(tier: Tier): number | undefined {
    return this.#queue(tier).evict();
  }

  /** Nodes that may be evicted from a tier. */
  candidates(tier: Tier): number {
    return this.#queue(tier).size;
  }

  #prioritise(node: number, tier: Tier): void {
    const queue = this.#queue(tier);
    const use = {
      request: this.#statistics.requests,
      frequency: this.#statistics.frequency(node),
      recentFrequency: this.#statistics.recentFrequency(node),
      costPerToken: this.#statistics.costPerToken(node),
    };
    queue.setPriority(node, this.#policy.priority(use, queue.clockOf(node)));
  }

  #forgetIfAbsent(node: number): void {
    if (this.#tiersOf(node).length > 0) return;
    this.#statistics.reset(node);
    this.#owners[node] = undefined;
    this.#onForgotten(node);
  }

  #tiersOf(node: number): Tier[] {
    let tiers = this.#residencies[node];
    if (tiers === undefined) {
      tiers = [];
      this.#residencies[node] = tiers;
    }
    return tiers;
  }

  #queue(tier: Tier): EvictionQueue {
    const queue = this.#queues.get(tier);
    if (queue === undefined) {
      throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'tier', detail: `There is no tier ${tier} here.` });
    }
    return queue;
  }
}
