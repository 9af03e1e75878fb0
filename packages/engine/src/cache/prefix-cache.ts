import { type CostModel, type ReplacementPolicy, replacementPolicy } from '@warmpath/core';
import type { DiskTierOptions, DiskTierStats } from './disk-tier.js';
import { checkHierarchy } from './hierarchy-check.js';
import type { HostTierOptions, HostTierStats, Range } from './host-tier.js';
import { PromptCursor } from './prompt-cursor.js';
import type { RadixNode } from './radix-node.js';
import type { SequenceId, SequenceMemory } from './sequence-memory.js';
import type { TierListener } from './tier-listener.js';
import { type PathStep, TieredTree, type TokensByTier, type TreeReuse } from './tiered-tree.js';

/**
 * Where nobody says where documents end, nodes that move between tiers are cut at multiples of this many tokens: large
 * enough that a copy's fixed cost does not count, small enough that prompts that part late share most of their nodes.
 */
const BLOCK_TOKENS = 128;

export interface PrefixCacheOptions {
  readonly memory: SequenceMemory;
  /** KV cells in all. Every token that is on the device or being computed takes exactly one. */
  readonly cells: number;
  /** Sequence ids to use: one per leaf on the device and one per lease. */
  readonly sequences: readonly SequenceId[];
  /** Decides what leaves a tier first; `lru` when left out. */
  readonly policy?: ReplacementPolicy;
  /** What computing costs, for policies that ask and to see when computing again is cheaper than copying back. */
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

/** What a lease gained. */
export interface Extension extends TokensByTier {
  /** Whether the next tokens are on their way from the disk, and worth waiting for. */
  readonly isAwaitingDisk: boolean;
}

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

interface MutableLease {
  sequence: SequenceId;
  length: number;
  privateCells: number;
  node: RadixNode;
  /** Tokens of the request when it came. */
  readonly promptTokens: number;
  /** Those of them that it did not have to compute. */
  sharedTokens: number;
  /** Positions at which nodes end, ascending. */
  readonly boundaries: readonly number[];
  /** Until when the lease waits for the disk, once it has begun to. */
  patientUntilMs: number | undefined;
}

const NO_COST: CostModel = { prefillMs: (_cachedTokens, newTokens) => newTokens };

/**
 * The prefix cache: a radix tree over tokens (SGLang's RadixAttention, arXiv:2312.07104 §3) on top of an engine whose
 * memory labels cells with sequence ids, and over the tiers of RAGCache's knowledge tree.
 *
 * - A node is a run of tokens; the cells of a node carry the sequence ids of all leaves below it. So a prefix is shared
 *   by labelling, never by copying, and only leaves need an id, of which there are few.
 * - A request takes a {@link Lease}: it shares the longest prefix on the device, takes over with {@link extend} what others
 *   have computed since and what the host and the disk hold, asks for cells with {@link grow} before it computes, and hands over what
 *   it computed with {@link commit}, at once or when it ends. Where the same tokens are in the tree by then, the duplicates
 *   are freed and the tree's cells shared instead.
 * - When cells run short, the policy's victim among the leaves goes: to host memory as a whole where there is a host tier,
 *   or else from its end, by just as much as is needed.
 *
 * It is synchronous and holds no native state itself: everything it does to the engine goes through
 * {@link SequenceMemory}.
 */
export class PrefixCache {
  readonly #memory: SequenceMemory;
  readonly #cells: number;
  readonly #cost: CostModel;
  readonly #tree: TieredTree;
  readonly #verify: boolean;
  readonly #sequences: number;
  readonly #leases = new Set<MutableLease>();
  #privateCells = 0;

  constructor(options: PrefixCacheOptions) {
    const {
      memory,
      cells,
      sequences,
      policy = replacementPolicy('lru'),
      cost = NO_COST,
      host,
      disk,
      listener,
      verify = false,
    } = options;
    this.#memory = memory;
    this.#cells = cells;
    this.#cost = cost;
    this.#verify = verify;
    this.#sequences = sequences.length;
    this.#tree = new TieredTree({
      memory,
      sequences,
      policy,
      ...(host !== undefined && { host }),
      ...(disk !== undefined && { disk }),
      ...(listener !== undefined && { listener }),
    });
  }

  /** The tree as it is, for reports and tests: where prompts without a salt begin, and those of each salt. Not to be changed. */
  get roots(): readonly RadixNode[] {
    return this.#tree.roots;
  }

  /** A sequence that holds the cells of a node on the device and of everything above it. */
  sequenceOf(node: RadixNode): SequenceId {
    return this.#tree.sequenceBelow(node);
  }

  get stats(): PrefixCacheStats {
    const { deviceTokens, evictedTokens, freeSequences, hostStats, diskStats } = this.#tree;
    return {
      cells: this.#cells,
      usedCells: deviceTokens + this.#privateCells,
      cachedCells: deviceTokens,
      freeSequences: freeSequences.length,
      leases: this.#leases.size,
      evictedTokens,
      ...(hostStats !== undefined && { host: hostStats }),
      ...(diskStats !== undefined && { disk: diskStats }),
    };
  }

  /** Cells that a lease could get now: free ones, and cached ones that no lease's path needs. Cost: that of {@link leasedCells}. */
  availableCells(): number {
    return this.#cells - this.leasedCells();
  }

  /** Cells that leases hold: their paths', each counted once, and private ones. Cost: O(nodes on the paths of all leases). */
  leasedCells(): number {
    const pinned = new Set<RadixNode>();
    let pinnedCells = 0;
    for (const lease of this.#leases) {
      for (let node: RadixNode | undefined = lease.node; node !== undefined && !pinned.has(node); node = node.parent) {
        pinned.add(node);
        pinnedCells += node.tokenCount;
      }
    }
    return this.#privateCells + pinnedCells;
  }

  /**
   * Length of the longest cached prefix by tier, without touching anything. Cost: O(limit).
   *
   * @param limit Look at no more than this many tokens.
   * @param salt Look at what prompts of this salt have left, which share nothing with others.
   */
  match(tokens: readonly number[], limit: number = tokens.length, salt?: string): TokensByTier {
    const { device, host, disk } = this.reuse(this.cursor(tokens, limit, salt));
    return { device, host, disk };
  }

  /**
   * Follows a prompt in the tree, for {@link reuse}.
   *
   * @param limit Look at no more than this many tokens.
   * @param salt Look at what prompts of this salt have left.
   */
  cursor(tokens: readonly number[], limit: number, salt?: string): PromptCursor {
    return new PromptCursor(tokens, limit, () => this.#tree.existingRoot(salt));
  }

  /**
   * What a prompt would find now, by tier, and how long bringing it to the device is expected to take. Cost: O(tokens) the
   * first time that a cursor is used, then O(what has changed on its path).
   */
  reuse(cursor: PromptCursor): TreeReuse {
    return this.#tree.reuse(cursor);
  }

  /**
   * Takes a lease on the longest prefix that is on the device.
   *
   * @param limit Share no more than this many tokens: the last token of a prompt must be computed for its logits.
   * @param boundaries Positions at which documents end, ascending: what is added to the tree for this lease is cut there.
   * @param salt Keeps the prompt apart: it shares tokens with prompts of the same salt alone.
   * @returns `undefined` when every sequence id is taken by leases and by leaves that they need.
   */
  acquire(
    tokens: readonly number[],
    limit: number,
    boundaries: readonly number[] = [],
    salt?: string,
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
    const lease: MutableLease = {
      sequence,
      length: node.end,
      privateCells: 0,
      node,
      promptTokens: tokens.length,
      sharedTokens: node.end,
      boundaries,
      patientUntilMs: undefined,
    };
    this.#leases.add(lease);
    this.#check();
    return lease;
  }

  /**
   * Takes over what others have committed since and what lies in host memory, beyond the lease's own tokens. Only for a
   * lease without private cells. What would take longer to copy back than to compute again is left where it is. What comes
   * next on the disk is read, and the lease waits for it no longer than computing it would take.
   *
   * @returns What the lease gained, by where it was; what was read from the disk for this prompt counts as from there.
   */
  extend(handle: Lease, tokens: readonly number[], limit: number): Extension {
    const lease = this.#own(handle);
    if (lease.privateCells > 0) {
      throw new Error('A lease with private cells cannot be extended');
    }
    const device = this.#share(lease, tokens, limit);
    const { host, disk, isAwaitingDisk } = this.#restore(lease, tokens, limit);
    lease.sharedTokens += device + host + disk;
    this.#check();
    return { device, host, disk, isAwaitingDisk };
  }

  /**
   * Begins to read what the disk holds of a prompt whose turn comes soon, so that it is in host memory by then: this goes on
   * beside a decode. Cost: O(limit).
   */
  prefetch(tokens: readonly number[], limit: number, salt?: string): void {
    const root = this.#tree.existingRoot(salt);
    if (root !== undefined) {
      this.#fetch(root, tokens, { from: 0, to: limit });
    }
  }

  /** Takes what has come from the disk since the last call. Call it between two decodes. */
  settle(): void {
    this.#tree.lower?.settle();
    this.#check();
  }

  /** Whether anything is on its way from the disk. */
  get isReading(): boolean {
    return this.#tree.lower?.isReading ?? false;
  }

  /** Settles when something has come from the disk for {@link settle}. */
  async news(): Promise<void> {
    await this.#tree.lower?.news();
  }

  /**
   * Writes what is nowhere on the disk yet, as far as there is room, and closes the disk tier. No lease may be left.
   *
   * @param isInTime Asked before each file; when not, nothing more is begun.
   */
  async close(isInTime: () => boolean): Promise<void> {
    await this.#tree.lower?.close(this.#tree.roots, isInTime);
  }

  /** Whether two leases end at the same place of the tree, that is, hold the same tokens so far. */
  samePath(a: Lease, b: Lease): boolean {
    return this.#own(a).node === this.#own(b).node;
  }

  /**
   * Makes room for `count` more tokens of this lease, evicting where needed.
   *
   * @returns Whether there is room; when there is not, nothing was evicted.
   */
  grow(handle: Lease, count: number): boolean {
    const lease = this.#own(handle);
    if (!this.#makeRoom(count)) {
      return false;
    }
    lease.privateCells += count;
    this.#privateCells += count;
    this.#check();
    return true;
  }

  /**
   * Puts the next tokens that this lease computed into the tree, where other requests may share them.
   *
   * @param tokens The tokens at positions `lease.length` …; no more than it has private cells.
   */
  commit(handle: Lease, tokens: readonly number[]): void {
    const lease = this.#own(handle);
    if (tokens.length > lease.privateCells) {
      throw new Error('A lease cannot commit more tokens than it computed');
    }
    lease.privateCells -= tokens.length;
    this.#privateCells -= tokens.length;
    for (let done = 0; done < tokens.length; ) {
      const step = this.#tree.next(lease.node, tokens, done, tokens.length);
      if (step === undefined) {
        done += this.#append(lease, tokens, done);
      } else {
        done += this.#adopt(lease, step);
      }
    }
    this.#check();
  }

  /**
   * Ends a lease. Its committed tokens stay cached; private ones are dropped.
   *
   * @param wasUsed Whether its path counts as used, for the replacement policy.
   */
  release(handle: Lease, wasUsed = true): void {
    const lease = this.#own(handle);
    this.#leases.delete(lease);
    if (lease.privateCells > 0) {
      this.#memory.remove(lease.sequence, lease.length, -1);
      this.#privateCells -= lease.privateCells;
      lease.privateCells = 0;
    }
    if (wasUsed) {
      this.#countUse(lease);
    }
    this.#tree.unpin(lease.node);
    this.#tree.endLease(lease.sequence, lease.node);
    this.#check();
  }

  #countUse(lease: MutableLease): void {
    const newTokens = lease.promptTokens - lease.sharedTokens;
    this.#tree.use({
      nodes: lease.node.path(),
      cachedTokens: lease.sharedTokens,
      costPerToken: newTokens > 0 ? this.#cost.prefillMs(lease.sharedTokens, newTokens) / newTokens : 0,
    });
  }

  #makeRoom(count: number): boolean {
    const missing = count - (this.#cells - this.#tree.deviceTokens - this.#privateCells);
    if (missing > 0) {
      if (this.availableCells() < count) {
        return false;
      }
      this.#tree.freeCells(missing);
    }
    return true;
  }

  /** Shares what is on the device beyond the lease's end. */
  #share(lease: MutableLease, tokens: readonly number[], limit: number): number {
    const from = lease.length;
    const node = this.#tree.descend(lease.node, tokens, from, limit);
    if (node !== lease.node) {
      this.#memory.copy(this.#tree.sequenceBelow(node), lease.sequence, from, node.end);
      this.#movePin(lease, node);
    }
    return node.end - from;
  }

  /** Copies back what the host holds beyond the lease's end, node by node, and asks for what comes next on the disk. */
  #restore(lease: MutableLease, tokens: readonly number[], limit: number): Omit<Extension, 'device'> {
    const gained = { host: 0, disk: 0 };
    for (;;) {
      const step = this.#tree.next(lease.node, tokens, lease.length, limit);
      if (step === undefined || this.availableCells() < step.length) {
        return { ...gained, isAwaitingDisk: false };
      }
      if (step.node.copy === undefined) {
        return { ...gained, isAwaitingDisk: this.#awaitsDisk(lease, tokens, limit) };
      }
      const tier = step.node.copy.isFresh === true ? 'disk' : 'host';
      const node = this.#bringBack(lease, step);
      if (node === undefined) {
        return { ...gained, isAwaitingDisk: false };
      }
      gained[tier] += node.tokenCount;
    }
  }

  /** @returns The node, on the device and at the lease's end; `undefined` when it is not worth it, or its copy was no good. */
  #bringBack(lease: MutableLease, step: PathStep): RadixNode | undefined {
    const computeMs = this.#cost.prefillMs(step.node.start, step.length);
    if (!this.#tree.lower!.isWorthRestoring(step.node, step.length, computeMs)) {
      return undefined;
    }
    const node = this.#tree.cut(step);
    if (node === undefined || node.copy === undefined) {
      return undefined;
    }
    // What makes room may go to the host, where it must not push out the very node that is to come back.
    this.#tree.pin(node);
    const isBack = this.#makeRoom(node.tokenCount) && this.#tree.restore(node, lease.sequence);
    if (isBack) {
      this.#movePin(lease, node);
    }
    this.#tree.unpin(node);
    return isBack ? node : undefined;
  }

  /**
   * Whether what comes next is on its way from the disk and the lease still has patience: in all as long as computing what it
   * waits for would take, so that it loses at most that.
   */
  #awaitsDisk(lease: MutableLease, tokens: readonly number[], limit: number): boolean {
    const coming = this.#fetch(lease.node, tokens, { from: lease.length, to: limit });
    if (coming === 0) {
      return false;
    }
    const nowMs = this.#tree.lower!.nowMs();
    lease.patientUntilMs ??= nowMs + this.#cost.prefillMs(lease.length, coming);
    return nowMs <= lease.patientUntilMs;
  }

  /**
   * Begins to read the nodes along `tokens[from …]` that lie on the disk alone.
   *
   * @returns How many tokens of them are on their way.
   */
  #fetch(from: RadixNode, tokens: readonly number[], { from: offset, to: limit }: Range): number {
    let coming = 0;
    let step = this.#tree.next(from, tokens, offset, limit);
    while (step !== undefined) {
      const { node, length } = step;
      if (!node.onDevice && node.copy === undefined) {
        if (!this.#tree.lower!.load(node, this.#cost.prefillMs(node.start, length))) {
          return coming;
        }
        coming += length;
      }
      step = length < node.tokenCount ? undefined : this.#tree.next(node, tokens, node.end, limit);
    }
    return coming;
  }

  /**
   * The tree has what the lease computed: on the device, then the lease's own cells are freed and the tree's shared; or in
   * host memory alone, then the lease's cells are the node's from now on.
   *
   * @returns How many tokens that was; 0 when the node was no good and is gone.
   */
  #adopt(lease: MutableLease, step: PathStep): number {
    const node = this.#tree.cut(step);
    if (node === undefined) {
      return 0;
    }
    if (node.onDevice) {
      this.#memory.remove(lease.sequence, node.start, node.end);
      this.#memory.copy(this.#tree.sequenceBelow(node), lease.sequence, node.start, node.end);
    } else {
      this.#tree.comeToDevice(node, lease.sequence);
    }
    this.#movePin(lease, node);
    return node.tokenCount;
  }

  /**
   * Adds tokens that the tree does not have, up to the next place where a node must end, and makes the lease's sequence
   * their owner.
   *
   * @returns How many.
   */
  #append(lease: MutableLease, tokens: readonly number[], from: number): number {
    const end = this.#nodeEnd(lease, lease.length + 1);
    const piece = tokens.slice(from, from + (end - lease.length));
    const { node } = lease;
    // A leaf that only this lease uses grows in place; otherwise other leases that end here, a copy or a file would fall short.
    const isAlone = node.pins === 1 && node.children.size === 0 && node.copy === undefined && node.file === undefined;
    const isOwn = node.owner === lease.sequence && isAlone;
    if (isOwn && this.#nodeEnd(lease, lease.length) > lease.length) {
      this.#tree.grow(node, piece);
      lease.length = node.end;
    } else {
      this.#movePin(lease, this.#tree.addLeaf(node, piece, lease.sequence));
    }
    return piece.length;
  }

  /** The first position from `position` on at which a node of this lease must end. */
  #nodeEnd({ boundaries }: MutableLease, position: number): number {
    const boundary = boundaries.find((candidate) => candidate >= position);
    if (boundary !== undefined) {
      return boundary;
    }
    return this.#tree.movesNodes ? Math.ceil(position / BLOCK_TOKENS) * BLOCK_TOKENS : Number.POSITIVE_INFINITY;
  }

  #movePin(lease: MutableLease, node: RadixNode): void {
    this.#tree.pin(node);
    this.#tree.unpin(lease.node);
    lease.node = node;
    lease.length = node.end;
  }

  #own(handle: Lease): MutableLease {
    const lease = handle as MutableLease;
    if (!this.#leases.has(lease)) {
      throw new Error('This lease was released');
    }
    return lease;
  }

  #check(): void {
    if (this.#verify) {
      checkHierarchy(this.#tree, [...this.#leases], this.#sequences);
    }
  }
}
