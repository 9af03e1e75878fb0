import type { CostModel, ReplacementPolicy } from '@warmpath/core';
import type { DiskTierOptions, DiskTierStats } from './disk-tier.js';
import type { HostTierOptions, HostTierStats } from './host-tier.js';
import type { SequenceId, SequenceMemory } from './sequence-memory.js';
import type { TierListener } from './tier-listener.js';

export interface PrefixCacheOptions {
  readonly memory: SequenceMemory;
  /** KV cells in all. Every token that is on the device or being computed takes exactly one. */
  readonly cells: number;
  /** Sequence ids to use: one per leaf on the device and one per lease. */
  readonly sequences: readonly SequenceId[];
  /** Decides what leaves a tier first; `lru` when left out. */
  readonly policy?: ReplacementPolicy;
  /** What computing costs, for policies that ask and to see when computing again is cheaper than reading a file. */
  readonly cost?: CostModel;
  /** Host memory for what leaves the device; without it, it is dropped. */
  readonly host?: HostTierOptions;
  /** Files for what leaves host memory; only with a host tier. */
  readonly disk?: DiskTierOptions;
  /** Hears what comes to a tier and what leaves it. */
  readonly listener?: TierListener;
  /** Check every invariant after every operation. Cost: O(cached tokens) each time. */
  readonly verify?: boolean;
}

/** Figures of the cache, for metrics and tests. Counts are exact. */
export interface PrefixCacheStats {
  readonly cells: number;
  /** Cells that hold a token: cached, or private to a lease. */
  readonly usedCells: number;
  /** Cells that are in the tree, so that a later request may share them. */
  readonly cachedCells: number;
  readonly freeSequences: number;
  readonly leases: number;
  /** Tokens that left the device since the start, to the host or for good. */
  readonly evictedTokens: number;
  /** Present when there is a host tier. */
  readonly host?: HostTierStats;
  /** Present when there is a disk tier. */
  readonly disk?: DiskTierStats;
}
