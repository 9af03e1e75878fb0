import { WarmpathError } from '../errors.js';

/** Disciplines by name. */
export const SCHEDULER_NAMES = ['fifo', 'cache-aware'] as const;

export type SchedulerName = (typeof SCHEDULER_NAMES)[number];

/** What a prompt would cost if it were dispatched now, in tokens. */
export interface PromptReuse {
  /** Cached tokens at its start, in any tier. */
  readonly cachedTokens: number;
  /** Tokens to compute; at least one, because a question is never cached. */
  readonly computeTokens: number;
}

/** Says what a waiting request would find in the cache at `now`. */
export type ReuseLookup<Request> = (request: Request, now: number) => PromptReuse;

/**
 * Requests that wait for one engine, and the rule that says which goes next. Iterates in order of arrival within a
 * priority, which is what `foresight` reads as `waiting`. Deterministic.
 */
export interface Scheduler<Request> extends Iterable<Request> {
  /** Requests that wait. */
  readonly size: number;
  /** Adds a request behind all others. @throws WarmpathError `WARMPATH_OVERLOADED` when the queue is full. */
  push(request: Request): void;
  /** Removes and returns the request that goes next. `now` is in the caller's milliseconds. */
  next(now: number): Request | undefined;
  /** Removes a request that will not be served; false if it does not wait. O(size). */
  remove(request: Request): boolean;
}

export interface RequestSchedulerOptions<Request> {
  /** Reorders requests by what they would find in the cache. Without it, the oldest request goes first. */
  readonly lookup?: ReuseLookup<Request>;
  /** How often a request may be overtaken before it goes next. Default 32 (RAGCache §7.4). */
  readonly window?: number;
  /** Oldest requests that are looked up at a dispatch. Default 256. */
  readonly candidates?: number;
  /** Requests that may wait. Default 65,536. */
  readonly capacity?: number;
}

interface Entry<Request> {
  readonly request: Request;
  overtaken: number;
}

/** Requests of one priority in order of arrival. */
interface PriorityClass<Request> {
  readonly priority: number;
  readonly entries: Entry<Request>[];
}

/**
 * Takes the request with the highest priority. Among equals: the oldest, or, with `lookup`, the one with the largest
 * `cached / computed` tokens (RAGCache §5.2). A request that was overtaken `window` times goes next.
 *
 * Cost of `next`: `candidates` lookups, O(size) moves in memory.
 */
export class RequestScheduler<Request> implements Scheduler<Request> {
  readonly #lookup: ReuseLookup<Request> | undefined;
  readonly #window: number;
  readonly #candidates: number;
  readonly #capacity: number;
  /** By descending priority; none is empty. */
  readonly #classes: PriorityClass<Request>[] = [];
  #size = 0;

  /** @throws WarmpathError `WARMPATH_INVALID_REQUEST` for an option out of its range. */
  constructor(options: RequestSchedulerOptions<Request> = {}) {
    const { lookup, window = 32, candidates = 256, capacity = 65_536 } = options;
    for (const [path, value] of Object.entries({ window, candidates, capacity })) {
      if (Number.isSafeInteger(value) && value >= 1) continue;
      throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path, detail: 'A whole number above 0 was expected.' });
    }
    this.#lookup = lookup;
    this.#window = window;
    this.#candidates = candidates;
    this.#capacity = capacity;
  }

  get size(): number {
    return this.#size;
  }

  /** @param priority Higher goes first. */
  push(request: Request, priority = 0): void {
    if (this.#size >= this.#capacity) throw new WarmpathError('WARMPATH_OVERLOADED');
    this.#entriesOf(priority).push({ request, overtaken: 0 });
    this.#size++;
  }

  /** Adds a request that was taken and must wait again, before all others of its priority; above capacity, too. */
  putBack(request: Request, priority = 0): void {
    this.#entriesOf(priority).unshift({ request, overtaken: Number.POSITIVE_INFINITY });
    this.#size++;
  }

  next(now: number): Request | undefined {
    const first = this.#classes[0];
    if (first === undefined) return undefined;
    const place = this.#placeOfNext(first.entries, now);
    for (let before = 0; before < place; before++) first.entries[before]!.overtaken++;
    return this.#take(first, place);
  }

  remove(request: Request): boolean {
    for (const each of this.#classes) {
      const place = each.entries.findIndex((entry) => entry.request === request);
      if (place < 0) continue;
      this.#take(each, place);
      return true;
    }
    return false;
  }

  *[Symbol.iterator](): IterableIterator<Request> {
    for (const { entries } of this.#classes) for (const { request } of entries) yield request;
  }

  #entriesOf(priority: number): Entry<Request>[] {
    const place = this.#classes.findIndex((each) => each.priority <= priority);
    const known = this.#classes[place];
    if (known?.priority === priority) return known.entries;
    const added: PriorityClass<Request> = { priority, entries: [] };
    this.#classes.splice(place < 0 ? this.#classes.length : place, 0, added);
    return added.entries;
  }

  #placeOfNext(entries: readonly Entry<Request>[], now: number): number {
    // A dispatch overtakes all requests before its own, so the first one was overtaken most.
    if (this.#lookup === undefined || entries[0]!.overtaken >= this.#window) return 0;
    let best = 0;
    let bestShare = Number.NEGATIVE_INFINITY;
    const candidates = Math.min(entries.length, this.#candidates);
    for (let place = 0; place < candidates; place++) {
      const { cachedTokens, computeTokens } = this.#lookup(entries[place]!.request, now);
      const share = cachedTokens / Math.max(1, computeTokens);
      if (share <= bestShare) continue;
      best = place;
      bestShare = share;
    }
    return best;
  }

  #take(from: PriorityClass<Request>, place: number): Request {
    const [taken] = from.entries.splice(place, 1);
    if (from.entries.length === 0) this.#classes.splice(this.#classes.indexOf(from), 1);
    this.#size--;
    return taken!.request;
  }
}
