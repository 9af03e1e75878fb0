import { monitorEventLoopDelay } from 'node:perf_hooks';
import { getHeapStatistics } from 'node:v8';
import { WarmpathError } from '@warmpath/core';

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
  /** Milliseconds that received requests wait for the event loop. */
  readonly waitMs: () => number;
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
      const delayMs = Math.max(delays.percentile(50) / 1e6 - RESOLUTION_MS, this.#parts.waitMs());
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
