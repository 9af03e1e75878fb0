import { ArrivalQueue } from './queue.js';
import type { Scheduler } from './scheduler.js';

export interface FifoSchedulerOptions {
  /** Most requests that may wait. Default 65,536. */
  readonly capacity?: number;
}

/** First come, first served. Every operation O(1) amortised, but `remove`. */
export class FifoScheduler<Request> implements Scheduler<Request> {
  readonly name = 'fifo';
  readonly #queue: ArrivalQueue<Request>;

  /** Error: `WARMPATH_INVALID_REQUEST` for a capacity that is no whole number above 0. */
  constructor(options: FifoSchedulerOptions = {}) {
    this.#queue = new ArrivalQueue(options.capacity);
  }

  get size(): number {
    return this.#queue.size;
  }

  push(request: Request): void {
    this.#queue.push(request);
  }

  next(): Request | undefined {
    return this.#queue.size === 0 ? undefined : this.#queue.overtake(0);
  }

  remove(request: Request): boolean {
    return this.#queue.remove(request);
  }

  [Symbol.iterator](): IterableIterator<Request> {
    return this.#queue[Symbol.iterator]();
  }
}
