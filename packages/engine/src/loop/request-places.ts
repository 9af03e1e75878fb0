import { WarmpathError } from '@warmpath/core';
import type { PrefixCache } from '../cache/prefix-cache.js';
import type { EngineReuse } from '../native/model.js';
import type { LoopAnnouncer } from './events.js';
import type { FinishReason } from './generation.js';
import type { GenerationTask } from './task.js';
import type { WaitingTasks } from './waiting-tasks.js';

export interface RequestPlacesOptions {
  readonly cache: PrefixCache;
  readonly waiting: WaitingTasks;
  readonly announcer: LoopAnnouncer;
  /** Most requests that run at the same time. */
  readonly maxRunning: number;
  /** Where what a request computed may serve another. */
  readonly reuse: EngineReuse;
}

/**
 * Where every request of the loop is: it waits, or runs with cells. Only `add` and `abort` may be called while a decode
 * is in flight: everything else touches the cache.
 */
export class RequestPlaces {
  readonly #options: RequestPlacesOptions;
  readonly #running: GenerationTask[] = [];
  /** What was aborted since the last turn. */
  readonly #aborted: GenerationTask[] = [];

  constructor(options: RequestPlacesOptions) {
    this.#options = options;
  }

  /** The requests that have cells, in the order of their admission. */
  get running(): readonly GenerationTask[] {
    return this.#running;
  }

  get counts(): { readonly running: number; readonly waiting: number } {
    return { running: this.#running.length, waiting: this.#options.waiting.size };
  }

  /** A new request waits. */
  add(task: GenerationTask): void {
    this.#options.waiting.push(task);
  }

  /** Notes that a request is to end with the next turn. Again, it does nothing. */
  abort(task: GenerationTask): void {
    if (!task.aborted) {
      task.aborted = true;
      this.#aborted.push(task);
    }
  }

  reapAborted(): void {
    for (const task of this.#aborted.splice(0)) {
      if (this.#running.includes(task)) {
        this.end(task, 'aborted');
      } else if (this.#options.waiting.remove(task)) {
        this.#options.announcer.end(task, 'aborted');
      }
    }
  }

  /** Takes requests from the queue as long as there are places, and cells for the prompt of the one that goes next. */
  admit(): void {
    while (this.#running.length < this.#options.maxRunning) {
      const task = this.#options.waiting.next();
      if (task === undefined) return;
      const { boundaries, salt, priority = 0 } = task.request;
      const lease = this.#options.cache.acquire(task.tokens, task.sharedAtMost, boundaries, salt, priority > 0);
      if (lease === undefined) {
        this.#options.waiting.putBack(task);
        return;
      }
      const promised = this.#running.reduce((sum, running) => sum + running.pending, 0);
      const needed = task.tokens.length - lease.length;
      if (this.#running.length > 0 && this.#options.cache.availableCells() < promised + needed) {
        this.#options.cache.release(lease, false);
        this.#options.waiting.putBack(task);
        return;
      }
      this.#running.push(task);
      task.lease = lease;
      task.share({ device: lease.length, host: 0, disk: 0 });
      task.startedMs ??= performance.now();
    }
  }

  /** Reads what the disk holds of prompts that are not computed yet. Nothing else may use the cache meanwhile. */
  async load(): Promise<void> {
    for (const task of this.#running) {
      task.isAwaitingDisk =
        !task.isDecoding &&
        !task.hasPrivateTokens &&
        (await this.#options.cache.load(task.lease!, task.tokens, task.sharedAtMost));
    }
  }

  /** Puts what a running task has computed into the tree, where the model can go on from there. */
  commit(task: GenerationTask): void {
    const lease = task.lease!;
    if (this.#options.reuse !== 'none' && task.computed > lease.length) {
      this.#options.cache.commit(lease, task.tokens.slice(lease.length, task.computed));
    }
  }

  /** Ends the requests whose prompts only go into the cache, and are there. @returns Whether there were any. */
  finishPrefills(): boolean {
    const done = this.#running.filter(
      ({ isPrefillOnly, pending, aborted }) => isPrefillOnly && pending === 0 && !aborted,
    );
    for (const task of done) {
      const finish = task.finishPrefill(performance.now());
      this.#options.announcer.prompt(task);
      this.end(task, 'finished', finish);
    }
    return done.length > 0;
  }

  /** Ends a running request. */
  end(task: GenerationTask, outcome: 'finished' | 'aborted', reason: FinishReason = 'stop'): void {
    this.commit(task);
    this.#leave(task, outcome === 'finished');
    if (outcome === 'finished') task.listener.onFinish(task.result(reason));
    this.#options.announcer.end(task, outcome, reason);
  }

  /**
   * Frees cells where the running requests have none left: the youngest of the least urgent waits again. One request
   * alone always has enough, because none is longer than all cells.
   */
  preemptYoungest(): void {
    if (this.#running.length === 1) throw new Error('A request that runs alone finds no cells');
    const priority = ({ request }: GenerationTask): number => request.priority ?? 0;
    const last = this.#running.reduce((least, task) => (priority(task) >= priority(least) ? task : least));
    // What its cells hold stays cached until it is evicted, and the request goes on from there.
    this.commit(last);
    this.#leave(last, false);
    last.loseCells();
    this.#options.waiting.putBack(last);
    this.#options.announcer.preemption();
  }

  /** Ends running requests whose decode failed. */
  failRunning(tasks: readonly GenerationTask[], error: WarmpathError): void {
    for (const task of tasks) {
      if (!task.aborted) task.listener.onError(error);
      // What this decode left in the cells is not to be trusted; what was committed before it is.
      this.#leave(task, false);
      this.#options.announcer.end(task, 'failed');
    }
  }

  /** Ends every request without touching the cache, which is not to be trusted any more. */
  failAll(error: WarmpathError): void {
    const running = this.#running.splice(0);
    for (const task of running) task.freeGrammar();
    this.#drop([...running, ...this.#options.waiting], error);
  }

  /** Refuses what waits and has never run. What has begun may have given its client half an answer. */
  refuseUnstarted(): void {
    this.#drop([...this.#options.waiting].filter((task) => task.startedMs === undefined));
  }

  /** Tells what runs and waits that time is up, and aborts it. */
  expire(): void {
    for (const task of [...this.#running, ...this.#options.waiting].filter((candidate) => !candidate.aborted)) {
      task.listener.onError(new WarmpathError('WARMPATH_SHUTTING_DOWN'));
      this.abort(task);
    }
  }

  #drop(tasks: readonly GenerationTask[], error = new WarmpathError('WARMPATH_SHUTTING_DOWN')): void {
    for (const task of tasks) {
      this.#options.waiting.remove(task);
      if (!task.aborted) task.listener.onError(error);
      this.#options.announcer.end(task, 'failed');
    }
  }

  /** Only what was answered counts as a use: a request that gave way or was aborted is not two. */
  #leave(task: GenerationTask, wasUsed: boolean): void {
    this.#options.cache.release(task.lease!, wasUsed);
    task.lease = undefined;
    task.freeGrammar();
    this.#running.splice(this.#running.indexOf(task), 1);
  }
}
