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
