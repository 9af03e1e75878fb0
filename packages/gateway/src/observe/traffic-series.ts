import type { TrafficSlot } from '@warmpath/dashboard';
import type { Report } from '../shapes/shapes.js';

/** Milliseconds of one slot, and slots that are kept: a quarter of an hour. */
export const SLOT_MS = 5_000;
export const SLOTS = 180;

/** Classes of TTFT: eight for each doubling from half a millisecond on, so that a quantile is off by 5 % at most. */
const FIRST_BOUND_MS = 0.5;
const CLASSES_PER_DOUBLING = 8;
const CLASSES = 160;

/** Upper ends of the classes, in milliseconds. */
export const TTFT_BOUNDS: readonly number[] = Array.from(
  { length: CLASSES },
  (_, i) => FIRST_BOUND_MS * 2 ** (i / CLASSES_PER_DOUBLING),
);

/** Part of a prompt that must have been cached for it to count as cached. */
const CACHED_PART = 0.5;

/** Sums of one slot, then its two histograms. */
const REQUESTS = 0;
const ERRORS = 1;
const REPORTED = 2;
const PROMPT = 3;
const CACHED = 4;
const PREDICTED = 5;
const TTFT_CACHED = 6;
const TTFT_COMPUTED = TTFT_CACHED + CLASSES;
const FIELDS = TTFT_COMPUTED + CLASSES;

/**
 * What became of the prompts of the last quarter of an hour, in slots of five seconds: counts, tokens and histograms of
 * TTFT. One flat array that never grows (460 KB); adding a request is O(1) and allocates nothing.
 */
export class TrafficSeries {
  readonly #values = new Float64Array(SLOTS * FIELDS);
  /** Which slot of time each place holds; -1 for none. */
  readonly #slots = new Int32Array(SLOTS).fill(-1);

  /** A prompt's answer is over. `now` on the gateway's clock, in milliseconds. */
  add({ promptTokens, cachedTokens, predictedCachedTokens, ttftMs, status }: Report, now: number): void {
    const at = this.#open(slotOf(now));
    const values = this.#values;
    values[at + REQUESTS]! += 1;
    // A client that left is no error.
    if (status >= 400 && status !== 499) values[at + ERRORS]! += 1;
    if (promptTokens === undefined || cachedTokens === undefined) return;
    values[at + REPORTED]! += 1;
    values[at + PROMPT]! += promptTokens;
    values[at + CACHED]! += cachedTokens;
    values[at + PREDICTED]! += Math.min(promptTokens, predictedCachedTokens ?? 0);
    if (ttftMs === undefined) return;
    const histogram = cachedTokens >= CACHED_PART * promptTokens ? TTFT_CACHED : TTFT_COMPUTED;
    values[at + histogram + classOf(ttftMs)]! += 1;
  }

  /** The slots of the last quarter of an hour in which anything ended from slot `first` on, the oldest first. */
  since(first: number, now: number): TrafficSlot[] {
    const latest = slotOf(now);
    const found: TrafficSlot[] = [];
    for (let slot = Math.max(first, latest - SLOTS + 1, 0); slot <= latest; slot++) {
      if (this.#slots[slot % SLOTS] === slot) found.push(this.#read(slot));
    }
    return found;
  }

  /** Where a slot's values begin; what stood there before is a quarter of an hour old. */
  #open(slot: number): number {
    const place = slot % SLOTS;
    if (this.#slots[place] !== slot) {
      this.#slots[place] = slot;
      this.#values.fill(0, place * FIELDS, (place + 1) * FIELDS);
    }
    return place * FIELDS;
  }

  #read(slot: number): TrafficSlot {
    const start = (slot % SLOTS) * FIELDS;
    const value = (field: number) => this.#values[start + field]!;
    return {
      slot,
      requests: value(REQUESTS),
      errors: value(ERRORS),
      reported: value(REPORTED),
      promptTokens: value(PROMPT),
      cachedTokens: value(CACHED),
      predictedTokens: value(PREDICTED),
      ttftCached: this.#pairs(start + TTFT_CACHED),
      ttftComputed: this.#pairs(start + TTFT_COMPUTED),
    };
  }

  #pairs(start: number): number[] {
    const pairs: number[] = [];
    for (let i = 0; i < CLASSES; i++) {
      const count = this.#values[start + i]!;
      if (count > 0) pairs.push(i, count);
    }
    return pairs;
  }
}

/** The slot of a time. */
export function slotOf(now: number): number {
  return Math.floor(now / SLOT_MS);
}

/** The class whose upper end is the first at or above this. */
function classOf(ms: number): number {
  if (!(ms > FIRST_BOUND_MS)) return 0;
  return Math.min(CLASSES - 1, Math.ceil(CLASSES_PER_DOUBLING * Math.log2(ms / FIRST_BOUND_MS)));
}
