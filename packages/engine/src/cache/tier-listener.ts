import type { Tier } from '@warmpath/core';
import type { RadixNode } from './radix-node.js';

/**
 * Hears which tokens lie in which tier, as it changes. Cutting a node in two changes nothing and is not told. It must
 * return at once, leave the tree as it is, and not throw.
 */
export interface TierListener {
  /** The node's tokens from position `from` on lie in the tier now. */
  stored(node: RadixNode, tier: Tier, from: number): void;
  /** The node's tokens from position `from` on leave the tier next; they still lie there. */
  leaving(node: RadixNode, tier: Tier, from: number): void;
}
