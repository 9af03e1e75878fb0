import { type EvictionPolicy, leastRecentlyUsed } from './eviction.js';
import type { RadixNode } from './radix-node.js';
import { RadixTree } from './radix-tree.js';
import type { SequenceId, SequenceMemory } from './sequence-memory.js';

export interface PrefixCacheOptions {
  readonly memory: SequenceMemory;
  /** KV cells in all. Every token that is cached or being computed takes exactly one. */
  readonly cells: number;
  /** Sequence ids to use: one per cached leaf and one per lease. */
  readonly sequences: readonly SequenceId[];
  readonly policy?: EvictionPolicy;
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
  /** Tokens dropped since the start. */
  readonly evictedTokens: number;
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
}

/**
 * The prefix cache: a radix tree over tokens (SGLang's RadixAttention, arXiv:2312.07104 §3) on top of an engine whose
 * memory labels cells with sequence ids.
 *
 * - A node is a run of tokens; the cells of a node carry the sequence ids of all leaves below it. So a prefix is shared
 *   by labelling, never by copying, and only leaves need an id, of which there are few (256).
 * - A request takes a {@link Lease}: it shares the longest cached prefix, asks for cells with {@link grow} before it
 *   computes, and hands over what it computed with {@link commit}, at once or when it ends. Where the same tokens are
 *   in the tree by then, the duplicates are freed and the tree's cells shared instead.
 * - When cells run short, the policy's victim among the leaves is cut from its end, by just as much as is needed.
 *
 * It is synchronous and holds no native state itself: everything it does to the engine goes through
 * {@link SequenceMemory}.
 */
export class PrefixCache {
  readonly #memory: SequenceMemory;
  readonly #cells: number;
  readonly #policy: EvictionPolicy;
  readonly #tree = new RadixTree();
  readonly #leases = new Set<MutableLease>();
  readonly #freeSequences: SequenceId[];
  #usedCells = 0;
  #privateCells = 0;
  #evictedTokens = 0;

  constructor(options: PrefixCacheOptions) {
    this.#memory = options.memory;
    this.#cells = options.cells;
    this.#policy = options.policy ?? leastRecentlyUsed;
    this.#freeSequences = [...options.sequences].reverse();
  }

  get stats(): PrefixCacheStats {
    return {
      cells: this.#cells,
      usedCells: this.#usedCells,
      cachedCells: this.#usedCells - this.#privateCells,
      freeSequences: this.#freeSequences.length,
      leases: this.#leases.size,
      evictedTokens: this.#evictedTokens,
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
   * Length of the longest cached prefix, without touching anything. Cost: O(limit).
   *
   * @param limit Look at no more than this many tokens.
   */
  match(tokens: readonly number[], limit: number = tokens.length): number {
    return this.#tree.match(tokens, limit);
  }

  /**
   * Takes a lease on the longest cached prefix.
   *
   * @param limit Share no more than this many tokens: the last token of a prompt must be computed for its logits.
   * @returns `undefined` when every sequence id is taken by leases and by leaves that they need.
   */
  acquire(tokens: readonly number[], limit: number): Lease | undefined {
    const node = this.#tree.descend(this.#tree.root, tokens, 0, limit);
    node.pins++;
    const sequence = this.#takeSequence();
    if (sequence === undefined) {
      node.pins--;
      return undefined;
    }
    if (node.end > 0) {
      this.#memory.copy(this.#tree.sequenceBelow(node), sequence, 0, node.end);
    }
    this.#tree.touch(node);
    const lease: MutableLease = { sequence, length: node.end, privateCells: 0, node };
    this.#leases.add(lease);
    return lease;
  }

  /**
   * Shares what others have committed since, beyond the lease's own tokens. Only for a lease without private cells.
   *
   * @returns How many tokens the lease gained.
   */
  extend(handle: Lease, tokens: readonly number[], limit: number): number {
    const lease = this.#own(handle);
    if (lease.privateCells > 0) {
      throw new Error('A lease with private cells cannot be extended');
    }
    const from = lease.length;
    const node = this.#tree.descend(lease.node, tokens, from, limit);
    if (node === lease.node) {
      return 0;
    }
    this.#memory.copy(this.#tree.sequenceBelow(node), lease.sequence, from, node.end);
    this.#movePin(lease, node);
    this.#tree.touch(node);
    return node.end - from;
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
    const missing = count - (this.#cells - this.#usedCells);
    if (missing > 0) {
      if (this.availableCells() < count) {
        return false;
      }
      this.#evict(missing);
    }
    lease.privateCells += count;
    this.#privateCells += count;
    this.#usedCells += count;
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
    const known = this.#adoptDuplicates(lease, tokens);
    if (known < tokens.length) {
      this.#append(lease, known === 0 ? tokens : tokens.slice(known));
    }
    this.#tree.touch(lease.node);
  }

  /** Ends a lease. Its committed tokens stay cached; private ones are dropped. */
  release(handle: Lease): void {
    const lease = this.#own(handle);
    this.#leases.delete(lease);
    lease.node.pins--;
    this.#tree.touch(lease.node);
    if (lease.node.owner === lease.sequence) {
      if (lease.privateCells > 0) {
        this.#memory.remove(lease.sequence, lease.length, -1);
      }
    } else {
      this.#freeSequence(lease.sequence);
    }
    this.#usedCells -= lease.privateCells;
    this.#privateCells -= lease.privateCells;
    lease.privateCells = 0;
  }

  /** Where the tree already has what the lease computed: frees the lease's own cells and shares the tree's. */
  #adoptDuplicates(lease: MutableLease, tokens: readonly number[]): number {
    const from = lease.length;
    const node = this.#tree.descend(lease.node, tokens, 0, tokens.length);
    const known = node === lease.node ? 0 : node.end - from;
    if (known > 0) {
      this.#memory.remove(lease.sequence, from, from + known);
      this.#memory.copy(this.#tree.sequenceBelow(node), lease.sequence, from, from + known);
      this.#usedCells -= known;
      this.#movePin(lease, node);
    }
    return known;
  }

  /** Adds tokens that the tree does not have below the lease's node, and makes the lease's sequence their owner. */
  #append(lease: MutableLease, tokens: readonly number[]): void {
    const node = lease.node;
    // A leaf that only this lease uses grows in place; otherwise other leases that end here would grow with it.
    if (node.owner === lease.sequence && node.pins === 1) {
      node.tokens.push(...tokens);
      lease.length = node.end;
      return;
    }
    const { leaf, former } = this.#tree.addLeaf(node, tokens, lease.sequence);
    if (former !== undefined && !this.#isLeased(former)) {
      this.#freeSequence(former);
    }
    this.#movePin(lease, leaf);
  }

  #isLeased(sequence: SequenceId): boolean {
    for (const lease of this.#leases) {
      if (lease.sequence === sequence) {
        return true;
      }
    }
    return false;
  }

  #movePin(lease: MutableLease, node: RadixNode): void {
    lease.node.pins--;
    node.pins++;
    lease.node = node;
    lease.length = node.end;
  }

  /** Frees exactly `count` cells from the ends of victims. The caller has checked that there are as many. */
  #evict(count: number): void {
    let missing = count;
    while (missing > 0) {
      const leaf = this.#policy.victim(this.#tree.unpinnedLeaves());
      if (leaf === undefined) {
        throw new Error('The prefix cache has fewer evictable cells than it counted');
      }
      const cut = Math.min(missing, leaf.tokenCount);
      this.#trim(leaf, cut);
      missing -= cut;
    }
  }

  /** Drops tokens from a leaf's end, and frees its sequence when nothing is left for it to own. */
  #trim(leaf: RadixNode, count: number): void {
    const owner = leaf.owner!;
    this.#memory.remove(owner, leaf.end - count, -1);
    this.#usedCells -= count;
    this.#evictedTokens += count;
    if (this.#tree.trimLeaf(leaf, count)) {
      this.#freeSequence(owner);
    }
  }

  /** A free sequence id; when there is none, evicts a victim's whole branch, up to where others share it. */
  #takeSequence(): SequenceId | undefined {
    while (this.#freeSequences.length === 0) {
      const victim = this.#policy.victim(this.#tree.unpinnedLeaves());
      if (victim === undefined) {
        return undefined;
      }
      const owner = victim.owner;
      let leaf: RadixNode = victim;
      while (leaf.owner === owner && leaf.pins === 0) {
        const parent: RadixNode = leaf.parent!;
        this.#trim(leaf, leaf.tokenCount);
        leaf = parent;
      }
    }
    return this.#freeSequences.pop();
  }

  #freeSequence(sequence: SequenceId): void {
    this.#memory.remove(sequence, 0, -1);
    this.#freeSequences.push(sequence);
  }

  #own(handle: Lease): MutableLease {
    const lease = handle as MutableLease;
    if (!this.#leases.has(lease)) {
      throw new Error('This lease was released');
    }
    return lease;
  }
}
