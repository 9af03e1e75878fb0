import type { RadixNode } from './radix-node.js';
import type { SequenceId } from './sequence-memory.js';
import type { TokensByTier } from './tokens-by-tier.js';

/**
 * A running request's hold on the cache: its own sequence id, and a path that cannot be evicted. Its tokens are the
 * path's, followed by private ones that were computed and not committed yet.
 */
export interface Lease {
  readonly sequence: SequenceId;
  /** Tokens of the path: shared at the start, then committed. */
  readonly length: number;
  /** Cells that were taken with `grow` and not committed yet. */
  readonly privateCells: number;
}

/** What a lease gained. */
export interface Extension extends TokensByTier {
  /** Whether the next tokens are on their way from the disk, and worth waiting for. */
  readonly isAwaitingDisk: boolean;
}

/** A lease as the cache itself sees it. */
export interface HeldLease extends Lease {
  length: number;
  privateCells: number;
  /** Where its path ends. */
  node: RadixNode;
  /** Tokens of the request when it came. */
  readonly promptTokens: number;
  /** Those of them that it did not have to compute. */
  sharedTokens: number;
  /** Positions at which nodes end, ascending. */
  readonly boundaries: readonly number[];
  /** Whether it is of work that can wait, which displaces nothing that other work uses. */
  readonly canWait: boolean;
  /** Until when the lease waits for the disk, once it has begun to. */
  patientUntilMs: number | undefined;
}
