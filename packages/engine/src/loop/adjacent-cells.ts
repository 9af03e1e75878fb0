import type { SavableMemory } from '../cache/sequence-memory.js';
import type { GenerationTask } from './task.js';

/** How many tokens a stream has computed beside others when its cells are gathered. */
const SCATTERED_TOKENS = 64;
/** Fewer of another stream are not worth a copy yet. */
const MIN_TOKENS = 16;
/** Most bytes that are out of the cells at once; what is left follows with the next step. */
const MAX_BYTES = 2 ** 26;

/**
 * Keeps the cells of each stream together. llama.cpp gives the tokens of a step neighbouring cells, so those of one
 * stream lie as far apart as there are streams, and attention, which reads one stream after another, waits for memory:
 * with 8 streams of 500 tokens a step of `random:24m` took a quarter longer. So the cells of answers are copied out and
 * back from time to time, stream by stream. The sums
 * of attention stay the same, because they keep their order.
 */
export class AdjacentCells {
  #memory: SavableMemory | undefined;

  /** @param memory Left out where its cells cannot be copied, or need not lie together. */
  constructor(memory: SavableMemory | undefined) {
    this.#memory = memory;
  }

  /** Call it between two steps. O(running), and once in many steps two copies of what was computed since. */
  gather(running: readonly GenerationTask[]): void {
    const streams = this.#memory === undefined ? [] : running.filter(({ isDecoding }) => isDecoding);
    if (streams.length < 2) {
      for (const task of streams) {
        task.adjacent = task.computed;
      }
    } else if (streams.some((task) => scattered(task) >= SCATTERED_TOKENS)) {
      this.#move(streams.filter((task) => scattered(task) >= MIN_TOKENS));
    }
  }

  #move(streams: readonly GenerationTask[]): void {
    const memory = this.#memory!;
    const moved: { readonly task: GenerationTask; readonly from: number; readonly state: Uint8Array }[] = [];
    let bytes = 0;
    for (const task of streams) {
      const from = task.computed - scattered(task);
      const state = memory.save(task.lease!.sequence, from, task.computed);
      if (state === undefined) {
        // It never gives any; or there is no room for a copy, and what is done without it is slow but right.
        this.#memory = undefined;
        return;
      }
      moved.push({ task, from, state });
      bytes += state.length;
      if (bytes > MAX_BYTES) {
        break;
      }
    }
    for (const { task, from } of moved) {
      memory.remove(task.lease!.sequence, from, -1);
    }
    for (const { task, from, state } of moved) {
      if (!memory.restore(task.lease!.sequence, state, from, task.computed)) {
        throw new Error('Cells that were copied out do not come back');
      }
      task.adjacent = task.computed;
    }
  }
}

/** How many of a stream's last tokens lie among those of others: what is in the tree may be others' too, and stays. */
function scattered({ lease, computed, adjacent }: GenerationTask): number {
  return computed - Math.max(lease!.length, adjacent);
}
