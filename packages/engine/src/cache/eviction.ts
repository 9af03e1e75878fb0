/** What an eviction policy may know of a cached leaf. */
export interface EvictionCandidate {
  /** Tokens on the leaf itself, not on the path above it: what its eviction frees at most. */
  readonly tokenCount: number;
  /** Tokens from the start of the prompt to the leaf's end. */
  readonly depth: number;
  /** Logical time of the last use; later is larger, no two uses are equal. */
  readonly lastAccess: number;
}

/**
 * Chooses what leaves the cache. Only leaves that no running request needs are offered, so a prefix always outlives
 * what extends it.
 *
 * This is the seam for cost-aware replacement (PGDSF, RAGCache §5.1) and for tiers, where a victim's cells move to host
 * memory instead of being dropped.
 */
export interface EvictionPolicy {
  readonly name: string;
  /** @returns One of the candidates, or `undefined` when there is none. Cost: O(candidates), of which there are ≤ 256. */
  victim<Candidate extends EvictionCandidate>(candidates: Iterable<Candidate>): Candidate | undefined;
}

/** Evicts what was used longest ago. */
export const leastRecentlyUsed: EvictionPolicy = {
  name: 'lru',
  victim<Candidate extends EvictionCandidate>(candidates: Iterable<Candidate>): Candidate | undefined {
    let oldest: Candidate | undefined;
    for (const candidate of candidates) {
      if (oldest === undefined || candidate.lastAccess < oldest.lastAccess) {
        oldest = candidate;
      }
    }
    return oldest;
  },
};
