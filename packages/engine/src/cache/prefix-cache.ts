import type { CostModel, Tier } from '@warmpath/core/internal';
import type { DiskTierStats } from './disk-tier.js';
import type { HostTierStats } from './host-tier.js';
import { type Extension, type HeldLease, type Lease, LeaseTable } from './lease-table.js';
import type { RadixNode } from './radix-node.js';
import type { SequenceMemory } from './sequence-memory.js';
import { TieredTree, type TieredTreeOptions } from './tiered-tree.js';
import type { TokensByTier } from './tokens-by-tier.js';

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
  /** Present when there is a host tier. */
  readonly host?: HostTierStats;
  /** Present when there is a disk tier. */
  readonly disk?: DiskTierStats;
}

/**
 * The prefix cache: a radix tree over tokens (SGLang's RadixAttention, arXiv:2312.07104 §3) over the tiers of
 * RAGCache's knowledge tree. A request takes a {@link Lease}, which shares the longest prefix on the device. It gains
 * with {@link extend} what others have computed since and what lower tiers hold, takes cells with {@link grow} before
 * it computes, and puts what it computed into the tree with {@link commit}. When cells run short, leaves are evicted.
 * Synchronous; it reaches the engine through {@link SequenceMemory} alone.
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
    this.#leases = new LeaseTable({ tree, memory, cells, cost });
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
      ...(lower !== undefined && { host: lower.hostStats }),
      ...(lower?.diskStats !== undefined && { disk: lower.diskStats }),
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
    if (node.end > 0) {
      this.#memory.copy(this.#tree.sequenceBelow(node), sequence, 0, node.end);
    }
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
      patientUntilMs: undefined,
    };
    this.#leases.add(lease);
    return lease;
  }

  /**
   * Takes over what others have committed since and what lies in host memory, beyond the lease's own tokens. Only for a
   * lease without private cells. What comes next on the disk is read, and the lease waits no longer than computing it
   * would take.
   *
   * @returns What the lease gained, by where it was; what was read from the disk for this prompt counts as from there.
   */
  extend(handle: Lease, tokens: readonly number[], limit: number): Extension {
    const lease = this.#leases.own(handle);
    if (lease.privateCells > 0) {
      throw new Error('A lease with private cells cannot be extended');
    }
    const device = this.#share(lease, tokens, limit);
    const { host, disk, isAwaitingDisk } = this.#leases.restore(lease, tokens, limit);
    lease.sharedTokens += device + host + disk;
    return { device, host, disk, isAwaitingDisk };
  }

  /**
   * Begins to read what the disk holds of a prompt whose turn comes soon. Cost: O(limit).
   */
  prefetch(tokens: readonly number[], limit: number, salt?: string): void {
    const root = this.#tree.existingRoot(salt);
    if (root !== undefined) {
      this.#leases.fetch(root, tokens, { from: 0, to: limit });
    }
  }

  /** Takes what has come from the disk since the last call. Call it between two decodes. */
  settle(): void {
    this.#tree.lower?.settle();
  }

  /** Whether anything is on its way from the disk. */
  get isReading(): boolean {
    return this.#tree.lower?.isReading ?? false;
  }

  /** Waits for something to come from the disk for {@link settle}. */
  async waitForDisk(): Promise<void> {
    await this.#tree.lower?.waitForDisk();
  }

  /**
   * Writes what is nowhere on the disk yet, as far as there is room, and closes the disk tier. No lease may be left.
   *
   * @param isInTime Asked before each file; when not, nothing more is begun.
   */
  async close(isInTime: () => boolean): Promise<void> {
    await this.#tree.lower?.close(this.#tree.roots, isInTime);
  }

  /**
   * Moves cells to host memory that no lease needs: on a CPU, every step passes over all cells in use. Does nothing
   * without a host tier, where they would be lost. Cost: O(nodes on the paths of leases), and a copy of the cells.
   */
  clearIdle(): void {
    const idle = this.#tree.movesNodes ? this.#leases.usedCells - this.#leases.leasedCells() : 0;
    if (idle > 0) {
      this.#tree.freeCells(idle);
    }
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
    if (!this.#leases.makeRoom(count)) {
      return false;
    }
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
    if (tokens.length > lease.privateCells) {
      throw new Error('A lease cannot commit more tokens than it computed');
    }
    this.#leases.addPrivate(lease, -tokens.length);
    this.#leases.addPrivate(lease, tokens.length - this.#leases.handOver(lease, tokens));
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
      if (!this.checkpoints) {
        this.#memory.remove(lease.sequence, lease.length, -1);
      }
      this.#leases.addPrivate(lease, -lease.privateCells);
    }
    if (wasUsed) {
      this.#countUse(lease);
    }
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
}
