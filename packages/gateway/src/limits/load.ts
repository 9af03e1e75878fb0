import { monitorEventLoopDelay } from 'node:perf_hooks';
import { getHeapStatistics } from 'node:v8';
import { WarmpathError } from '@warmpath/core';
import type { WorkSteps } from '@warmpath/core/internal';

/** The monotonic clock of the process, in milliseconds. */
export function processClock(): number {
  return performance.now();
}

/** Milliseconds of work on requests in one turn of the event loop. Answers under way need the rest. */
const TURN_MS = 10;

/** Characters or bytes of a body that are worked through between two looks at the clock: about 3 ms. */
export const UNINTERRUPTED_SIZE = 262_144;

interface WaitingWork {
  readonly since: number;
  begin(): void;
}

/**
 * Spreads the work on requests over turns of the event loop, first come, first served. Answers under way, probes and
 * timers get their turn in between. Bounded by the memory for bodies.
 */
export class EventLoopBudget {
  readonly #now: () => number;
  readonly #waiting: WaitingWork[] = [];
  /** When the budget of this turn is used up; `undefined` before the first work of a turn. */
  #turnEndsAt: number | undefined;
  #isShortened = false;

  /** @param now the monotonic clock, in milliseconds */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** Milliseconds that the oldest waiting work has waited. */
  get waitMs(): number {
    return this.#waiting.length === 0 ? 0 : this.#now() - this.#waiting[0]!.since;
  }

  /**
   * Ends the next turn after one piece of waiting work. Node.js accepts one connection in each turn: short turns accept
   * waiting connections, and so answer probes, sooner.
   */
  shortenTurn(): void {
    this.#isShortened = true;
  }

  /** Begins work at once, or in a later turn if this turn's budget is used up. */
  run(begin: () => void): void {
    this.#beginTurn();
    if (this.#waiting.length === 0 && !this.#isUsedUp()) begin();
    else this.#wait(begin);
  }

  /** Repeats a step until it returns false, over as many turns as needed. */
  repeat(step: () => boolean): void {
    const begin = (): void => {
      do if (!step()) return;
      while (!this.#isUsedUp());
      this.#wait(begin);
    };
    this.run(begin);
  }

  /**
   * Works through steps. Work below `UNINTERRUPTED_SIZE` is done at once; larger work gives way to other work when the
   * turn's budget is used up.
   *
   * @param isUnwanted asked before interrupted work goes on
   * @throws WarmpathError `WARMPATH_CLIENT_CLOSED` for unwanted work, and what a step throws.
   */
  runSteps<Result>(steps: WorkSteps<Result>, isUnwanted: () => boolean): Result | Promise<Result> {
    const first = this.#workOn(steps);
    if (first.done === true) return first.value;
    return new Promise((resolve, reject) => {
      const goOn = (): void => {
        try {
          if (isUnwanted()) throw new WarmpathError('WARMPATH_CLIENT_CLOSED');
          const { done, value } = this.#workOn(steps);
          if (done === true) resolve(value);
          else this.#wait(goOn);
        } catch (error) {
          reject(error);
        }
      };
      this.#wait(goOn);
    });
  }

  #workOn<Result>(steps: WorkSteps<Result>): IteratorResult<number, Result> {
    this.#beginTurn();
    for (let size = 0; ; ) {
      const step = steps.next();
      if (step.done === true) return step;
      size += step.value;
      if (size < UNINTERRUPTED_SIZE) continue;
      if (this.#isUsedUp()) return step;
      size = 0;
    }
  }

  #wait(begin: () => void): void {
    this.#waiting.push({ since: this.#now(), begin });
  }

  #isUsedUp(): boolean {
    return this.#now() >= this.#turnEndsAt!;
  }

  #beginTurn(ms = TURN_MS): void {
    if (this.#turnEndsAt !== undefined) return;
    this.#turnEndsAt = this.#now() + ms;
    setImmediate(this.#nextTurn);
  }

  readonly #nextTurn = (): void => {
    this.#turnEndsAt = undefined;
    const ms = this.#isShortened ? 0 : TURN_MS;
    this.#isShortened = false;
    if (this.#waiting.length === 0) return;
    this.#beginTurn(ms);
    do this.#waiting.shift()!.begin();
    while (this.#waiting.length > 0 && !this.#isUsedUp());
  };
}

/** Goes on with a value that is there, or comes. */
export function whenReady<Value, Result>(
  value: Value | Promise<Value>,
  goOn: (value: Value) => Result | Promise<Result>,
): Result | Promise<Result> {
  return value instanceof Promise ? value.then(goOn) : goOn(value);
}

/** A sample of the process's load. */
export interface ProcessLoad {
  /** Milliseconds that the event loop is late, or that received requests have waited for it. */
  readonly delayMs: number;
  /** Used bytes of V8's heap, garbage included, and its limit. */
  readonly heapBytes: number;
  readonly heapLimitBytes: number;
}

export type OverloadReason = 'event_loop' | 'heap';

export interface OverloadParts {
  /** How long received requests wait for the event loop. */
  readonly eventLoopBudget: Pick<EventLoopBudget, 'waitMs'>;
  /** Whether the gateway holds the body of any request. */
  readonly isBusy: () => boolean;
  /** Called when overload begins, when its reason changes and when it ends. */
  readonly changed: (reason: OverloadReason | undefined, load: ProcessLoad) => void;
  /** Called for every request that is refused. */
  readonly refused: (reason: OverloadReason) => void;
}

/**
 * Delay of the event loop above which requests are refused. A probe needs up to two turns: one to accept its connection
 * and one to read it. The Helm chart and the image give it three seconds.
 */
const MAX_DELAY_MS = 1_000;
/** Part of V8's old generation in use above which requests are refused. */
const MAX_HEAP_PART = 0.8;
/** The young generation's part of V8's limit: three semi-spaces of 16 MiB. */
const YOUNG_GENERATION_BYTES = 50_331_648;
const SAMPLE_MS = 100;
/** Resolution of the delay. */
const RESOLUTION_MS = 20;
const RETRY_AFTER_S = 1;

const REFUSALS: Readonly<Record<OverloadReason, WarmpathError>> = {
  event_loop: refusal('The gateway gets more requests than its processor can serve in time. Try again in a second.'),
  heap: refusal('The heap of the gateway is full (`--max-old-space-size` is its limit). Try again in a second.'),
};

/**
 * Refuses requests while the process has too much to do, so that the requests it takes are answered in time. While the
 * event loop is late, every request is refused. While the heap is full, one request at a time is served.
 */
export class Overload {
  readonly #parts: OverloadParts;
  #load: ProcessLoad = { delayMs: 0, ...heapInUse() };
  #wasLate = false;
  #reason: OverloadReason | undefined;
  #stop = (): void => {};

  constructor(parts: OverloadParts) {
    this.#parts = parts;
  }

  /** The latest sample. */
  get load(): ProcessLoad {
    return this.#load;
  }

  /** Why requests are refused; `undefined` while none is. */
  get reason(): OverloadReason | undefined {
    return this.#reason;
  }

  /** Samples the process from now on, without keeping it alive. */
  start(): void {
    const delays = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
    delays.enable();
    const timer = setInterval(() => {
      // This timer may come before the one that measures.
      if (delays.count === 0) return;
      const delayMs = Math.max(delays.percentile(50) / 1e6 - RESOLUTION_MS, this.#parts.eventLoopBudget.waitMs);
      delays.reset();
      this.sample({ delayMs, ...heapInUse() });
    }, SAMPLE_MS).unref();
    this.#stop = () => {
      clearInterval(timer);
      delays.disable();
    };
  }

  close(): void {
    this.#stop();
  }

  /** Takes a sample. One late sample is not overload: the process may have been halted. */
  sample(load: ProcessLoad): void {
    this.#load = load;
    const isLate = load.delayMs > MAX_DELAY_MS;
    const isFull = load.heapBytes > (load.heapLimitBytes - YOUNG_GENERATION_BYTES) * MAX_HEAP_PART;
    const reason = isFull ? 'heap' : isLate && this.#wasLate ? 'event_loop' : undefined;
    this.#wasLate = isLate;
    if (reason === this.#reason) return;
    this.#reason = reason;
    this.#parts.changed(reason, load);
  }

  /** The error for a request that just came; `undefined` if it may go on. */
  refusal(): WarmpathError | undefined {
    const reason = this.#reason;
    if (reason === undefined || (reason === 'heap' && !this.#parts.isBusy())) return undefined;
    this.#parts.refused(reason);
    return REFUSALS[reason];
  }
}

function heapInUse(): Pick<ProcessLoad, 'heapBytes' | 'heapLimitBytes'> {
  const { used_heap_size: heapBytes, heap_size_limit: heapLimitBytes } = getHeapStatistics();
  return { heapBytes, heapLimitBytes };
}

function refusal(detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_OVERLOADED', { detail, retryAfterS: RETRY_AFTER_S });
}

/** Amounts of one resource that tenants hold, and their sum. Tenants that hold nothing take no memory. */
export class TenantShares {
  readonly #amounts = new Map<string, number>();
  #total = 0;

  get total(): number {
    return this.#total;
  }

  of(tenant: string): number {
    return this.#amounts.get(tenant) ?? 0;
  }

  /** @param amount Negative to give back. */
  add(tenant: string, amount: number): void {
    const own = this.of(tenant) + amount;
    if (own > 0) this.#amounts.set(tenant, own);
    else this.#amounts.delete(tenant);
    this.#total += amount;
  }

  /** The tenant that holds most, the first of equals; `undefined` when none holds anything. O(tenants). */
  get largest(): string | undefined {
    let largest: string | undefined;
    for (const [tenant, amount] of this.#amounts) {
      if (largest === undefined || amount > this.of(largest)) largest = tenant;
    }
    return largest;
  }

  [Symbol.iterator](): IterableIterator<[tenant: string, amount: number]> {
    return this.#amounts[Symbol.iterator]();
  }
}
