import {
  type CostModel,
  type NodeOwner,
  Replacement,
  type ReplacementPolicy,
  type Tier,
} from '@warmpath/core/internal';
import type { RadixNode } from './radix-node.js';

/** What a request found on its path. */
export interface LeaseUse {
  /** The nodes of its path, parents before children. */
  readonly nodes: readonly RadixNode[];
  /** Tokens at its start that it did not have to compute. */
  readonly cachedTokens: number;
  /** Milliseconds a token of what it had to compute. */
  readonly costPerToken: number;
  /** Whether it is work that can wait. */
  readonly canWait: boolean;
}

/**
 * Decides by a replacement policy which node leaves which tier first. In host memory, copies of nodes that are on the
 * device too leave first: losing one costs a copy, not a computation. The prompts of each salt share every tier fairly.
 * Nodes that only work of low priority has used leave first ({@link Replacement}).
 */
export class EvictionOrder {
  readonly #replacement: Replacement;
  readonly #tiers: readonly Tier[];
  readonly #cost: CostModel;
  readonly #sizeOf: (node: RadixNode) => number;
  /** The node of each handle; `undefined` when it lies nowhere. */
  readonly #nodes: (RadixNode | undefined)[] = [];
  readonly #freeHandles: number[] = [];
  /** By root, to whom what other work uses and what only work that can wait uses belongs. */
  readonly #owners = new WeakMap<RadixNode, Readonly<Record<'waiting' | 'other', NodeOwner>>>();
  /** Nodes in host memory that lie on the device too. */
  readonly #spare = new Set<RadixNode>();

  /**
   * `cost`: what it would take to compute a node that came from the disk, or is a part of one.
   * `sizeOf` says what it takes in a tier.
   */
  constructor(
    policy: ReplacementPolicy,
    tiers: readonly Tier[],
    { cost, sizeOf }: { readonly cost: CostModel; sizeOf(node: RadixNode): number },
  ) {
    this.#cost = cost;
    this.#sizeOf = sizeOf;
    this.#tiers = tiers;
    this.#replacement = new Replacement({
      policy,
      tiers,
      onForgotten: (handle) => void this.#freeHandles.push(handle),
    });
  }

  /** Nodes that may be evicted from a tier. */
  candidates(tier: Tier): number {
    return this.#replacement.candidates(tier) + (tier === 'host' ? this.#spare.size : 0);
  }

  /** Counts a request's uses. Cost: O(nodes × log candidates). */
  use({ nodes, cachedTokens, costPerToken, canWait }: LeaseUse): void {
    for (const node of nodes) {
      if (node.canWait && !canWait) {
        node.canWait = false;
        this.resized(node);
      }
    }
    const computedFrom = nodes.findIndex(({ end }) => end > cachedTokens);
    this.#replacement.use({
      nodes: nodes.map((node) => this.#handleOf(node)),
      computedFrom: computedFrom < 0 ? nodes.length : computedFrom,
      costPerToken,
    });
  }

  /** A node was cut: what its upper part is now was used as often as the lower one. */
  cut(upper: RadixNode, lower: RadixNode): void {
    if (lower.handle !== undefined) {
      this.resized(lower);
      this.#replacement.inherit(this.#handleOf(upper), lower.handle);
    }
  }

  /** A node has more tokens than before, or fewer, or is of other work. */
  resized(node: RadixNode): void {
    if (node.handle !== undefined) {
      this.#replacement.assign(node.handle, this.#ownerOf(node), this.#sizeOf(node), node.tokenCount);
    }
  }

  /** A node was used so often by a former process. */
  restoreUses(node: RadixNode, uses: number): void {
    this.#replacement.restoreUses(this.#handleOf(node), uses);
  }

  /** Uses of a node that count. */
  usesOf({ handle }: RadixNode): number {
    return handle === undefined ? 0 : this.#replacement.uses(handle);
  }

  /** The node lies in a tier from now on. */
  enter(node: RadixNode, tier: Tier): void {
    if (node.handle !== undefined) this.#replacement.enter(node.handle, tier);
  }

  /** The node has left a tier. Call it after the node has noted that, and before the node leaves the tree. */
  leave(node: RadixNode, tier: Tier): void {
    const { handle } = node;
    if (handle === undefined) return;
    if (!node.isResident) {
      this.#nodes[handle] = undefined;
      node.handle = undefined;
    }
    this.#replacement.leave(handle, tier);
  }

  /** Looks again at whether a node may be evicted from each tier. Cost: O(log candidates). */
  review(node: RadixNode): void {
    const isSpare = node.hasSpareCopy;
    if (isSpare) this.#spare.add(node);
    else this.#spare.delete(node);
    for (const tier of this.#tiers) {
      if (node.mayLeave(tier) && !(isSpare && tier === 'host')) {
        this.#replacement.allowEviction(this.#handleOf(node), tier);
      } else if (node.handle !== undefined && node.liesIn(tier)) {
        this.#replacement.forbidEviction(node.handle, tier);
      }
    }
  }

  /** Does something during which these nodes must stay where they are. */
  hold(nodes: readonly RadixNode[], work: () => void): void {
    for (const node of nodes) {
      node.pins++;
      this.review(node);
    }
    work();
    for (const node of nodes) {
      node.pins--;
      this.review(node);
    }
  }

  /** Takes out the node that leaves a tier next; it still lies there. */
  evict(tier: Tier): RadixNode | undefined {
    const spare = tier === 'host' ? this.#spare.values().next() : undefined;
    if (spare?.done === false) {
      this.#spare.delete(spare.value);
      return spare.value;
    }
    const handle = this.#replacement.evict(tier);
    return handle === undefined ? undefined : this.#nodes[handle];
  }

  #handleOf(node: RadixNode): number {
    if (node.handle !== undefined) return node.handle;
    const handle = this.#freeHandles.pop() ?? this.#nodes.length;
    this.#nodes[handle] = node;
    node.handle = handle;
    this.resized(node);
    this.#replacement.expectCost(handle, this.#cost.prefillMs(node.start, node.tokenCount) / node.tokenCount);
    for (const tier of this.#tiers.filter((each) => node.liesIn(each))) this.#replacement.enter(handle, tier);
    return handle;
  }

  #ownerOf(node: RadixNode): NodeOwner {
    let root = node;
    while (root.parent !== undefined) root = root.parent;
    let owners = this.#owners.get(root);
    if (owners === undefined) {
      owners = { waiting: this.#replacement.newOwner(true), other: this.#replacement.newOwner(false) };
      this.#owners.set(root, owners);
    }
    return node.canWait ? owners.waiting : owners.other;
  }
}
