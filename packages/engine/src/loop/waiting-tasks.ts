import { type CostModel, type PromptReuse, RequestScheduler, type SchedulerName } from '@warmpath/core/internal';
import type { PrefixCache } from '../cache/prefix-cache.js';
import type { PromptCursor } from '../cache/prompt-cursor.js';
import type { GenerationTask } from './task.js';

export interface WaitingTasksOptions {
  /** Which request goes next. */
  readonly discipline: SchedulerName;
  /** How often a request may be overtaken; core's default when left out. */
  readonly window?: number;
  readonly cache: PrefixCache;
  readonly cost: CostModel;
}

/**
 * Requests that wait for a place in the loop. The lowest priority number goes first; among equals, core's scheduler
 * decides (RAGCache §5.2). Bringing tokens back from host memory or disk costs the time that it takes.
 */
export class WaitingTasks implements Iterable<GenerationTask> {
  readonly #cache: PrefixCache;
  readonly #cost: CostModel;
  readonly #scheduler: RequestScheduler<GenerationTask>;
  /** How far each waiting prompt is known to follow the tree. */
  readonly #cursors = new WeakMap<GenerationTask, PromptCursor>();

  constructor({ discipline, window, cache, cost }: WaitingTasksOptions) {
    this.#cache = cache;
    this.#cost = cost;
    this.#scheduler = new RequestScheduler({
      // The loop refuses excess requests when they come.
      capacity: Number.MAX_SAFE_INTEGER,
      ...(discipline === 'cache-aware' && { lookup: (task: GenerationTask) => this.#lookUp(task) }),
      ...(window !== undefined && { window }),
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
