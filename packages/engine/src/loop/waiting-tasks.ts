import {
  CacheAwareScheduler,
  type CostModel,
  FifoScheduler,
  type PromptReuse,
  type Scheduler,
  type SchedulerName,
} from '@warmpath/core/internal';
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

/** The requests of one priority: those that were chosen before and must wait again, and the others. */
interface PriorityClass {
  readonly priority: number;
  readonly returned: GenerationTask[];
  readonly scheduler: Scheduler<GenerationTask>;
}

/**
 * The requests that wait for a place in the loop. Those with the lowest priority number go first. Which of them goes
 * next is core's scheduler's decision: the first to come, or the one that finds most in the cache for what it must
 * compute (RAGCache §5.2), where what must be brought back from host memory or the disk is charged with the time that
 * takes. A request that was chosen and found no room, or lost its place, goes before all others of its priority.
 */
export class WaitingTasks {
  readonly #cache: PrefixCache;
  readonly #cost: CostModel;
  readonly #newScheduler: () => Scheduler<GenerationTask>;
  /** By ascending number; those in which nobody waits go when the next request is chosen. */
  #classes: PriorityClass[] = [];
  /** How far each waiting prompt is known to follow the tree. */
  readonly #cursors = new WeakMap<GenerationTask, PromptCursor>();

  constructor({ discipline, window, cache, cost }: WaitingTasksOptions) {
    const lookup = (task: GenerationTask): PromptReuse => this.#lookUp(task);
    this.#cache = cache;
    this.#cost = cost;
    // The loop refuses what is too much when it comes.
    const capacity = Number.MAX_SAFE_INTEGER;
    this.#newScheduler = () =>
      discipline === 'fifo'
        ? new FifoScheduler({ capacity })
        : new CacheAwareScheduler({ lookup, capacity, ...(window !== undefined && { window }) });
  }

  get size(): number {
    return this.#classes.reduce((sum, { returned, scheduler }) => sum + returned.length + scheduler.size, 0);
  }

  /** A request that has just come. */
  push(task: GenerationTask): void {
    this.#classOf(task).scheduler.push(task);
  }

  /** A request that was chosen, or that ran, and must wait again. */
  putBack(task: GenerationTask): void {
    this.#classOf(task).returned.unshift(task);
  }

  /** Takes out the request that goes next. Cost: that of core's scheduler; a look-up costs what changed in the tree. */
  next(): GenerationTask | undefined {
    this.#classes = this.#classes.filter(({ returned, scheduler }) => returned.length + scheduler.size > 0);
    const first = this.#classes[0];
    return first?.returned.shift() ?? first?.scheduler.next(0);
  }

  /** Takes out a request that is not wanted any more; false when it does not wait. */
  remove(task: GenerationTask): boolean {
    const { returned, scheduler } = this.#classOf(task);
    const place = returned.indexOf(task);
    if (place >= 0) {
      returned.splice(place, 1);
    }
    return place >= 0 || scheduler.remove(task);
  }

  *[Symbol.iterator](): Iterator<GenerationTask> {
    for (const { returned, scheduler } of this.#classes) {
      yield* returned;
      yield* scheduler;
    }
  }

  #classOf({ request: { priority = 0 } }: GenerationTask): PriorityClass {
    let found = this.#classes.find((each) => each.priority === priority);
    if (found === undefined) {
      found = { priority, returned: [], scheduler: this.#newScheduler() };
      this.#classes.push(found);
      this.#classes.sort((a, b) => a.priority - b.priority);
    }
    return found;
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
    return { cachedTokens, hostTokens: host + disk, transferTokens, computeTokens };
  }
}
