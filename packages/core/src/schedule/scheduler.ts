import { ArrivalQueue } from './queue.js';

/** Disciplines by name. */
export const SCHEDULER_NAMES = ['fifo', 'cache-aware'] as const;

export type SchedulerName = (typeof SCHEDULER_NAMES)[number];

/**
 * Requests that wait for one engine, and the rule that says which goes next. Iterates over them in order of arrival:
 * what `foresight` reads as `waiting`. Deterministic: same pushes, same answers.
 */
export interface Scheduler<Request> extends Iterable<Request> {
  readonly name: SchedulerName;
  /** Requests that wait. */
  readonly size: number;
  /** Takes a request in, behind all others. Error: `WARMPATH_OVERLOADED` if the queue is full. Amortised O(1). */
  push(request: Request): void;
  /** Takes out the request that goes next; undefined if none waits. `now` in the caller's milliseconds. */
  next(now: number): Request | undefined;
  /**
   * Takes a request out that will not be served, for instance because its client left; false if it does not wait.
   * O(size).
   */
  remove(request: Request): boolean;
}

/** What a prompt would cost if it were dispatched now, in tokens. */
export interface PromptReuse {
  /** Tokens at its start that are held, in whichever tier. */
  readonly cachedTokens: number;
  /** Those of them that lie in host memory and must be brought to the device. */
  readonly hostTokens: number;
  /** What bringing them costs, in tokens computed; left out, the scheduler's own figure a token. */
  readonly transferTokens?: number;
  /** Tokens that must be computed; the question is among them, so there is at least one. */
  readonly computeTokens: number;
}

/** Looks a request up in the cache, as it stands at `now`. Called for every candidate at every dispatch. */
export type ReuseLookup<Request> = (request: Request, now: number) => PromptReuse;

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
