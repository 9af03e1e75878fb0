/** Number of a sequence of the engine's memory: a label that any KV cell can carry, several at a time. */
export type SequenceId = number;

/**
 * What the prefix cache asks of the engine's memory. A cell holds one token at one position and carries the ids of all
 * sequences that it belongs to; it is free again when it carries none.
 */
export interface SequenceMemory {
  /** Puts `target` on every cell of `source` at positions `from` … `to - 1`. Copies no cell. */
  copy(source: SequenceId, target: SequenceId, from: number, to: number): void;
  /** Takes `sequence` off its cells at positions `from` … `to - 1`; a `to` of -1 means to the end. */
  remove(sequence: SequenceId, from: number, to: number): void;
}

/** A memory whose cells can leave it as bytes and come back. */
export interface SavableMemory extends SequenceMemory {
  /**
   * Copies the cells of `sequence` at positions `from` … `to - 1`, and these alone, out of the memory. They stay in it.
   *
   * @returns The cells as bytes that hold all that {@link restore} needs; `undefined` when this memory cannot give
   *   them.
   */
  save(sequence: SequenceId, from: number, to: number): Uint8Array | undefined;
  /**
   * Puts saved cells behind what `sequence` holds, which must end at `from` and be the very tokens that stood before
   * them when they were saved. Takes `to - from` free cells.
   *
   * @returns Whether the bytes are those positions and are in the memory now; when not, nothing has changed.
   */
  restore(sequence: SequenceId, state: Uint8Array, from: number, to: number): boolean;
  /** The part of saved cells at positions `from` … `to - 1`: what saving these alone would have given. */
  slice(state: Uint8Array, from: number, to: number): Uint8Array;
  /**
   * Whether a sequence can go on behind these cells: they hold a checkpoint. Left out where it can behind any cell.
   */
  isResumable?(state: Uint8Array): boolean;
}
