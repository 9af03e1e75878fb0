import { NO_TRAFFIC, type TrafficSlot, type TrafficSums } from '@warmpath/dashboard';
import { NO_GAIN_REASONS, type NoGainReason, type Report } from '../shapes/shapes.js';

/** Milliseconds of one slot, and slots that are kept: a quarter of an hour. */
export const SLOT_MS = 5_000;
export const SLOTS = 180;

/** The same of the coarse series: a day. */
export const DAY_SLOT_MS = 300_000;
const DAY_SLOTS = 288;

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

const REASONS = Object.keys(NO_GAIN_REASONS) as readonly NoGainReason[];

type HistogramName = 'ttftCached' | 'ttftComputed' | 'ttftHeldOut' | 'ttftOthers' | 'noGain';
type SlotSums = { -readonly [Name in keyof TrafficSums]: number };

/** One slot while it is filled. */
interface OpenSlot {
  readonly slot: number;
  readonly sums: SlotSums;
  /** Counts by class of TTFT, or by number of the reason. */
  readonly histograms: Readonly<Record<HistogramName, Map<number, number>>>;
}

/**
 * What became of the prompts of some time, in slots: counts, tokens and histograms of TTFT. A slot takes some 20 KB at
 * most. A series that outlives its process goes by the wall clock.
 */
export class TrafficSeries {
  readonly #slotMs: number;
  readonly #maxSlots: number;
  /** In their order. */
  #slots: OpenSlot[] = [];

  constructor(slotMs: number, maxSlots: number) {
    this.#slotMs = slotMs;
    this.#maxSlots = maxSlots;
  }

  /** The last quarter of an hour. */
  static recent(): TrafficSeries {
    return new TrafficSeries(SLOT_MS, SLOTS);
  }

  /** The last day. */
  static day(): TrafficSeries {
    return new TrafficSeries(DAY_SLOT_MS, DAY_SLOTS);
  }

  /** A prompt's answer is over. `now` in milliseconds. O(1). */
  add(report: Report, now: number): void {
    const { promptTokens, cachedTokens, predictedCachedTokens, ttftMs, status, noGain } = report;
    const { sums, histograms } = this.#open(this.slotOf(now));
    sums.requests++;
    // A client that left is no error.
    if (status >= 400 && status !== 499) sums.errors++;
    if (noGain !== undefined) addTo(histograms.noGain, REASONS.indexOf(noGain), 1);
    if (ttftMs !== undefined) addTo(histograms[report.isHeldOut ? 'ttftHeldOut' : 'ttftOthers'], classOf(ttftMs), 1);
    if (promptTokens === undefined || cachedTokens === undefined) return;
    sums.reported++;
    sums.promptTokens += promptTokens;
    sums.cachedTokens += cachedTokens;
    sums.cacheWriteTokens += report.cacheWriteTokens ?? 0;
    if (report.cost !== undefined && report.baselineCost !== undefined) {
      sums.cost += report.cost;
      sums.baselineCost += report.baselineCost;
    }
    sums.predictedTokens += Math.min(promptTokens, predictedCachedTokens ?? 0);
    addMeasured(sums, report, { promptTokens, cachedTokens });
    if (ttftMs === undefined) return;
    addTo(histograms[cachedTokens >= CACHED_PART * promptTokens ? 'ttftCached' : 'ttftComputed'], classOf(ttftMs), 1);
  }

  /** The slots in which anything ended from slot `first` on, the oldest first. */
  since(first: number, now: number): TrafficSlot[] {
    const oldest = Math.max(first, this.slotOf(now) - this.#maxSlots + 1);
    return this.#slots.filter(({ slot }) => slot >= oldest).map(readSlot);
  }

  /** The slot of a time. */
  slotOf(now: number): number {
    return Math.floor(now / this.#slotMs);
  }

  /** Puts slots that an earlier process has left before its own. */
  restore(slots: readonly TrafficSlot[], now: number): void {
    const latest = this.slotOf(now);
    const known = new Set(this.#slots.map(({ slot }) => slot));
    const earlier = slots.filter(({ slot }) => slot > latest - this.#maxSlots && slot <= latest && !known.has(slot));
    this.#slots = [...earlier.map(openSlot), ...this.#slots].toSorted((one, other) => one.slot - other.slot);
  }

  #open(slot: number): OpenSlot {
    const last = this.#slots.at(-1);
    // A wall clock may go back.
    if (last !== undefined && last.slot >= slot) return last;
    const next = openSlot({ slot });
    this.#slots.push(next);
    while (this.#slots[0]!.slot <= slot - this.#maxSlots) this.#slots.shift();
    return next;
  }
}

/** What the gateway added, and how far the baseline is off for prompts that it did not change. */
function addMeasured(
  sums: SlotSums,
  { baselineTokens, gainTokens, isUnchanged, isHeldOut }: Report,
  { promptTokens, cachedTokens }: { readonly promptTokens: number; readonly cachedTokens: number },
): void {
  if (isHeldOut) {
    sums.heldOut++;
    sums.heldOutPromptTokens += promptTokens;
    sums.heldOutCachedTokens += cachedTokens;
  }
  if (baselineTokens === undefined || gainTokens === undefined) return;
  sums.measuredTokens += promptTokens;
  sums.gainTokens += gainTokens;
  if (isUnchanged !== true) return;
  sums.unchanged++;
  sums.unchangedPromptTokens += promptTokens;
  sums.unchangedCachedTokens += cachedTokens;
  sums.unchangedBaselineTokens += baselineTokens;
}

function openSlot(known: Partial<TrafficSlot> & { readonly slot: number }): OpenSlot {
  const sums: SlotSums = { ...NO_TRAFFIC };
  for (const name of Object.keys(sums) as (keyof SlotSums)[]) sums[name] = known[name] ?? 0;
  const { ttftCached, ttftComputed, ttftHeldOut, ttftOthers, noGain } = known;
  return {
    slot: known.slot,
    sums,
    histograms: {
      ttftCached: mapOf(ttftCached),
      ttftComputed: mapOf(ttftComputed),
      ttftHeldOut: mapOf(ttftHeldOut),
      ttftOthers: mapOf(ttftOthers),
      noGain: mapOf(noGain),
    },
  };
}

function readSlot({ slot, sums, histograms }: OpenSlot): TrafficSlot {
  return {
    slot,
    ...sums,
    ttftCached: pairsOf(histograms.ttftCached),
    ttftComputed: pairsOf(histograms.ttftComputed),
    ttftHeldOut: pairsOf(histograms.ttftHeldOut),
    ttftOthers: pairsOf(histograms.ttftOthers),
    noGain: pairsOf(histograms.noGain),
  };
}

function addTo(counts: Map<number, number>, key: number, count: number): void {
  counts.set(key, (counts.get(key) ?? 0) + count);
}

function mapOf(pairs: readonly number[] = []): Map<number, number> {
  const counts = new Map<number, number>();
  for (let i = 0; i + 1 < pairs.length; i += 2) addTo(counts, pairs[i]!, pairs[i + 1]!);
  return counts;
}

function pairsOf(counts: ReadonlyMap<number, number>): number[] {
  return [...counts].toSorted(([one], [other]) => one - other).flat();
}

/** The class whose upper end is the first at or above this. */
function classOf(ms: number): number {
  if (!(ms > FIRST_BOUND_MS)) return 0;
  return Math.min(CLASSES - 1, Math.ceil(CLASSES_PER_DOUBLING * Math.log2(ms / FIRST_BOUND_MS)));
}
