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
