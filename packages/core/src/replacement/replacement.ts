import { WarmpathError } from '../errors.js';
import { EvictionQueue, type NodeOwner } from './eviction-queue.js';
import { UseStatistics } from './use-statistics.js';

/** The replacement policies of RAGCache. */
export const REPLACEMENT_POLICY_NAMES = ['pgdsf', 'gdsf', 'lru', 'lfu'] as const;

export type ReplacementPolicyName = (typeof REPLACEMENT_POLICY_NAMES)[number];

/** Where KV can be stored, fastest first. */
export type Tier = 'device' | 'host' | 'disk';

/** Statistics of a node at a request that uses it. */
interface NodeUse {
  /** Number of the request. */
  readonly request: number;
  /** Requests that used the node, this one included: in the window, or since it was stored (`remembersEvicted`). */
  readonly frequency: number;
  /** Mean milliseconds a token of the requests that had to compute the node (RAGCache Eq. 4); 0 before the first. */
  readonly costPerToken: number;
}

/**
 * Gives each node a priority: a pure function for any tree and any number of tiers. Of the nodes that may be evicted,
 * the one of lowest priority goes first.
 */
export interface ReplacementPolicy {
  readonly name: ReplacementPolicyName;
  /** Whether uses still count after an eviction, as long as the window covers them. */
  readonly remembersEvicted: boolean;
  /**
   * Priority of a node, computed when it is used or stored in a tier.
   *
   * @param clock of the tier: the highest priority that was evicted from it (RAGCache Eq. 3), so that old priorities
   * age
   */
  priority(use: NodeUse, clock: number): number;
}

/** Evicts the node used longest ago. */
const LRU: ReplacementPolicy = {
  name: 'lru',
  remembersEvicted: false,
  priority: ({ request }) => request,
};

/** Evicts the node used least often since it was stored; among equals, the one used longest ago. */
const LFU: ReplacementPolicy = {
  name: 'lfu',
  remembersEvicted: false,
  priority: ({ frequency }) => frequency,
};

/**
 * Greedy-Dual-Size-Frequency (Cherkasova 1998) with a cost proportional to the size, as RAGCache §7.4 compares it:
 * `clock + frequency`, since the node was stored.
 */
const GDSF: ReplacementPolicy = {
  name: 'gdsf',
  remembersEvicted: false,
  priority: ({ frequency }, clock) => clock + frequency,
};

/**
 * Prefix-aware Greedy-Dual-Size-Frequency (RAGCache §5.1, Eq. 2–4): `clock + frequency × cost / size`. Cost over size
 * is the mean time a token of the requests that missed the node. The frequency covers the window, whether or not the
 * node was stored.
 */
const PGDSF: ReplacementPolicy = {
  name: 'pgdsf',
  remembersEvicted: true,
  priority: ({ frequency, costPerToken }, clock) => clock + frequency * costPerToken,
};

const POLICIES: Readonly<Record<ReplacementPolicyName, ReplacementPolicy>> = {
  pgdsf: PGDSF,
  gdsf: GDSF,
  lru: LRU,
  lfu: LFU,
};

/** The replacement policy of a name. Policies have no state and may be shared. */
export function replacementPolicy(name: ReplacementPolicyName): ReplacementPolicy {
  return POLICIES[name];
}

/** What the tree says of a node. */
interface NodeState {
  readonly tiers: Tier[];
  owner: NodeOwner;
  size: number;
  tokens: number;
}

/** Default window. */
const DEFAULT_USE_WINDOW = 4_096;

export interface ReplacementOptions {
  readonly policy: ReplacementPolicy;
  readonly tiers: readonly Tier[];
  /** Requests whose uses count as frequency. Default 4,096. */
  readonly window?: number;
  /** Called for a node that is in no tier and has no statistics left. Its handle may be reused. */
  readonly onForgotten: (node: number) => void;
}

/** Nodes that a request used. */
export interface PathUse {
  /** Parents before children. */
  readonly nodes: readonly number[];
  /** Index in `nodes` of the first node that had to be computed; the number of nodes if none. */
  readonly computedFrom: number;
  /** Prefill milliseconds a token, over all tokens computed, the question included (RAGCache Eq. 4). */
  readonly costPerToken: number;
}

/**
 * Chooses which node of a KV tree is evicted first in each tier (RAGCache §5.1): one policy, shared statistics, and an
 * {@link EvictionQueue} for each tier. The tree reports what enters and leaves a tier, and what may be evicted.
 *
 * Nodes are handles: small whole numbers chosen by the tree. Its clock is the number of requests. O(log candidates) an
 * operation.
 */
export class Replacement {
  readonly #policy: ReplacementPolicy;
  readonly #statistics: UseStatistics;
  readonly #queues: ReadonlyMap<Tier, EvictionQueue>;
  readonly #onForgotten: (node: number) => void;
  readonly #nodes = new Map<number, NodeState>();
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

  /** Counts the uses of a request, and updates the priorities of its nodes in all tiers. */
  use({ nodes, computedFrom, costPerToken }: PathUse): void {
    this.#statistics.record(nodes);
    for (const [place, node] of nodes.entries()) {
      if (place >= computedFrom) this.#statistics.recordMiss(node, costPerToken);
      for (const tier of this.#stateOf(node).tiers) this.#prioritise(node, tier);
    }
    for (const owner of new Set(nodes.map((node) => this.#stateOf(node).owner))) {
      owner.usedAt = this.#statistics.requests;
      for (const queue of this.#queues.values()) queue.use(owner);
    }
  }

  /** Creates an owner for {@link assign}. It counts as used now. */
  newOwner(canWait: boolean): NodeOwner {
    return { canWait, usedAt: this.#statistics.requests };
  }

  /**
   * Sets the owner, size and tokens of a node. Default: a common owner, and size 1. All sizes have one unit. The larger
   * a node is for its tokens, the lower is its priority.
   */
  assign(node: number, owner: NodeOwner, size: number, tokens: number = size): void {
    const state = this.#stateOf(node);
    state.owner = owner;
    state.size = size;
    state.tokens = tokens;
    for (const tier of state.tiers) this.#queue(tier).hold(node, owner, size);
  }

  /** Sets the expected cost a token of a node (T(start, size) / size), used until a request has computed it. */
  expectCost(node: number, costPerToken: number): void {
    this.#statistics.expectCost(node, costPerToken);
    for (const tier of this.#stateOf(node).tiers) this.#prioritise(node, tier);
  }

  /** A node was split from another: it takes over the statistics of the other, unless it has its own. */
  inherit(node: number, from: number): void {
    if (this.#statistics.frequency(node) === 0) this.#statistics.inherit(node, from);
    for (const tier of this.#stateOf(node).tiers) this.#prioritise(node, tier);
  }

  /** Sets the uses of a node before this process started. */
  restoreUses(node: number, uses: number): void {
    this.#statistics.restoreUses(node, uses);
    for (const tier of this.#stateOf(node).tiers) this.#prioritise(node, tier);
  }

  /** Uses of a node in the window. */
  uses(node: number): number {
    return this.#statistics.frequency(node);
  }

  /** A node was stored in a tier. It cannot be evicted until `allowEviction`. */
  enter(node: number, tier: Tier): void {
    const { tiers, owner, size } = this.#stateOf(node);
    if (!tiers.includes(tier)) tiers.push(tier);
    this.#queue(tier).hold(node, owner, size);
    this.#prioritise(node, tier);
  }

  /**
   * A node was removed from a tier. With the last tier its statistics are forgotten, unless the policy remembers them.
   */
  leave(node: number, tier: Tier): void {
    this.#queue(tier).release(node);
    const { tiers } = this.#stateOf(node);
    const place = tiers.indexOf(tier);
    if (place >= 0) tiers.splice(place, 1);
    if (!this.#policy.remembersEvicted || this.#statistics.frequency(node) === 0) this.#forgetIfAbsent(node);
  }

  /** A node may be evicted from a tier: it has no child there, and no running request uses it. */
  allowEviction(node: number, tier: Tier): void {
    this.#queue(tier).allowEviction(node);
  }

  /** A node may not be evicted from a tier. */
  forbidEviction(node: number, tier: Tier): void {
    this.#queue(tier).forbidEviction(node);
  }

  /**
   * Chooses the node to evict from a tier, and advances the clock; `undefined` if none may be evicted. The node stays
   * in the tier until `leave`, so that it can enter another one first.
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
    const { size, tokens } = this.#stateOf(node);
    const use = {
      request: this.#statistics.requests,
      frequency: this.#statistics.frequency(node),
      costPerToken: (this.#statistics.costPerToken(node) * tokens) / size,
    };
    queue.setPriority(node, this.#policy.priority(use, queue.clockOf(node)));
  }

  #forgetIfAbsent(node: number): void {
    if (this.#stateOf(node).tiers.length > 0) return;
    this.#statistics.reset(node);
    this.#nodes.delete(node);
    this.#onForgotten(node);
  }

  #stateOf(node: number): NodeState {
    let state = this.#nodes.get(node);
    if (state === undefined) {
      state = { tiers: [], owner: this.#common, size: 1, tokens: 1 };
      this.#nodes.set(node, state);
    }
    return state;
  }

  #queue(tier: Tier): EvictionQueue {
    const queue = this.#queues.get(tier);
    if (queue === undefined) {
      throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'tier', detail: `There is no tier ${tier} here.` });
    }
    return queue;
  }
}
