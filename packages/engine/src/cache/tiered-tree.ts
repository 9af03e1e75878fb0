import type { CostModel, ReplacementPolicy, Tier } from '@warmpath/core/internal';
import type { DiskTierOptions } from './disk-tier.js';
import { EvictionOrder, type LeaseUse } from './eviction-order.js';
import type { HostTierOptions } from './host-tier.js';
import type { TierListener } from './radix-node.js';
import { type PathStep, RadixNode } from './radix-node.js';
import type { SequenceId, SequenceMemory } from './sequence-memory.js';
import { TierStore } from './tier-store.js';
import type { TokensByTier } from './tokens-by-tier.js';

export interface TieredTreeOptions {
  readonly memory: SequenceMemory;
  /** Sequence ids to use: one per leaf of the device tier and one per lease. */
  readonly sequences: readonly SequenceId[];
  /** Decides what leaves a tier first. */
  readonly policy: ReplacementPolicy;
  /** What computing costs, for policies that ask. */
  readonly cost: CostModel;
  /** Host memory for what leaves the device. */
  readonly host: HostTierOptions;
  /** Files for what leaves host memory; only with host memory, through which everything comes back. */
  readonly disk?: DiskTierOptions | undefined;
  /** Gets what comes to a tier and what leaves it. */
  readonly listener?: TierListener | undefined;
  /**
   * Whether sequences go on only where their state was saved. Then nodes lie in host memory and on the disk alone, and
   * the cells of a lease are its own.
   */
  readonly checkpoints?: boolean;
}

/**
 * A radix tree over tokens, and in which tiers the KV of each node lies (RAGCache §5.1). On the device, cells carry the
 * sequence ids of all device leaves below them, so a prefix is shared without a copy. A node leaves a tier only when
 * nothing below it depends on it there: its parent is on the device, its ancestors lie somewhere, their files stay.
 * A copy in host memory stays when its node comes back. Prompts of different salts have different roots.
 */
export class TieredTree {
  /** By salt, as long as anything hangs on it; the one without a salt stays. */
  readonly #roots = new Map<string | undefined, RadixNode>([[undefined, new RadixNode(undefined, 0, [])]]);
  readonly #memory: SequenceMemory;
  readonly #order: EvictionOrder;
  /** What lies below the device. */
  readonly lower: TierStore;
  readonly #listener: TierListener | undefined;
  readonly #freeSequences: SequenceId[];
  /** Those of leases; the others that are in use belong to leaves of the device. */
  readonly #leasedSequences = new Set<SequenceId>();
  /** Whether sequences go on only where their state was saved. */
  readonly checkpoints: boolean;
  #deviceTokens = 0;
  #evictedTokens = 0;

  constructor({ memory, sequences, policy, cost, host, disk, listener, checkpoints = false }: TieredTreeOptions) {
    this.#memory = memory;
    this.checkpoints = checkpoints;
    const tiers: readonly Tier[] = disk === undefined ? ['device', 'host'] : ['device', 'host', 'disk'];
    this.#order = new EvictionOrder(policy, tiers, {
      cost,
      sizeOf: checkpoints ? storedBytes : ({ tokenCount }) => tokenCount,
    });
    this.#listener = listener;
    this.#freeSequences = [...sequences].reverse();
    this.lower = new TierStore({
      order: this.#order,
      host,
      disk,
      listener,
      sequenceOf: (node) => this.sequenceBelow(node),
      onGone: (node) => this.#remove(node),
    });
    this.lower.adopt(disk?.entries ?? [], (salt) => this.rootOf(salt));
    for (const root of this.roots) {
      this.#dropIfEmpty(root);
    }
  }

  /** Where prompts begin: those without a salt, and those of each salt that anything is held for. */
  get roots(): readonly RadixNode[] {
    return [...this.#roots.values()];
  }

  /** Tokens on the device, each of which takes one cell. */
  get deviceTokens(): number {
    return this.#deviceTokens;
  }

  /** Tokens that left the device since the start. */
  get evictedTokens(): number {
    return this.#evictedTokens;
  }

  get freeSequences(): readonly SequenceId[] {
    return this.#freeSequences;
  }

  /** Nodes that may be evicted from a tier now. */
  candidates(tier: Tier): number {
    return this.#order.candidates(tier);
  }

  /** What a prompt would find now, by tier. Changes nothing. Cost: O(limit). */
  match(tokens: readonly number[], limit: number, salt: string | undefined): TokensByTier {
    const below = { host: 0, disk: 0 };
    let { node, length } = this.follow(tokens, limit, salt);
    while (this.checkpoints && node?.parent !== undefined && !(node.end <= length && node.isResumable)) {
      node = node.parent;
      length = node.end;
    }
    for (; node !== undefined && !node.onDevice; node = node.parent) {
      below[node.copy === undefined ? 'disk' : 'host'] += length - node.start;
      length = node.start;
    }
    return { device: length, ...below };
  }

  /** The last node that a prompt follows, perhaps in part, and for how many of its tokens it follows the tree. */
  follow(
    tokens: readonly number[],
    limit: number,
    salt: string | undefined,
  ): { readonly node: RadixNode | undefined; readonly length: number } {
    let node = this.existingRoot(salt);
    let length = 0;
    for (let step = node?.next(tokens, 0, limit); step !== undefined; step = node?.next(tokens, length, limit)) {
      node = step.node;
      length += step.length;
      if (length < node.end) break;
    }
    return { node, length };
  }

  /** Where prompts of a salt begin, or those without one; `undefined` when nothing is held for the salt. */
  existingRoot(salt: string | undefined): RadixNode | undefined {
    return this.#roots.get(salt);
  }

  /** The same, made where there is none. To be pinned at once. */
  rootOf(salt: string | undefined): RadixNode {
    const root = this.#roots.get(salt) ?? new RadixNode(undefined, 0, [], salt);
    this.#roots.set(salt, root);
    return root;
  }

  /**
   * Walks from `node` along `tokens[offset …]` as far as it goes on the device, and cuts the last node where the walk
   * leaves it, so that it ends at a node's end. Cost: O(limit - offset).
   */
  descend(node: RadixNode, tokens: readonly number[], offset: number, limit: number): RadixNode {
    let current = node;
    for (let length = offset; ; ) {
      const step = current.next(tokens, length, limit);
      if (step === undefined || !step.node.onDevice) return current;
      const isWhole = step.length === step.node.tokenCount;
      current = this.cut(step)!;
      if (!isWhole) return current;
      length += step.length;
    }
  }

  /**
   * The node that ends where a step ends: the step's own, or its upper part, cut off.
   *
   * @returns `undefined` when there is no such node any more: its only copy was damaged.
   */
  cut({ node, length }: PathStep): RadixNode | undefined {
    if (length === node.tokenCount) return node;
    const copies = this.lower.cutCopy(node, node.start + length);
    if (!node.isResident) return undefined;
    // The lower part keeps its place in the order. As long as there is one, the upper one may lose nothing but a spare
    // copy.
    const upper = node.splitAt(length, copies);
    this.#order.cut(upper, node);
    if (copies !== undefined) this.lower.afterCut(upper);
    return upper;
  }

  /**
   * Adds a device leaf below `parent`, which must have no child that begins with the same token. To be pinned at once.
   *
   * @param canWait Whether it is of work that can wait.
   */
  addLeaf(parent: RadixNode, tokens: readonly number[], owner: SequenceId, canWait: boolean): RadixNode {
    const leaf = new RadixNode(parent, parent.end, [...tokens]);
    leaf.canWait = canWait;
    this.comeToDevice(leaf, owner);
    return leaf;
  }

  /** Adds tokens to the end of a device leaf. */
  grow(leaf: RadixNode, tokens: readonly number[]): void {
    const { end } = leaf;
    leaf.tokens.push(...tokens);
    this.#deviceTokens += tokens.length;
    this.#order.resized(leaf);
    this.#listener?.stored(leaf, 'device', end);
  }

  /** A node whose parent is on the device is there now too: its cells carry the label `owner`. To be pinned at once. */
  comeToDevice(node: RadixNode, owner: SequenceId): void {
    const parent = node.parent!;
    const former = parent.owner;
    parent.owner = undefined;
    node.owner = owner;
    node.onDevice = true;
    this.#deviceTokens += node.tokenCount;
    this.#order.enter(node, 'device');
    this.#listener?.stored(node, 'device', node.start);
    this.#order.review(parent);
    if (former !== undefined && !this.#leasedSequences.has(former)) this.#giveBack(former);
  }

  /**
   * Brings a node back from the host behind what `sequence` holds, which is the path to it. There must be cells for it.
   *
   * @returns Whether it is on the device; when not, its copy was no good and is gone.
   */
  restore(node: RadixNode, sequence: SequenceId): boolean {
    const isBack = this.lower.restore(node, sequence);
    if (isBack) this.comeToDevice(node, sequence);
    return isBack;
  }

  /** A lease ends at this node from now on. */
  pin(node: RadixNode): void {
    node.pins++;
    this.#order.review(node);
  }

  /** A lease stops ending at this node. */
  unpin(node: RadixNode): void {
    node.pins--;
    this.#order.review(node);
    this.#dropIfEmpty(node);
  }

  /** Counts what a request used. */
  use(use: LeaseUse): void {
    for (const node of use.nodes) node.uses++;
    this.#order.use(use);
  }

  /** Any device leaf's sequence covers the whole path to it. Cost: O(depth of the subtree). */
  sequenceBelow(node: RadixNode): SequenceId {
    for (let current = node; ; ) {
      if (current.owner !== undefined) return current.owner;
      const child = current.deviceChildren.values().next();
      if (child.done) throw new Error('A leaf of the device tier has no sequence');
      current = child.value;
    }
  }

  /**
   * Frees at least `count` cells: nodes move as a whole. The caller has checked that there are as many.
   */
  freeCells(count: number): void {
    for (let missing = count; missing > 0; ) {
      const leaf = this.#order.evict('device');
      if (leaf === undefined) throw new Error('The prefix cache has fewer evictable cells than it counted');
      missing -= leaf.tokenCount;
      this.#evict(leaf);
    }
  }

  /** Takes a sequence id for a lease; when none is free, evicts a leaf's whole branch, up to where others share it. */
  takeSequence(): SequenceId | undefined {
    while (this.#freeSequences.length === 0) {
      const leaf = this.#order.evict('device');
      if (leaf === undefined) return undefined;
      const { owner } = leaf;
      for (let node = leaf; node.owner === owner && node.pins === 0; ) {
        const parent = node.parent!;
        this.#evict(node);
        node = parent;
      }
    }
    const sequence = this.#freeSequences.pop()!;
    this.#leasedSequences.add(sequence);
    return sequence;
  }

  /** Takes back a lease's sequence id, unless it owns the node where the lease ended. */
  endLease(sequence: SequenceId, node: RadixNode): void {
    this.#leasedSequences.delete(sequence);
    if (node.owner !== sequence) this.#giveBack(sequence);
  }

  /**
   * Drops what lies in some tiers below some roots, but for what leases stand on, what is kept, and what other tiers
   * depend on. Cost: O(nodes).
   *
   * @returns How many tokens were dropped from each tier.
   */
  drop(tiers: readonly Tier[], roots: readonly RadixNode[]): TokensByTier {
    const dropped = { device: 0, host: 0, disk: 0 };
    const nodes = [...roots];
    for (let place = 0; place < nodes.length; place++) nodes.push(...nodes[place]!.children.values());
    // Children stand behind their parents, and nothing may go before what depends on it.
    for (const node of nodes.slice(roots.length).reverse()) {
      for (const tier of tiers) {
        const { tokenCount } = node;
        if (!node.mayLeave(tier)) continue;
        if (tier === 'device') this.#evict(node, false);
        else this.lower.drop(node, tier);
        dropped[tier] += tokenCount;
      }
    }
    return dropped;
  }

  /** Takes a leaf from the device, to host memory if it has room. */
  #evict(leaf: RadixNode, isCopied = true): void {
    if (isCopied && leaf.copy === undefined) this.lower.copyOut(leaf);
    this.#listener?.leaving(leaf, 'device');
    const parent = leaf.parent!;
    const owner = leaf.owner!;
    this.#memory.remove(owner, leaf.start, -1);
    this.#deviceTokens -= leaf.tokenCount;
    this.#evictedTokens += leaf.tokenCount;
    leaf.owner = undefined;
    leaf.onDevice = false;
    this.#order.leave(leaf, 'device');
    if (!leaf.isResident) this.#remove(leaf);
    else this.#order.review(leaf);
    if (parent.parent === undefined || parent.deviceChildren.size > 0) this.#giveBack(owner);
    else parent.owner = owner;
    this.#order.review(parent);
  }

  /** Takes a sequence id off all cells; it is free again. */
  #giveBack(sequence: SequenceId): void {
    this.#memory.remove(sequence, 0, -1);
    this.#freeSequences.push(sequence);
  }

  /** The root of a salt goes with the last node below it. */
  #dropIfEmpty({ salt, children, pins }: RadixNode): void {
    if (salt !== undefined && children.size === 0 && pins === 0) this.#roots.delete(salt);
  }

  /** Takes a node that lies nowhere out of the tree, with what lies below it, to which nothing leads any more. */
  #remove(node: RadixNode): void {
    const parent = node.parent!;
    this.lower.dropBelow(node);
    node.detach();
    this.#dropIfEmpty(parent);
  }
}

/** Bytes of a node in the nearest tier: where checkpoints are saved, they are no measure of its tokens. */
function storedBytes({ copy, file, tokenCount }: RadixNode): number {
  return copy?.state.length ?? file?.file.bytes ?? tokenCount;
}
