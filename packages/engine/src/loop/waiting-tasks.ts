import { type CostModel, type PromptReuse, RequestScheduler } from '@warmpath/core/internal';
import type { PrefixCache } from '../cache/prefix-cache.js';
import type { PromptCursor } from '../cache/prompt-cursor.js';
import type { GenerationTask } from './task.js';

/**
 * Requests that wait for a place in the loop. The lowest priority number goes first; among equals, the one that finds
 * most cached tokens for those that it must compute (RAGCache §5.2). Bringing tokens back from host memory or disk costs
 * the time that it takes.
 */
export class WaitingTasks implements Iterable<GenerationTask> {
  readonly #cache: PrefixCache;
  readonly #cost: CostModel;
  readonly #scheduler: RequestScheduler<GenerationTask>;
  /** How far each waiting prompt is known to follow the tree. */
  readonly #cursors = new WeakMap<GenerationTask, PromptCursor>();

  constructor(cache: PrefixCache, cost: CostModel) {
    this.#cache = cache;
    this.#cost = cost;
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

  /** Removes and returns the request that goes next. A lookup costs what changed in the tree. */
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
    let cursor = this.#cursors.get(task);
    if (cursor === undefined) {
      cursor = this.#cache.cursor(prompt, task.sharedAtMost, salt);
      this.#cursors.set(task, cursor);
    }
    const { device, host, disk, transferMs } = this.#cache.reuse(cursor);
    const cachedTokens = device + host + disk;
    const computeTokens = Math.max(1, prompt.length - cachedTokens);
    const computeMs = transferMs > 0 ? this.#cost.prefillMs(cachedTokens, computeTokens) : 0;
    const transferTokens = computeMs > 0 ? (transferMs * computeTokens) / computeMs : 0;
    return { cachedTokens, transferTokens, computeTokens };
  }
}

function urgencyOf({ request: { priority = 0 } }: GenerationTask): number {
  return -priority;
}
