import { Replacement, type ReplacementPolicy, type Tier } from '@warmpath/core';
import { pathKey } from './path-key.js';
import type { RadixNode } from './radix-node.js';

/** What a request found on its path. */
export interface LeaseUse {
  /** The nodes of its path, parents before children. */
  readonly nodes: readonly RadixNode[];
  /** Tokens at its start that it did not have to compute. */
  readonly cachedTokens: number;
  /** Milliseconds a token of what it had to compute. */
  readonly costPerToken: number;
}

/**
 * Which node leaves which tier first: the replacement policy, told what the tree does. A node is known to it from the first
 * time that it is used or may be evicted. Of a node that lies in no tier any more, the policy may remember its uses: when
 * the same tokens come back to the same place, they count on. The memory is bounded by the policy's window.
 */
export class EvictionOrder {
  readonly #replacement: Replacement;
  readonly #remembersEvicted: boolean;
  /** The node of each handle; `undefined` when it lies nowhere. */
  readonly #nodes: (RadixNode | undefined)[] = [];
  readonly #freeHandles: number[] = [];
  /** Handles of nodes that lie nowhere and are remembered, by what they held, and the other way round. */
  readonly #remembered = new Map<string, number>();
  readonly #rememberedKeys = new Map<number, string>();

  constructor(policy: ReplacementPolicy, tiers: readonly Tier[]) {
    this.#remembersEvicted = policy.remembersEvicted;
    this.#replacement = new Replacement({ policy, tiers, onForgotten: (handle) => this.#forget(handle) });
  }

  /** Nodes that may be evicted from a tier. */
  candidates(tier: Tier): number {
    return this.#replacement.candidates(tier);
  }

  /** Counts a request's uses. Cost: O(nodes × log candidates). */
  use({ nodes, cachedTokens, costPerToken }: LeaseUse): void {
    const computedFrom = nodes.findIndex(({ end }) => end > cachedTokens);
    this.#replacement.use({
      nodes: nodes.map((node) => this.#handleOf(node)),
      computedFrom: computedFrom < 0 ? nodes.length : computedFrom,
      costPerToken,
    });
  }

  /** The node lies in a tier from now on. */
  enter(node: RadixNode, tier: Tier): void {
    if (node.handle !== undefined) {
      this.#replacement.enter(node.handle, tier);
    }
  }

  /** The node lies in a tier no more. Call it after the node says so, and before the node leaves the tree. */
  leave(node: RadixNode, tier: Tier): void {
    const { handle } = node;
    if (handle === undefined) {
      return;
    }
    if (!node.onDevice && node.copy === undefined) {
      if (this.#remembersEvicted) {
        const key = pathKey(node);
        this.#remembered.set(key, handle);
        this.#rememberedKeys.set(handle, key);
      }
      this.#nodes[handle] = undefined;
      node.handle = undefined;
    }
    this.#replacement.leave(handle, tier);
  }

  /**
   * Looks again at whether a node may be evicted: from the device when nothing below it is there and no lease ends here,
   * from the host when no child has a copy and no lease is about to bring it back. Cost: O(log candidates).
   */
  review(node: RadixNode): void {
    this.#offerIf(node.isDeviceLeaf && node.pins === 0, node, 'device');
    this.#offerIf(isHostLeaf(node) && (node.onDevice || node.pins === 0), node, 'host');
  }

  /** Takes out the node that leaves a tier next; it still lies there. */
  evict(tier: Tier): RadixNode | undefined {
    const handle = this.#replacement.evict(tier);
    return handle === undefined ? undefined : this.#nodes[handle];
  }

  #offerIf(isCandidate: boolean, node: RadixNode, tier: Tier): void {
    if (isCandidate) {
      this.#replacement.offer(this.#handleOf(node), tier);
    } else if (node.handle !== undefined && (tier === 'device' || node.copy !== undefined)) {
      this.#replacement.withdraw(node.handle, tier);
    }
  }

  #handleOf(node: RadixNode): number {
    if (node.handle !== undefined) {
      return node.handle;
    }
    const handle = this.#takeRemembered(node) ?? this.#freeHandles.pop() ?? this.#nodes.length;
    this.#nodes[handle] = node;
    node.handle = handle;
    if (node.onDevice) {
      this.#replacement.enter(handle, 'device');
    }
    if (node.copy !== undefined) {
      this.#replacement.enter(handle, 'host');
    }
    return handle;
  }

  /** The handle under which uses of the same tokens at the same place are remembered. */
  #takeRemembered(node: RadixNode): number | undefined {
    if (this.#remembered.size === 0) {
      return undefined;
    }
    const key = pathKey(node);
    const handle = this.#remembered.get(key);
    if (handle !== undefined) {
      this.#remembered.delete(key);
      this.#rememberedKeys.delete(handle);
    }
    return handle;
  }

  #forget(handle: number): void {
    const key = this.#rememberedKeys.get(handle);
    if (key !== undefined) {
      this.#rememberedKeys.delete(handle);
      // Two handles can have held the same in turn, when the second was known before it had grown to it.
      if (this.#remembered.get(key) === handle) {
        this.#remembered.delete(key);
      }
    }
    this.#freeHandles.push(handle);
  }
}

function isHostLeaf(node: RadixNode): boolean {
  return node.copy !== undefined && node.hostChildren === 0;
}
