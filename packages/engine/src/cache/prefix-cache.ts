import type { CostModel, Tier } from '@warmpath/core/internal';
import type { DiskTierStats } from './disk-tier.js';
import type { HostTierStats } from './host-tier.js';
import { type HeldLease, type Lease, LeaseTable } from './lease-table.js';
import type { PathStep, RadixNode } from './radix-node.js';
import type { SequenceMemory } from './sequence-memory.js';
import { TieredTree, type TieredTreeOptions } from './tiered-tree.js';
import type { TokensByTier } from './tokens-by-tier.js';

/** Tokens of a node where the request names no ends of documents. */
const BLOCK_TOKENS = 128;

/** Bytes of files after which a prompt waits for the next step, so that streams beside it go on. */
const MAX_READ_BYTES = 64 * 1024 * 1024;

export interface PrefixCacheOptions extends TieredTreeOptions {
  /** KV cells in all. Every token that is on the device or being computed takes exactly one. */
  readonly cells: number;
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
  readonly host: HostTierStats;
  /** Present when there is a disk tier. */
  readonly disk?: DiskTierStats;
}

/**
 * The prefix cache: a radix tree over tokens (SGLang's RadixAttention, arXiv:2312.07104 §3) in the tiers of RAGCache's
 * knowledge tree. A request takes a {@link Lease} on the longest prefix that is on the device, and extends it with what
 * lower tiers hold. It takes cells with {@link grow} before it computes, and shares what it computed with
 * {@link commit}. When cells run short, leaves are evicted. The cache reaches the engine through
 * {@link SequenceMemory} alone.
 */
export class PrefixCache {
  readonly #memory: SequenceMemory;
  readonly #cost: CostModel;
  readonly #tree: TieredTree;
  readonly #leases: LeaseTable;

  constructor(options: PrefixCacheOptions) {
    const { memory, cells, cost } = options;
    this.#memory = memory;
    this.#cost = cost;
    const tree = new TieredTree(options);
    this.#tree = tree;
    this.#leases = new LeaseTable(tree, cells);
  }

  /**
   * The tree as it is, for reports and tests: where prompts without a salt begin, and those of each salt. Not to be
   * changed.
   */
  get roots(): readonly RadixNode[] {
    return this.#tree.roots;
  }

  /** What tests check the invariants of. */
  get parts(): { readonly tree: TieredTree; readonly leases: LeaseTable } {
    return { tree: this.#tree, leases: this.#leases };
  }

  get stats(): PrefixCacheStats {
    const { deviceTokens, evictedTokens, freeSequences, lower } = this.#tree;
    return {
      cells: this.#leases.cells,
      usedCells: this.#leases.usedCells,
      cachedCells: deviceTokens,
      freeSequences: freeSequences.length,
      leases: this.#leases.size,
      evictedTokens,
      host: lower.hostStats,
      ...(lower.diskStats !== undefined && { disk: lower.diskStats }),
    };
  }

  /** Whether what a lease commits must end where its sequence ends, for the sequence's state is saved with it. */
  get checkpoints(): boolean {
    return this.#tree.checkpoints;
  }

  availableCells(): number {
    return this.#leases.availableCells();
  }

  /**
   * Length of the longest cached prefix by tier, without touching anything. Cost: O(limit).
   *
   * @param limit Look at no more than this many tokens.
   * @param salt Look at what prompts of this salt have left, which share nothing with others.
   */
  match(tokens: readonly number[], limit: number = tokens.length, salt?: string): TokensByTier {
    return this.#tree.match(tokens, limit, salt);
  }

  /**
   * Takes a lease on the longest prefix that is on the device.
   *
   * @param limit Share no more than this many tokens: the last token of a prompt must be computed for its logits.
   * @param boundaries Positions at which documents end, ascending: what is added to the tree for this lease is cut
   *   there.
   * @param salt Keeps the prompt apart: it shares tokens with prompts of the same salt alone.
   * @param canWait Whether it is work that can wait, which displaces nothing that other work uses.
   * @returns `undefined` when every sequence id is taken by leases and by leaves that they need.
   */
  acquire(
    tokens: readonly number[],
    limit: number,
    boundaries: readonly number[] = [],
    salt?: string,
    canWait = false,
  ): Lease | undefined {
    const node = this.#tree.descend(this.#tree.rootOf(salt), tokens, 0, limit);
    this.#tree.pin(node);
    const sequence = this.#tree.takeSequence();
    if (sequence === undefined) {
      this.#tree.unpin(node);
      return undefined;
    }
    if (node.end > 0) this.#memory.copy(this.#tree.sequenceBelow(node), sequence, 0, node.end);
    const lease: HeldLease = {
      sequence,
      length: node.end,
      privateCells: 0,
      commonTokens: 0,
      node,
      promptTokens: tokens.length,
      sharedTokens: node.end,
      boundaries,
      canWait,
    };
    this.#leases.add(lease);
    return lease;
  }

  /**
   * Adds to a lease without private cells what others have committed since and what host memory holds.
   *
   * @returns Tokens that the lease gained, by where they were; what was read from the disk for this prompt counts as
   *   from there.
   */
  extend(handle: Lease, tokens: readonly number[], limit: number): TokensByTier {
    const lease = this.#leases.own(handle);
    if (lease.privateCells > 0) throw new Error('A lease with private cells cannot be extended');
    const device = this.#share(lease, tokens, limit);
    const gained = { device, host: 0, disk: 0 };
    if (this.checkpoints) this.#resume(lease, tokens, limit, gained);
    else this.#restore(lease, tokens, limit, gained);
    lease.sharedTokens += device + gained.host + gained.disk;
    return gained;
  }

  /**
   * Reads what {@link extend} needs next from the disk into host memory. Nothing else may use the cache until it has
   * settled.
   *
   * @returns Whether the disk holds more for the lease, to be read after `extend`.
   */
  async load(handle: Lease, tokens: readonly number[], limit: number): Promise<boolean> {
    let { node } = this.#leases.own(handle);
    const { lower } = this.#tree;
    if (lower.diskStats === undefined) return false;
    const { path } = followedNodes(node, tokens, limit);
    const to = this.checkpoints ? (path.findLast(({ isResumable }) => isResumable)?.end ?? 0) : limit;
    let bytesRead = 0;
    for (let step = node.next(tokens, node.end, to); step !== undefined; step = node.next(tokens, node.end, to)) {
      node = step.node;
      if (!node.onDevice && node.copy === undefined) {
        const bytes = bytesRead < MAX_READ_BYTES ? await lower.load(node) : 0;
        if (bytes === 0) return bytesRead > 0;
        bytesRead += bytes;
      }
      if (step.length < node.tokenCount) break;
    }
    return false;
  }

  /**
   * Writes what is nowhere on the disk yet, as far as there is room, and closes the disk tier. No lease may be left.
   *
   * @param isInTime Asked before each file; when not, nothing more is begun.
   */
  async close(isInTime: () => boolean): Promise<void> {
    await this.#tree.lower.close(this.#tree.roots, isInTime);
  }

  /**
   * Moves cells that no lease needs to host memory: on a CPU, every step passes over all cells in use. Does nothing
   * without host memory. Cost: O(nodes on the paths of leases), and a copy of the cells.
   */
  clearIdle(): void {
    const hasHost = this.#tree.lower.hostStats.capacityBytes > 0;
    const idle = hasHost ? this.#leases.usedCells - this.#leases.leasedCells() : 0;
    if (idle > 0) this.#tree.freeCells(idle);
  }

  /**
   * Drops what is cached and not leased. Cost: O(nodes).
   *
   * @param salt Drop what prompts of this salt have left; everything when left out.
   * @returns How many tokens were dropped from each tier.
   */
  flush(tiers: readonly Tier[], salt?: string): TokensByTier {
    const root = salt === undefined ? undefined : this.#tree.existingRoot(salt);
    return this.#tree.drop(tiers, salt === undefined ? this.#tree.roots : root === undefined ? [] : [root]);
  }

  /** Whether two leases end at the same place of the tree, that is, hold the same tokens so far. */
  samePath(a: Lease, b: Lease): boolean {
    return this.#leases.own(a).node === this.#leases.own(b).node;
  }

  /**
   * Makes room for `count` more tokens of this lease, evicting where needed.
   *
   * @returns Whether there is room; when there is not, nothing was evicted.
   */
  grow(handle: Lease, count: number): boolean {
    const lease = this.#leases.own(handle);
    if (!this.#leases.makeRoom(count)) return false;
    this.#leases.addPrivate(lease, count);
    return true;
  }

  /**
   * Puts the next tokens that this lease computed into the tree, where other requests may share them.
   *
   * @param tokens The tokens at positions `lease.length` …; no more than it has private cells.
   */
  commit(handle: Lease, tokens: readonly number[]): void {
    const lease = this.#leases.own(handle);
    if (tokens.length > lease.privateCells) throw new Error('A lease cannot commit more tokens than it computed');
    this.#leases.addPrivate(lease, -tokens.length);
    const done = this.checkpoints ? this.#saveCheckpoint(lease, tokens) : this.#handOver(lease, tokens);
    this.#leases.addPrivate(lease, tokens.length - done);
  }

  /**
   * Ends a lease. Its committed tokens stay cached; private ones are dropped.
   *
   * @param wasUsed Whether its path counts as used, for the replacement policy.
   */
  release(handle: Lease, wasUsed = true): void {
    const lease = this.#leases.own(handle);
    this.#leases.delete(lease);
    if (lease.privateCells > 0) {
      if (!this.checkpoints) this.#memory.remove(lease.sequence, lease.length, -1);
      this.#leases.addPrivate(lease, -lease.privateCells);
    }
    if (wasUsed) this.#countUse(lease);
    this.#tree.unpin(lease.node);
    this.#tree.endLease(lease.sequence, lease.node);
  }

  #countUse(lease: HeldLease): void {
    const newTokens = lease.promptTokens - lease.sharedTokens;
    this.#tree.use({
      nodes: lease.node.path(),
      cachedTokens: lease.sharedTokens,
      canWait: lease.canWait,
      costPerToken: newTokens > 0 ? this.#cost.prefillMs(lease.sharedTokens, newTokens) / newTokens : 0,
    });
  }

  /** Shares what is on the device beyond the lease's end. */
  #share(lease: HeldLease, tokens: readonly number[], limit: number): number {
    const from = lease.length;
    const node = this.#tree.descend(lease.node, tokens, from, limit);
    if (node !== lease.node) {
      this.#memory.copy(this.#tree.sequenceBelow(node), lease.sequence, from, node.end);
      this.#leases.moveTo(lease, node);
    }
    return node.end - from;
  }

  /** Copies back what host memory holds behind a lease, node by node and the nearest tier first (RAGCache §5.1). */
  #restore(lease: HeldLease, tokens: readonly number[], limit: number, gained: { host: number; disk: number }): void {
    for (;;) {
      const step = lease.node.next(tokens, lease.length, limit);
      if (step?.node.copy === undefined || this.#leases.availableCells() < step.length) return;
      const tier = step.node.copy.isFresh === true ? 'disk' : 'host';
      const node = this.#bringBack(lease, step);
      if (node === undefined) return;
      gained[tier] += node.tokenCount;
    }
  }

  /** Copies back the path to the last checkpoint behind a lease, as far as it is in host memory. */
  #resume(lease: HeldLease, tokens: readonly number[], limit: number, gained: { host: number; disk: number }): void {
    const { path, end: commonTokens } = followedNodes(lease.node, tokens, limit);
    lease.commonTokens = commonTokens;
    const far = path.findIndex(({ copy }) => copy === undefined);
    const near = far < 0 ? path : path.slice(0, far);
    const back = near.slice(0, near.findLastIndex(({ isResumable }) => isResumable) + 1);
    const last = back.at(-1);
    if (last === undefined || this.#leases.availableCells() < last.end - lease.length) return;
    this.#tree.pin(last);
    for (const node of back) {
      const tier = node.copy!.isFresh === true ? 'disk' : 'host';
      if (!this.#tree.lower.restore(node, lease.sequence)) {
        this.#tree.unpin(last);
        this.#startAgain(lease);
        gained.host = 0;
        gained.disk = 0;
        return;
      }
      gained[tier] += node.tokenCount;
    }
    this.#leases.moveTo(lease, last);
    this.#tree.unpin(last);
  }

  /** A copy was no good, and what came back before it is no place to go on: the lease has again what it had. */
  #startAgain({ node, sequence }: HeldLease): void {
    this.#memory.remove(sequence, 0, -1);
    for (const own of node.path()) {
      if (own.copy === undefined || !this.#tree.lower.restore(own, sequence)) {
        throw new Error('A lease loses the checkpoint that it stands on');
      }
    }
  }

  /** @returns The node, on the device and at the lease's end; `undefined` when its copy was no good. */
  #bringBack(lease: HeldLease, step: PathStep): RadixNode | undefined {
    const node = this.#tree.cut(step);
    if (node === undefined || node.copy === undefined) return undefined;
    // What makes room may go to the host, where it must not push out the very node that is to come back.
    this.#tree.pin(node);
    const isBack = this.#leases.makeRoom(node.tokenCount) && this.#tree.restore(node, lease.sequence);
    if (isBack) this.#leases.moveTo(lease, node);
    this.#tree.unpin(node);
    return isBack ? node : undefined;
  }

  /**
   * Puts what a lease computed into the tree, where other requests may share it.
   *
   * @returns How many tokens: all.
   */
  #handOver(lease: HeldLease, tokens: readonly number[]): number {
    for (let done = 0; done < tokens.length; ) {
      const step = lease.node.next(tokens, done, tokens.length);
      done += step === undefined ? this.#append(lease, tokens, done) : this.#adopt(lease, step);
    }
    return tokens.length;
  }

  /**
   * Puts what the lease computed into the tree, with the state of its sequence at the end.
   *
   * @returns How many tokens.
   */
  #saveCheckpoint(lease: HeldLease, tokens: readonly number[]): number {
    for (let done = 0; done < tokens.length; ) {
      const step = lease.node.next(tokens, done, tokens.length);
      const { node: parent, sequence, canWait } = lease;
      const node =
        step === undefined
          ? this.#tree.lower.addSaved(parent, tokens.slice(done), sequence, canWait)
          : this.#tree.cut(step);
      if (node === undefined && step === undefined) return done;
      if (node !== undefined) {
        done += node.tokenCount;
        if (done === tokens.length && !node.isResumable) this.#tree.lower.saveAgain(node, sequence);
        this.#leases.moveTo(lease, node);
      }
    }
    return tokens.length;
  }

  /**
   * The tree has what the lease computed: on the device, then the lease's own cells are freed and the tree's shared; or
   * in host memory alone, then the lease's cells are the node's from now on.
   *
   * @returns How many tokens that was; 0 when the node was no good and is gone.
   */
  #adopt(lease: HeldLease, step: PathStep): number {
    const node = this.#tree.cut(step);
    if (node === undefined) return 0;
    if (node.onDevice) {
      this.#memory.remove(lease.sequence, node.start, node.end);
      this.#memory.copy(this.#tree.sequenceBelow(node), lease.sequence, node.start, node.end);
    } else {
      this.#tree.comeToDevice(node, lease.sequence);
    }
    this.#leases.moveTo(lease, node);
    return node.tokenCount;
  }

  /**
   * Adds tokens that the tree does not have, up to the next place where a node must end, and makes the lease's sequence
   * their owner.
   *
   * @returns How many.
   */
  #append(lease: HeldLease, tokens: readonly number[], from: number): number {
    const end = this.#nodeEnd(lease, lease.length + 1);
    const piece = tokens.slice(from, from + (end - lease.length));
    const { node } = lease;
    // A leaf that only this lease uses grows in place; otherwise other leases that end here, a copy or a file would
    // fall short.
    const isAlone = node.pins === 1 && node.children.size === 0 && node.copy === undefined && node.file === undefined;
    const isOwn = node.owner === lease.sequence && isAlone;
    if (isOwn && this.#nodeEnd(lease, lease.length) > lease.length) {
      this.#tree.grow(node, piece);
      lease.length = node.end;
    } else {
      this.#leases.moveTo(lease, this.#tree.addLeaf(node, piece, lease.sequence, lease.canWait));
    }
    return piece.length;
  }

  /** The first position from `position` on at which a node of this lease must end. */
  #nodeEnd({ boundaries }: HeldLease, position: number): number {
    return boundaries.find((candidate) => candidate >= position) ?? Math.ceil(position / BLOCK_TOKENS) * BLOCK_TOKENS;
  }
}

/** The nodes behind one that are wholly the next tokens, and how far the tree follows these. Cost: O(limit). */
function followedNodes(
  from: RadixNode,
  tokens: readonly number[],
  limit: number,
): { readonly path: readonly RadixNode[]; readonly end: number } {
  const path: RadixNode[] = [];
  let step = from.next(tokens, from.end, limit);
  while (step !== undefined && step.length === step.node.tokenCount) {
    path.push(step.node);
    step = step.node.next(tokens, step.node.end, limit);
  }
  return { path, end: (path.at(-1) ?? from).end + (step?.length ?? 0) };
}
