import { type CostModel, type ReplacementPolicy, replacementPolicy } from '@warmpath/core';
import { checkHierarchy } from './hierarchy-check.js';
import type { HostTierOptions, HostTierStats } from './host-tier.js';
import { PromptCursor } from './prompt-cursor.js';
import type { RadixNode } from './radix-node.js';
import type { SequenceId, SequenceMemory } from './sequence-memory.js';
import type { TierListener } from './tier-listener.js';
import { type PathStep, TieredTree, type TreeReuse } from './tiered-tree.js';

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
}

/** Tokens that need not be computed, by where they were found. */
export interface SharedTokens {
  readonly device: number;
  /** Copied back from host memory. */
  readonly host: number;
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
}

const NO_COST: CostModel = { prefillMs: (_cachedTokens, newTokens) => newTokens };

/**
 * The prefix cache: a radix tree over tokens (SGLang's RadixAttention, arXiv:2312.07104 §3) on top of an engine whose
 * memory labels cells with sequence ids, and over the tiers of RAGCache's knowledge tree.
 *
 * - A node is a run of tokens; the cells of a node carry the sequence ids of all leaves below it. So a prefix is shared
 *   by labelling, never by copying, and only leaves need an id, of which there are few.
 * - A request takes a {@link Lease}: it shares the longest prefix on the device, takes over with {@link extend} what others
 *   have computed since and what the host holds, asks for cells with {@link grow} before it computes, and hands over what
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
      ...(listener !== undefined && { listener }),
    });
  }

  /** The tree as it is, for reports and tests: where prompts without a salt begin, and those of each salt. Not to be changed. */
  get roots(): readonly RadixNode[] {
    return this.#tree.roots;
  }

  get stats(): PrefixCacheStats {
    const { deviceTokens, evictedTokens, freeSequences, hostStats } = this.#tree;
    return {
      cells: this.#cells,
      usedCells: deviceTokens + this.#privateCells,
      cachedCells: deviceTokens,
      freeSequences: freeSequences.length,
      leases: this.#leases.size,
      evictedTokens,
      ...(hostStats !== undefined && { host: hostStats }),
    };
  }

  /**
   * Cells that a lease could get now: free ones, and cached ones that no lease's path needs.
   * Cost: O(nodes on the paths of all leases).
   */
  availableCells(): number {
    const pinned = new Set<RadixNode>();
    let pinnedCells = 0;
    for (const lease of this.#leases) {
      for (let node: RadixNode | undefined = lease.node; node !== undefined && !pinned.has(node); node = node.parent) {
        pinned.add(node);
        pinnedCells += node.tokenCount;
      }
    }
    return this.#cells - this.#privateCells - pinnedCells;
  }

  /**
   * Length of the longest cached prefix by tier, without touching anything. Cost: O(limit).
   *
   * @param limit Look at no more than this many tokens.
   * @param salt Look at what prompts of this salt have left, which share nothing with others.
   */
  match(tokens: readonly number[], limit: number = tokens.length, salt?: string): SharedTokens {
    const { device, host } = this.reuse(this.cursor(tokens, limit, salt));
    return { device, host };
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
    };
    this.#leases.add(lease);
    this.#check();
    return lease;
  }

  /**
   * Takes over what others have committed since and what lies in host memory, beyond the lease's own tokens. Only for a
   * lease without private cells. What would take longer to copy back than to compute again is left where it is.
   *
   * @returns How many tokens the lease gained.
   */
  extend(handle: Lease, tokens: readonly number[], limit: number): SharedTokens {
    const lease = this.#own(handle);
    if (lease.privateCells > 0) {
      throw new Error('A lease with private cells cannot be extended');
    }
    const device = this.#share(lease, tokens, limit);
    const host = this.#restore(lease, tokens, limit);
    lease.sharedTokens += device + host;
    this.#check();
    return { device, host };
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

  /** Copies back what the host holds beyond the lease's end, node by node. */
  #restore(lease: MutableLease, tokens: readonly number[], limit: number): number {
    const from = lease.length;
    for (;;) {
      const step = this.#tree.next(lease.node, tokens, lease.length, limit);
      if (step === undefined || this.availableCells() < step.length) {
        return lease.length - from;
      }
      if (!this.#tree.isWorthRestoring(step, this.#cost.prefillMs(step.node.start, step.length))) {
        return lease.length - from;
      }
      const node = this.#tree.cut(step);
      if (node === undefined) {
        return lease.length - from;
      }
      // What makes room may go to the host, where it must not push out the very node that is to come back.
      this.#tree.pin(node);
      const isBack = this.#makeRoom(node.tokenCount) && this.#tree.restore(node, lease.sequence);
      if (isBack) {
        this.#movePin(lease, node);
      }
      this.#tree.unpin(node);
      if (!isBack) {
        return lease.length - from;
      }
    }
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
    // A leaf that only this lease uses grows in place; otherwise other leases that end here, or a copy, would fall short.
    const isAlone = node.pins === 1 && node.children.size === 0 && node.copy === undefined;
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
