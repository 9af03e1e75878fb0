import { constants, type NodeGCPerformanceDetail, PerformanceObserver } from 'node:perf_hooks';
import { getHeapStatistics, setFlagsFromString } from 'node:v8';

/**
 * Percent by which the old generation grows between two full collections, of what the last one left. V8's own choice
 * comes down to 8 MB where little becomes old; buffers that are young count as well, and at 5,000 prompts of 30 KB a
 * second they are 8 MB in 50 ms: every process in three ended up with 20 full collections a second, and twice the CPU
 * time a request. Where much becomes old, V8 itself lets the heap grow up to fourfold.
 */
const LEAST_PERCENT = 100;
/**
 * Bytes that it may grow by where full collections are frequent. Young buffers, which count until they are 32 MB, are
 * as much as a small heap may grow by: at prompts of 400 KB, 14 full collections a second took half of the CPU time.
 */
const ROOM_BYTES = 100_663_296;
/** So many full collections within so many milliseconds are frequent. */
const FREQUENT = { count: 8, ms: 4_000 };
/** After so many milliseconds without one they are not. */
const SELDOM_MS = 30_000;

/** Decides how far the heap grows before all of it is collected. */
export class HeapGrowth {
  readonly #set: (percent: number) => void;
  #percent = LEAST_PERCENT;
  /** When the last full collections ended, in milliseconds, the oldest first. */
  #recent: number[] = [];
  #observer: PerformanceObserver | undefined;

  /** `set`: how V8 is told. */
  constructor(set: (percent: number) => void = setPercent) {
    this.#set = set;
  }

  /** Tells V8, and hears of its collections from now on. */
  start(): void {
    this.#set(this.#percent);
    this.#observer = new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) {
        const { kind } = (entry as unknown as { readonly detail: NodeGCPerformanceDetail }).detail;
        if (kind !== constants.NODE_PERFORMANCE_GC_MAJOR) continue;
        this.collected(entry.startTime, getHeapStatistics().used_heap_size);
      }
    });
    this.#observer.observe({ entryTypes: ['gc'] });
  }

  /** All of the heap was collected at that time, in milliseconds, and so many bytes are left. */
  collected(now: number, heapBytes: number): void {
    const recent = this.#recent;
    if (now - (recent.at(-1) ?? now) > SELDOM_MS) {
      this.#change(LEAST_PERCENT);
      recent.length = 0;
    }
    recent.push(now);
    if (recent.length <= FREQUENT.count) return;
    if (now - recent.shift()! > FREQUENT.ms) return;
    this.#change(Math.min(2 * this.#percent, (100 * ROOM_BYTES) / heapBytes));
    recent.length = 0;
  }

  close(): void {
    this.#observer?.disconnect();
  }

  #change(percent: number): void {
    const changed = Math.max(LEAST_PERCENT, Math.floor(percent));
    if (changed !== this.#percent) this.#set(changed);
    this.#percent = changed;
  }
}

function setPercent(percent: number): void {
  setFlagsFromString(`--heap-growing-percent=${percent}`);
}
