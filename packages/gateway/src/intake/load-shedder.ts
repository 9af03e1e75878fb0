import { monitorEventLoopDelay } from 'node:perf_hooks';
import { getHeapStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { WarmpathError } from '@warmpath/core';
import type { AcceptQueue } from './accept-queue.js';
import type { RequestTurns } from './request-turns.js';

/** How the process is at a moment. */
export interface ProcessLoad {
  /** Milliseconds by which the event loop comes late to what is ready: the middle of those since the last look. */
  readonly delayMs: number;
  /** Milliseconds that a new connection waits until it is accepted, and how many others are accepted meanwhile. */
  readonly acceptMs: number;
  readonly acceptQueue: number;
  /** Bytes of V8's heap that are taken, garbage included, and all that it may have. */
  readonly heapBytes: number;
  readonly heapLimitBytes: number;
}

/** Why requests are refused. */
export type SheddingReason = 'event_loop' | 'heap';

export interface LoadShedderParts {
  /** The monotonic clock of the process, in milliseconds: simulated time says nothing of its load. */
  readonly now: () => number;
  /** What waits for a turn of the event loop, its body received. */
  readonly turns: Pick<RequestTurns, 'queue'>;
  /** Whether any request with a body is under way. */
  readonly isBusy: () => boolean;
  /** Makes V8 find out what of its heap is alive; takes as long as a full collection. */
  readonly collectGarbage?: () => void;
  /** Hears when refusing begins, for another reason, too, and when it ends. */
  readonly changed: (reason: SheddingReason | undefined, load: ProcessLoad) => void;
  /** Hears of every request that is refused. */
  readonly refused: (reason: SheddingReason) => void;
}

/**
 * The delay from which on requests are refused. A probe needs up to two turns of the event loop, one to be accepted and
 * one to be read, and the chart and the image give it three seconds: beyond, a gateway that works is taken for dead.
 */
const LONGEST_DELAY_MS = 1_000;
/** Below this part of it there is room for more, and where it falls by half or more from one look to the next. */
const RELIEVED_PART = 1 / 4;
/**
 * So many that wait together are a burst, and served even if it takes the long wait. Where there are more, a part is
 * refused after the short wait. So much later, in milliseconds, all are.
 */
const BURST = 800;
const SHORT_WAIT_MS = 600;
const LONG_WAIT_MS = 1_500;
const GROWTH_MS = 300;
/** So many connections that wait are more than a burst; a part is refused, and all at so many: the kernel has 4,096. */
const CROWD = 2_048;
const FULL_CROWD = 3_072;
/** By how much more is refused at each look that finds too long a delay; below the least, nothing is. */
const STEP = 1 / 4;
const LEAST = 1 / 16;
/** Up to 1 the tenants that ask most are refused in part; beyond, the others, too. */
const MOST = 2;
/**
 * The part of the old generation that may be taken; beyond it V8 does little but collect, and gives up where that does
 * not help. What the young generation may take (three semi-spaces of 16 MiB) is no room for what stays.
 */
const FULL_PART = 0.8;
const YOUNG_BYTES = 50_331_648;
/** A heap that was full has room again below this part. */
const FREE_AGAIN_PART = 0.75;
/** Milliseconds between two collections that are asked for: these, doubled each time that one does not help. */
const COLLECT_MS = 1_000;
const LONGEST_COLLECT_MS = 30_000;
/** A long turn with fewer requests has another reason than them: a large body, a collection, a halt. */
const MANY = 100;
/** Milliseconds between two looks, and between two samples of the delay. */
const LOOK_MS = 100;
const SAMPLE_MS = 50;

/**
 * Refuses requests before the process suffers, so that those which it takes are answered in time. Three things are
 * looked at ten times a second: how late the event loop is, how long new connections wait, and how full the heap is.
 * While the loop is late, a growing part of the requests is refused, first of the tenants that ask most. While
 * connections wait, or many requests in one turn do, the part grows with their wait. It shrinks by half per look.
 * While the heap is full, one request at a time goes on. A request costs a few comparisons while nothing is refused.
 */
export class LoadShedder {
  readonly #parts: LoadShedderParts;
  readonly #collectGarbage: () => void;
  #load: ProcessLoad = { delayMs: 0, acceptMs: 0, acceptQueue: 0, heapBytes: 0, heapLimitBytes: 0 };
  /** From 0 to `MOST`. */
  #level = 0;
  #wasLate = false;
  /** Whether requests waited for turns too long when it was last looked. */
  #wasQueued = false;
  /** Requests since the last look, and when the first of them came. */
  #taken = 0;
  #firstAt = 0;
  #isFull = false;
  #collectMs = COLLECT_MS;
  #collectAt = Number.NEGATIVE_INFINITY;
  /** Requests of each tenant since the last look, and between the two before; only while some are refused. */
  #asked = new Map<string, number>();
  #askedBefore: ReadonlyMap<string, number> = new Map();
  /** What a tenant asked for between these two, on average. */
  #meanBefore = 0;
  /** Parts of requests that are to be refused, summed up: one goes whenever a sum reaches 1. */
  readonly #owed = { most: 0, others: 0 };
  #stop: () => void = () => {};

  constructor(parts: LoadShedderParts) {
    this.#parts = parts;
    this.#collectGarbage = parts.collectGarbage ?? collectGarbage;
  }

  /** As last seen. */
  get load(): ProcessLoad {
    return this.#load;
  }

  /** Why requests are refused; `undefined` where none is. */
  get reason(): SheddingReason | undefined {
    if (this.#isFull) return 'heap';
    return this.#level > 0 || this.#wasQueued ? 'event_loop' : undefined;
  }

  /** Looks at the process from now on, and keeps it from ending by nothing. */
  start(connections: AcceptQueue): void {
    const delays = monitorEventLoopDelay({ resolution: SAMPLE_MS });
    delays.enable();
    const timer = setInterval(() => {
      // This timer may come before theirs.
      if (delays.count === 0) return;
      const { used_heap_size: heapBytes, heap_size_limit: heapLimitBytes } = getHeapStatistics();
      const delayMs = Math.max(0, delays.percentile(50) / 1e6 - SAMPLE_MS);
      this.look({ delayMs, ...connections.look(), heapBytes, heapLimitBytes });
      delays.reset();
    }, LOOK_MS).unref();
    this.#stop = () => {
      clearInterval(timer);
      delays.disable();
      connections.close();
    };
  }

  close(): void {
    this.#stop();
  }

  /** Decides anew what is refused. O(tenants that ask) while something is, else O(1). */
  look(load: ProcessLoad): void {
    const before = this.reason;
    this.#taken = 0;
    this.#lookAtDelay(load.delayMs);
    this.#lookAtConnections(load);
    this.#wasQueued = this.#queueLevel() > 0;
    this.#load = load;
    this.#lookAtHeap(load);
    if (this.#asked.size > 0 || this.#askedBefore.size > 0) this.#countAnew();
    const { reason } = this;
    if (reason !== before) this.#parts.changed(reason, load);
  }

  /** Why a request of that tenant, which came just now, is refused; `undefined` where it may go on. O(1). */
  refusal(tenant: string): WarmpathError | undefined {
    if (this.#isFull && this.#parts.isBusy()) return this.#refuse('heap');
    const now = this.#parts.now();
    if (this.#taken++ === 0) this.#firstAt = now;
    const level = Math.max(this.#level, this.#turnLevel(now), this.#queueLevel());
    return level > 0 && this.#isOwed(tenant, level) ? this.#refuse('event_loop') : undefined;
  }

  /** What is refused because this turn is long by now: a part of the requests of those that ask most. */
  #turnLevel(now: number): number {
    if (this.#taken <= MANY) return 0;
    return Math.min(1, levelAfter(now - this.#firstAt, this.#taken));
  }

  /** What is refused because those that came before wait for a turn, as it is with connections that wait. */
  #queueLevel(): number {
    const { requests, waitMs } = this.#parts.turns.queue;
    return levelAfter(waitMs, requests);
  }

  /** A single turn that is long is no overload. */
  #lookAtDelay(delayMs: number): void {
    const isLate = delayMs > LONGEST_DELAY_MS;
    if (isLate && this.#wasLate) this.#level = Math.min(MOST, this.#level + STEP);
    else if (delayMs < LONGEST_DELAY_MS * RELIEVED_PART || delayMs < this.#load.delayMs / 2) {
      this.#level = this.#level / 2 < LEAST ? 0 : this.#level / 2;
    }
    this.#wasLate = isLate;
  }

  /**
   * Those that are accepted now are those that waited so long: what is refused of them shows in the next wait at once,
   * so a part in proportion to the wait settles.
   */
  #lookAtConnections({ acceptMs, acceptQueue, delayMs }: ProcessLoad): void {
    // A turn to notice one and a turn to accept it are no queue.
    const waitMs = acceptMs - 2 * delayMs;
    const crowd = (acceptQueue - CROWD) / (FULL_CROWD - CROWD);
    this.#level = Math.max(this.#level, levelAfter(waitMs, acceptQueue), MOST * Math.min(1, crowd));
  }

  #lookAtHeap({ heapBytes, heapLimitBytes }: ProcessLoad): void {
    const oldBytes = heapLimitBytes - YOUNG_BYTES;
    this.#isFull = heapBytes > oldBytes * (this.#isFull ? FREE_AGAIN_PART : FULL_PART);
    if (!this.#isFull) {
      this.#collectMs = COLLECT_MS;
      return;
    }
    // Where little is asked of it V8 would not collect for long, and garbage would be taken for what is needed.
    const now = this.#parts.now();
    if (now < this.#collectAt) return;
    this.#collectGarbage();
    this.#collectAt = now + this.#collectMs;
    this.#collectMs = Math.min(2 * this.#collectMs, LONGEST_COLLECT_MS);
  }

  #countAnew(): void {
    this.#askedBefore = this.#asked;
    this.#asked = new Map();
    let all = 0;
    for (const asked of this.#askedBefore.values()) all += asked;
    this.#meanBefore = all / Math.max(1, this.#askedBefore.size);
  }

  /** Whether this request is one of the part that is refused. */
  #isOwed(tenant: string, level: number): boolean {
    const asked = (this.#asked.get(tenant) ?? 0) + 1;
    this.#asked.set(tenant, asked);
    const asksMost = Math.max(asked, this.#askedBefore.get(tenant) ?? 0) >= this.#meanBefore;
    const who = asksMost ? 'most' : 'others';
    this.#owed[who] += asksMost ? Math.min(1, level) : Math.min(1, Math.max(0, level - 1));
    if (this.#owed[who] < 1) return false;
    this.#owed[who]--;
    return true;
  }

  #refuse(reason: SheddingReason): WarmpathError {
    this.#parts.refused(reason);
    return REFUSALS[reason];
  }
}

/** The level where so many wait for so many milliseconds. */
function levelAfter(waitMs: number, waiting: number): number {
  const longestMs = waiting > BURST ? SHORT_WAIT_MS : LONG_WAIT_MS;
  return MOST * Math.min(1, Math.max(0, (waitMs - longestMs) / GROWTH_MS));
}

/** By then it is known whether there is room again. */
const RETRY_S = 1;

/** Made once: to find out where an error is made takes a fifth of what refusing does. */
const REFUSALS: Readonly<Record<SheddingReason, WarmpathError>> = {
  event_loop: refusalBecause('More requests come than the processor of the gateway can serve in time.'),
  heap: refusalBecause('The heap of the gateway is full of what is under way (`--max-old-space-size` is the limit).'),
};

function refusalBecause(detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_OVERLOADED', { detail, retryAfterS: RETRY_S });
}

function collectGarbage(): void {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  setFlagsFromString('--no-expose-gc');
  collect();
}
