import type { EngineStatus, FeedSettings, FeedStart, FeedTick, RequestSummary, TrafficSlot } from '@warmpath/dashboard';

/** Requests that are kept to be shown. */
const MAX_REQUESTS = 200;
/** Milliseconds over which rates and quantiles are taken. */
const SPAN_MS = 60_000;

/** Counts by the class of a TTFT. */
type Histogram = ReadonlyMap<number, number>;

/** The figures of the last minute, and how things are now. */
export interface Figures {
  readonly time: number;
  readonly requestsPerSecond: number;
  readonly errors: number;
  /** Milliseconds to the first token at p50, p95 and p99; `undefined` where no request was of that kind. */
  readonly ttftCached: readonly (number | undefined)[];
  readonly ttftComputed: readonly (number | undefined)[];
  /** Of the prompt tokens that engines reported; `undefined` where they reported none. */
  readonly cachedShare: number | undefined;
  readonly predictedShare: number | undefined;
  readonly queued: number;
  readonly queueCapacity: number;
  readonly inFlight: number;
  readonly failedOpen: number;
  readonly engines: readonly EngineStatus[];
  /** The latest first. */
  readonly requests: readonly RequestSummary[];
}

const QUANTILES = [0.5, 0.95, 0.99];

/** What the feed has sent so far. Its size is bounded by the gateway's series and by `MAX_REQUESTS`. */
export class FeedState {
  readonly #settings: FeedSettings;
  readonly #slots = new Map<number, TrafficSlot>();
  #requests: readonly RequestSummary[];

  constructor({ settings, slots, requests }: FeedStart) {
    this.#settings = settings;
    this.#requests = requests.slice(-MAX_REQUESTS);
    for (const slot of slots) this.#slots.set(slot.slot, slot);
  }

  /** Takes what changed, and answers how things are. O(slots of the series). */
  take(tick: FeedTick): Figures {
    const { slotMs, seriesMs, ttftBounds, queueCapacity } = this.#settings;
    for (const slot of tick.slots) this.#slots.set(slot.slot, slot);
    for (const slot of this.#slots.keys()) if (slot < (tick.now - seriesMs) / slotMs) this.#slots.delete(slot);
    this.#requests = [...this.#requests, ...tick.requests].slice(-MAX_REQUESTS);
    const recent = [...this.#slots.values()].filter(({ slot }) => slot > (tick.now - SPAN_MS) / slotMs);
    const sum = (of: (slot: TrafficSlot) => number) => recent.reduce((total, slot) => total + of(slot), 0);
    const promptTokens = sum((slot) => slot.promptTokens);
    const ofPrompts = (tokens: number) => (promptTokens === 0 ? undefined : tokens / promptTokens);
    const quantiles = (pairs: (slot: TrafficSlot) => readonly number[]) => {
      const histogram = histogramOf(recent.map(pairs));
      return QUANTILES.map((q) => quantile(histogram, q, ttftBounds));
    };
    return {
      time: tick.time,
      requestsPerSecond: sum((slot) => slot.requests) / (SPAN_MS / 1_000),
      errors: sum((slot) => slot.errors),
      ttftCached: quantiles((slot) => slot.ttftCached),
      ttftComputed: quantiles((slot) => slot.ttftComputed),
      cachedShare: ofPrompts(sum((slot) => slot.cachedTokens)),
      predictedShare: ofPrompts(sum((slot) => slot.predictedTokens)),
      queued: tick.engines.reduce((total, { queued }) => total + queued, 0),
      queueCapacity,
      inFlight: tick.engines.reduce((total, { inFlight }) => total + inFlight, 0),
      failedOpen: metricSum(tick.metrics, 'warmpath_fail_open_total'),
      engines: tick.engines,
      requests: this.#requests.toReversed(),
    };
  }
}

/** Sums pairs of class and count. */
function histogramOf(lists: readonly (readonly number[])[]): Histogram {
  const histogram = new Map<number, number>();
  for (const pairs of lists) {
    for (let i = 0; i + 1 < pairs.length; i += 2) {
      histogram.set(pairs[i]!, (histogram.get(pairs[i]!) ?? 0) + pairs[i + 1]!);
    }
  }
  return histogram;
}

/** As the dashboard has it: the middle of the class in which the quantile falls, on a logarithmic scale. */
function quantile(histogram: Histogram, q: number, bounds: readonly number[]): number | undefined {
  const wanted = Math.ceil(q * [...histogram.values()].reduce((sum, count) => sum + count, 0));
  let passed = 0;
  for (const [place, count] of [...histogram].toSorted(([a], [b]) => a - b)) {
    passed += count;
    if (passed >= wanted) return place === 0 ? bounds[0]! : Math.sqrt(bounds[place]! * bounds[place - 1]!);
  }
  return undefined;
}

/** The sum of a metric over all of its labels. */
function metricSum(metrics: Readonly<Record<string, number>>, name: string): number {
  let sum = 0;
  for (const [key, value] of Object.entries(metrics)) if (key === name || key.startsWith(`${name}{`)) sum += value;
  return sum;
}
