import type { SequenceId, SequenceMemory } from './sequence-memory.js';

/** Which sequence ids nobody uses, and which belong to leases; the others belong to leaves of the device. */
export class SequencePool {
  readonly #memory: SequenceMemory;
  readonly #free: SequenceId[];
  readonly #leased = new Set<SequenceId>();

  constructor(memory: SequenceMemory, sequences: readonly SequenceId[]) {
    this.#memory = memory;
    this.#free = [...sequences].reverse();
  }

  /** Ids that nobody uses. */
  get free(): readonly SequenceId[] {
    return this.#free;
  }

  isLeased(sequence: SequenceId): boolean {
    return this.#leased.has(sequence);
  }

  /** Takes an id for a lease; there must be a free one. */
  lease(): SequenceId {
    const sequence = this.#free.pop()!;
    this.#leased.add(sequence);
    return sequence;
  }

  /** A lease ends; its id is a leaf's from now on, or to be given back. */
  endLease(sequence: SequenceId): void {
    this.#leased.delete(sequence);
  }

  /** Gives an id back, and takes it off all cells. */
  giveBack(sequence: SequenceId): void {
    this.#memory.remove(sequence, 0, -1);
    this.#free.push(sequence);
  }
}
