import { type PromptReuse, RequestScheduler } from '@warmpath/core/internal';
import type { PrefixCache } from '../cache/prefix-cache.js';
import type { GenerationTask } from './task.js';

/**
 * Requests that wait for a place in the loop. The lowest priority number goes first; among equals, the one that finds
 * most cached tokens for those that it must compute (RAGCache §5.2).
 */
export class WaitingTasks implements Iterable<GenerationTask> {
  readonly #cache: PrefixCache;
  readonly #scheduler: RequestScheduler<GenerationTask>;

  constructor(cache: PrefixCache) {
    this.#cache = cache;
    this.#scheduler = new RequestScheduler({
      // The loop refuses excess requests when they come.
      capacity: Number.MAX_SAFE_INTEGER,
      lookup: (task) => this.#lookUp(task),
    });
  }

  get size(): number {
    return this.#scheduler.size;
  }

  /** Adds a new request. */
  push(task: GenerationTask): void {
    this.#scheduler.push(task, urgencyOf(task));
  }

  /** Adds a request that was chosen, or that ran, and must wait again: it goes before its equals. */
  putBack(task: GenerationTask): void {
    this.#scheduler.putBack(task, urgencyOf(task));
  }

  /** Removes and returns the request that goes next. Cost: O(tokens of all that wait). */
  next(): GenerationTask | undefined {
    return this.#scheduler.next(0);
  }

  /** Removes a request that is not wanted any more; false when it does not wait. */
  remove(task: GenerationTask): boolean {
    return this.#scheduler.remove(task);
  }

  [Symbol.iterator](): Iterator<GenerationTask> {
    return this.#scheduler[Symbol.iterator]();
  }

  #lookUp(task: GenerationTask): PromptReuse {
    const { prompt, salt } = task.request;
    const { device, host, disk } = this.#cache.match(prompt, task.sharedAtMost, salt);
    const cachedTokens = device + host + disk;
    return { cachedTokens, computeTokens: Math.max(1, prompt.length - cachedTokens) };
  }
}

function urgencyOf({ request: { priority = 0 } }: GenerationTask): number {
  return -priority;
}
