import type { HeldLease, LeaseTable } from './lease-table.js';
import type { PathStep } from './radix-node.js';
import type { SequenceMemory } from './sequence-memory.js';
import type { TieredTree } from './tiered-tree.js';

/**
 * Where nobody says where documents end, nodes that move between tiers are cut at multiples of this many tokens: large
 * enough that a copy's fixed cost does not count, small enough that prompts that part late share most of their nodes.
 */
const BLOCK_TOKENS = 128;

export interface HandoverOptions {
  readonly tree: TieredTree;
  readonly leases: LeaseTable;
  readonly memory: SequenceMemory;
}

/** Puts what leases computed into the tree, where other requests may share it. */
export class Handover {
  readonly #tree: TieredTree;
  readonly #leases: LeaseTable;
  readonly #memory: SequenceMemory;

  constructor({ tree, leases, memory }: HandoverOptions) {
    this.#tree = tree;
    this.#leases = leases;
    this.#memory = memory;
  }

  /** Hands over the tokens at positions `lease.length` …, whose cells are private to the lease no more. */
  take(lease: HeldLease, tokens: readonly number[]): void {
    for (let done = 0; done < tokens.length; ) {
      const step = lease.node.next(tokens, done, tokens.length);
      if (step === undefined) {
        done += this.#append(lease, tokens, done);
      } else {
        done += this.#adopt(lease, step);
      }
    }
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
    const boundary = boundaries.find((candidate) => candidate >= position);
    if (boundary !== undefined) {
      return boundary;
    }
    return this.#tree.movesNodes ? Math.ceil(position / BLOCK_TOKENS) * BLOCK_TOKENS : Number.POSITIVE_INFINITY;
  }
}
