/** Replacement policies by name: those of RAGCache, then ours. */
export const REPLACEMENT_POLICY_NAMES = ['pgdsf', 'gdsf', 'lru', 'lfu', 'lrfu'] as const;

export type ReplacementPolicyName = (typeof REPLACEMENT_POLICY_NAMES)[number];

/** Requests after which a use counts half in `recentFrequency`. */
export const USE_HALF_LIFE = 500;

/** Where KV can lie, fastest first. */
export type Tier = 'device' | 'host' | 'disk';

/** What is known of a node at a request that uses it. */
export interface NodeUse {
  /** Number of the request. */
  readonly request: number;
  /** Requests that used the node, this one included: those of the window, or since it came in (`remembersEvicted`). */
  readonly frequency: number;
  /** The same, but a use counts half for every `USE_HALF_LIFE` requests since. */
  readonly recentFrequency: number;
  /**
   * Mean milliseconds a token over the requests that had to compute the node (RAGCache Eq. 4); 0 if none had to yet.
   */
  readonly costPerToken: number;
}

/**
 * How long a node is worth keeping: a pure function, so that it serves any tree and any number of tiers. The tree says
 * what may be evicted (leaves that no running request uses); the candidate with the lowest priority goes first.
 */
export interface ReplacementPolicy {
  readonly name: ReplacementPolicyName;
  /** Whether a node's uses still count after it was evicted, as long as the window holds them. */
  readonly remembersEvicted: boolean;
  /**
   * Priority of a node, computed when it is used and when it comes into a tier. `clock` is the tier's: the highest
   * priority that was evicted from it (RAGCache Eq. 3), so that priorities given later are higher and old ones are
   * overtaken.
   */
  priority(use: NodeUse, clock: number): number;
}
