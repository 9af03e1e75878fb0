import { WarmpathError } from '../errors.js';
import { ArrivalQueue, checkCount } from './queue.js';
import type { PromptReuse, ReuseLookup, Scheduler } from './scheduler.js';

/** Requests that may overtake one, at most (RAGCache §7.4 uses 32). */
const DEFAULT_WINDOW = 32;

export interface CacheAwareSchedulerOptions<Request> {
  /** Says what a waiting request would find in the cache. */
  readonly lookup: ReuseLookup<Request>;
  /** How often a request may be overtaken before it goes next, whatever it finds. Default 32. */
  readonly window?: number;
  /**
   * What bringing one token from host to device costs, in tokens computed, where a look-up does not say. Default 0:
   * nothing.
   */
  readonly hostTokenCost?: number;
  /** Oldest requests that are looked up at a dispatch; bounds its cost. Default 256. */
  readonly candidates?: number;
  /** Most requests that may wait. Default 65,536. */
  readonly capacity?: number;
}

/**
 * Cache-aware reordering (RAGCache §5.2): the request with the largest `cached / computed` tokens goes first, so that
 * what is held is used before it is evicted and little is computed before much. Looked up anew at every dispatch, for
 * the cache has changed since the last. A request that was overtaken `window` times goes next; as a dispatch overtakes
 * everyone before it, that is always the oldest. Equal requests go in order of arrival.
 *
 * Cost of `next`: `candidates` look-ups.
 */
export class CacheAwareScheduler<Request> implements Scheduler<Request> {
  readonly name = 'cache-aware';
  readonly #queue: ArrivalQueue<Request>;
  readonly #lookup: ReuseLookup<Request>;
  readonly #window: number;
  readonly #hostTokenCost: number;
  readonly #candidates: number;

  /** Error: `WARMPATH_INVALID_REQUEST` for an option out of its range. */
  constructor(options: CacheAwareSchedulerOptions<Request>) {
    const { lookup, window = DEFAULT_WINDOW, hostTokenCost = 0, candidates = 256 } = options;
    checkCount(window, 'window');
    checkCount(candidates, 'candidates');
    if (!(hostTokenCost >= 0 && Number.isFinite(hostTokenCost))) {
      const detail = 'A number of 0 or more was expected.';
      throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'hostTokenCost', detail });
    }
    this.#queue = new ArrivalQueue(options.capacity);
    this.#lookup = lookup;
    this.#window = window;
    this.#hostTokenCost = hostTokenCost;
    this.#candidates = candidates;
  }

  get size(): number {
    return this.#queue.size;
  }

  push(request: Request): void {
    this.#queue.push(request);
  }

  next(now: number): Request | undefined {
    if (this.#queue.size === 0) return undefined;
    return this.#queue.overtake(this.#best(now));
  }

  remove(request: Request): boolean {
    return this.#queue.remove(request);
  }

  [Symbol.iterator](): IterableIterator<Request> {
    return this.#queue[Symbol.iterator]();
  }

  /** Place of the request that goes next. */
  #best(now: number): number {
    if (this.#queue.overtakenAt(0) >= this.#window) return 0;

    const candidates = Math.min(this.#queue.size, this.#candidates);
    let best = 0;
    let bestPriority = Number.NEGATIVE_INFINITY;
    for (let place = 0; place < candidates; place++) {
      const priority = this.#priority(this.#lookup(this.#queue.at(place), now));
      if (priority <= bestPriority) continue;
      best = place;
      bestPriority = priority;
    }
    return best;
  }

  #priority({ cachedTokens, hostTokens, transferTokens, computeTokens }: PromptReuse): number {
    return cachedTokens / (Math.max(1, computeTokens) + (transferTokens ?? this.#hostTokenCost * hostTokens));
  }
}
