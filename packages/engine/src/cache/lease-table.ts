import type { RadixNode } from './radix-node.js';
import type { SequenceId } from './sequence-memory.js';
import type { TieredTree } from './tiered-tree.js';

/**
 * A running request's hold on the cache: its own sequence id, and a path that cannot be evicted. Its tokens are the
 * tokens of the path, then private ones that were computed and are not committed yet.
 */
export interface Lease {
  readonly sequence: SequenceId;
  /** Tokens of the path: shared at the start, then committed. */
  readonly length: number;
  /** Cells that were taken with `grow` and not committed yet. */
  readonly privateCells: number;
  /** With checkpoints: tokens that it has in common with an earlier prompt, as of the last `extend`. */
  readonly commonTokens: number;
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
  /** Whether it is work of low priority, which displaces nothing that other work uses. */
  readonly canWait: boolean;
}

/** All leases, and the cells that they hold. */
export class LeaseTable {
  readonly #tree: TieredTree;
  readonly #leases = new Set<HeldLease>();
  #privateCells = 0;

  /** KV cells in all. */
  readonly cells: number;

  constructor(tree: TieredTree, cells: number) {
    this.#tree = tree;
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
    if (this.#tree.checkpoints) return [...this.#leases].reduce((sum, { length }) => sum + length, this.#privateCells);
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

  /** @throws Error when the lease was released. */
  own(handle: Lease): HeldLease {
    const lease = handle as HeldLease;
    if (!this.#leases.has(lease)) throw new Error('This lease was released');
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
   * Evicts nodes from the device until so many cells are free.
   *
   * @returns Whether there is room; when there is not, nothing was evicted.
   */
  makeRoom(count: number): boolean {
    const missing = count - (this.cells - this.usedCells);
    if (missing > 0) {
      if (this.availableCells() < count) return false;
      this.#tree.freeCells(missing);
    }
    return true;
  }
}
