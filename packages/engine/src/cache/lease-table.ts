import type { CostModel } from '@warmpath/core/internal';
import type { Range } from './host-tier.js';
import type { PathStep, RadixNode } from './radix-node.js';
import type { SequenceId, SequenceMemory } from './sequence-memory.js';
import type { TieredTree } from './tiered-tree.js';
import type { TokensByTier } from './tokens-by-tier.js';

/** Tokens of a node that moves between tiers, where the request names no ends of documents. */
const BLOCK_TOKENS = 128;

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
  /** Where sequences go on at checkpoints alone: tokens that it has in common with an earlier prompt, as last seen. */
  readonly commonTokens: number;
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
  commonTokens: number;
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

export interface LeaseTableOptions {
  readonly tree: TieredTree;
  readonly memory: SequenceMemory;
  /** KV cells in all. */
  readonly cells: number;
  /** Says what computing again would take. */
  readonly cost: CostModel;
}

/** All leases and their cells: what they bring back from lower tiers, and what they compute and put into the tree. */
export class LeaseTable {
  readonly #tree: TieredTree;
  readonly #memory: SequenceMemory;
  readonly #cost: CostModel;
  readonly #leases = new Set<HeldLease>();
  #privateCells = 0;

  /** KV cells in all. */
  readonly cells: number;

  constructor({ tree, memory, cells, cost }: LeaseTableOptions) {
    this.#tree = tree;
    this.#memory = memory;
    this.#cost = cost;
    this.cells = cells;
  }

  get size(): number {
    return this.#leases.size;
  }

  [Symbol.iterator](): Iterator<HeldLease> {
    return this.#leases.values();
  }

  /** Cells that hold a token: cached, or private to a lease. */
  get usedCells(): number {
    return this.#tree.checkpoints ? this.leasedCells() : this.#tree.deviceTokens + this.#privateCells;
  }

  /** Cells that a lease could get now: free ones, and cached ones that no lease needs. Cost: {@link leasedCells}. */
  availableCells(): number {
    return this.cells - this.leasedCells();
  }

  /** Cells that leases hold: those of their paths, counted once, and private ones. Cost: O(nodes on all paths). */
  leasedCells(): number {
    if (this.#tree.checkpoints) {
      return [...this.#leases].reduce((sum, { length }) => sum + length, this.#privateCells);
    }
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

  /** A lease that begins; its node is pinned already. */
  add(lease: HeldLease): void {
    this.#leases.add(lease);
  }

  /** A lease that ends; its node stays pinned. */
  delete(lease: HeldLease): void {
    this.#leases.delete(lease);
  }

  /**
   * What stands behind a lease that was given out.
   *
   * @throws Error when it was released.
   */
  own(handle: Lease): HeldLease {
    const lease = handle as HeldLease;
    if (!this.#leases.has(lease)) {
      throw new Error('This lease was released');
    }
    return lease;
  }

  /** A lease has so many private cells more, or fewer. */
  addPrivate(lease: HeldLease, count: number): void {
    lease.privateCells += count;
    this.#privateCells += count;
  }

  /** A lease ends at another node from now on. */
  moveTo(lease: HeldLease, node: RadixNode): void {
    this.#tree.pin(node);
    this.#tree.unpin(lease.node);
    lease.node = node;
    lease.length = node.end;
  }

  /**
   * Frees cells of the tree until so many are free.
   *
   * @returns Whether there is room; when there is not, nothing was evicted.
   */
  makeRoom(count: number): boolean {
    const missing = count - (this.cells - this.usedCells);
    if (missing > 0) {
      if (this.availableCells() < count) {
        return false;
      }
      this.#tree.freeCells(missing);
    }
    return true;
  }

  /**
   * Copies back what the host holds beyond a lease's end, node by node and the nearest tier first (RAGCache §5.1), and
   * asks for what comes next on the disk.
   *
   * @returns What the lease gained; what was read from the disk for this prompt counts as from there.
   */
  restore(lease: HeldLease, tokens: readonly number[], limit: number): Omit<Extension, 'device'> {
    if (this.#tree.checkpoints) {
      return this.#resume(lease, tokens, limit);
    }
    const gained = { host: 0, disk: 0, isAwaitingDisk: false };
    for (;;) {
      const step = lease.node.next(tokens, lease.length, limit);
      if (step === undefined || this.availableCells() < step.length) {
        return gained;
      }
      if (step.node.copy === undefined) {
        gained.isAwaitingDisk = this.#awaitsDisk(lease, tokens, limit);
        return gained;
      }
      const tier = step.node.copy.isFresh === true ? 'disk' : 'host';
      const node = this.#bringBack(lease, step);
      if (node === undefined) {
        return gained;
      }
      gained[tier] += node.tokenCount;
    }
  }

  /**
   * Begins to read the nodes along `tokens[from …]` that lie on the disk alone.
   *
   * @returns How many tokens of them are on their way.
   */
  fetch(from: RadixNode, tokens: readonly number[], { from: offset, to: limit }: Range): number {
    let coming = 0;
    let step = from.next(tokens, offset, limit);
    while (step !== undefined) {
      const { node, length } = step;
      if (!node.onDevice && node.copy === undefined) {
        if (!this.#tree.lower!.load(node)) {
          return coming;
        }
        coming += length;
      }
      step = length < node.tokenCount ? undefined : node.next(tokens, node.end, limit);
    }
    return coming;
  }

  /**
   * Puts the tokens at positions `lease.length` … into the tree, where other requests may share them: their cells stop
   * being private to the lease.
   *
   * @returns How many: all, but where there is no room for a checkpoint.
   */
  handOver(lease: HeldLease, tokens: readonly number[]): number {
    if (this.#tree.checkpoints) {
      return this.#saveCheckpoint(lease, tokens);
    }
    for (let done = 0; done < tokens.length; ) {
      const step = lease.node.next(tokens, done, tokens.length);
      if (step === undefined) {
        done += this.#append(lease, tokens, done);
      } else {
        done += this.#adopt(lease, step);
      }
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
          ? this.#tree.lower!.addSaved(parent, tokens.slice(done), sequence, canWait)
          : this.#tree.cut(step);
      if (node === undefined && step === undefined) {
        return done;
      }
      if (node !== undefined) {
        done += node.tokenCount;
        if (done === tokens.length && !node.isResumable) {
          this.#tree.lower!.saveAgain(node, sequence);
        }
        this.moveTo(lease, node);
      }
    }
    return tokens.length;
  }

  /**
   * Copies back the path to the last checkpoint beyond a lease's end, as far as it is in host memory, and asks for what
   * lies on the disk.
   */
  #resume(lease: HeldLease, tokens: readonly number[], limit: number): Omit<Extension, 'device'> {
    const gained = { host: 0, disk: 0, isAwaitingDisk: false };
    const { path, end: commonTokens } = followedNodes(lease.node, tokens, limit);
    lease.commonTokens = commonTokens;
    const end = path.findLastIndex(({ isResumable }) => isResumable) + 1;
    const far = path.slice(0, end).findIndex(({ copy }) => copy === undefined);
    if (far >= 0 && this.#awaitsDisk(lease, tokens, path[end - 1]!.end)) {
      return { ...gained, isAwaitingDisk: true };
    }
    const near = path.slice(0, far < 0 ? end : far);
    const back = near.slice(0, near.findLastIndex(({ isResumable }) => isResumable) + 1);
    const last = back.at(-1);
    if (last === undefined || this.availableCells() < last.end - lease.length) {
      return gained;
    }
    this.#tree.pin(last);
    for (const node of back) {
      const tier = node.copy!.isFresh === true ? 'disk' : 'host';
      if (!this.#tree.lower!.restore(node, lease.sequence)) {
        this.#tree.unpin(last);
        this.#startAgain(lease);
        return { host: 0, disk: 0, isAwaitingDisk: false };
      }
      gained[tier] += node.tokenCount;
    }
    this.moveTo(lease, last);
    this.#tree.unpin(last);
    return gained;
  }

  /** A copy was no good, and what came back before it is no place to go on: the lease has again what it had. */
  #startAgain({ node, sequence }: HeldLease): void {
    this.#memory.remove(sequence, 0, -1);
    for (const own of node.path()) {
      if (own.copy === undefined || !this.#tree.lower!.restore(own, sequence)) {
        throw new Error('A lease loses the checkpoint that it stands on');
      }
    }
  }

  /** @returns The node, on the device and at the lease's end; `undefined` when its copy was no good. */
  #bringBack(lease: HeldLease, step: PathStep): RadixNode | undefined {
    const node = this.#tree.cut(step);
    if (node === undefined || node.copy === undefined) {
      return undefined;
    }
    // What makes room may go to the host, where it must not push out the very node that is to come back.
    this.#tree.pin(node);
    const isBack = this.makeRoom(node.tokenCount) && this.#tree.restore(node, lease.sequence);
    if (isBack) {
      this.moveTo(lease, node);
    }
    this.#tree.unpin(node);
    return isBack ? node : undefined;
  }

  /**
   * Whether what comes next is on its way from the disk, and the lease has waited less than computing it would take.
   */
  #awaitsDisk(lease: HeldLease, tokens: readonly number[], limit: number): boolean {
    const coming = this.fetch(lease.node, tokens, { from: lease.length, to: limit });
    if (coming === 0) {
      return false;
    }
    const nowMs = this.#tree.lower!.nowMs();
    lease.patientUntilMs ??= nowMs + this.#cost.prefillMs(lease.length, coming);
    return nowMs <= lease.patientUntilMs;
  }

  /**
   * The tree has what the lease computed: on the device, then the lease's own cells are freed and the tree's shared; or
   * in host memory alone, then the lease's cells are the node's from now on.
   *
   * @returns How many tokens that was; 0 when the node was no good and is gone.
   */
  #adopt(lease: HeldLease, step: PathStep): number {
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
    this.moveTo(lease, node);
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
      this.moveTo(lease, this.#tree.addLeaf(node, piece, lease.sequence, lease.canWait));
    }
    return piece.length;
  }

  /** The first position from `position` on at which a node of this lease must end. */
  #nodeEnd({ boundaries }: HeldLease, position: number): number {
    const boundary = boundaries.find((candidate) => candidate >= position);
    if (boundary !== undefined) {
      return boundary;
    }
    return this.#tree.movesNodes ? Math.ceil(position / BLOCK_TOKENS) * BLOCK_TOKENS : Number.POSITIVE_INFINITY;
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
