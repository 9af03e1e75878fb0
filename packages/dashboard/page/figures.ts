import { NO_TRAFFIC, type RequestSummary, type TrafficSlot, type TrafficSums } from '../src/feed.ts';

/** Sums over some slots. */
export interface Totals extends TrafficSums {
  readonly ttftCached: ReadonlyMap<number, number>;
  readonly ttftComputed: ReadonlyMap<number, number>;
  readonly ttftHeldOut: ReadonlyMap<number, number>;
  readonly ttftOthers: ReadonlyMap<number, number>;
  /** Prompts by the number of the reason why they gained nothing. */
  readonly noGain: ReadonlyMap<number, number>;
}

/** One point of a chart. */
export interface Bin extends Totals {
  /** On the clock of the slots, in milliseconds. */
  readonly start: number;
  readonly end: number;
}

export function totalsOf(slots: Iterable<TrafficSlot>): Totals {
  const sums: { -readonly [Name in keyof TrafficSums]: number } = { ...NO_TRAFFIC };
  const histograms = {
    ttftCached: new Map<number, number>(),
    ttftComputed: new Map<number, number>(),
    ttftHeldOut: new Map<number, number>(),
    ttftOthers: new Map<number, number>(),
    noGain: new Map<number, number>(),
  };
  for (const slot of slots) {
    for (const name of Object.keys(sums) as (keyof typeof sums)[]) sums[name] += slot[name];
    for (const name of Object.keys(histograms) as (keyof typeof histograms)[]) addPairs(histograms[name], slot[name]);
  }
  return { ...sums, ...histograms };
}

function addPairs(histogram: Map<number, number>, pairs: readonly number[]): void {
  for (let i = 0; i < pairs.length; i += 2) {
    histogram.set(pairs[i]!, (histogram.get(pairs[i]!) ?? 0) + pairs[i + 1]!);
  }
}

export function countOf(histogram: ReadonlyMap<number, number>): number {
  let sum = 0;
  for (const count of histogram.values()) sum += count;
  return sum;
}

/**
 * A quantile of a histogram: the middle of the class that it falls into, on a logarithmic scale; `null` of an empty
 * one.
 */
export function quantile(histogram: ReadonlyMap<number, number>, q: number, bounds: readonly number[]): number | null {
  const wanted = Math.ceil(q * countOf(histogram));
  let passed = 0;
  for (const place of [...histogram.keys()].toSorted((a, b) => a - b)) {
    passed += histogram.get(place)!;
    if (passed >= wanted) return place === 0 ? bounds[0]! : Math.sqrt(bounds[place]! * bounds[place - 1]!);
  }
  return null;
}

/** The last `spanMs` before `now` in bins of `binSlots` slots, the oldest first; those without requests too. */
export function binsOf(
  slots: ReadonlyMap<number, TrafficSlot>,
  { now, spanMs, binSlots, slotMs }: { now: number; spanMs: number; binSlots: number; slotMs: number },
): Bin[] {
  // Bins keep their slots from one second to the next.
  const last = Math.floor(Math.floor(now / slotMs) / binSlots);
  const first = last - Math.ceil(spanMs / slotMs / binSlots) + 1;
  const bins: Bin[] = [];
  for (let bin = first; bin <= last; bin++) {
    const inside: TrafficSlot[] = [];
    for (let slot = bin * binSlots; slot < (bin + 1) * binSlots; slot++) {
      const found = slots.get(slot);
      if (found !== undefined) inside.push(found);
    }
    const start = bin * binSlots * slotMs;
    bins.push({ ...totalsOf(inside), start, end: Math.min(now, start + binSlots * slotMs) });
  }
  return bins;
}

export function share(part: number, whole: number): number | null {
  return whole > 0 ? part / whole : null;
}

/** The sum of all metrics of that name, whatever their labels. */
export function metricSum(metrics: Readonly<Record<string, number>>, name: string): number {
  let sum = metrics[name] ?? 0;
  for (const [key, value] of Object.entries(metrics)) if (key.startsWith(`${name}{`)) sum += value;
  return sum;
}

/** The values of a metric by one of its labels, the greatest first. */
export function metricBy(metrics: Readonly<Record<string, number>>, name: string, label: string): [string, number][] {
  const found = new Map<string, number>();
  for (const [key, value] of Object.entries(metrics)) {
    if (!key.startsWith(`${name}{`)) continue;
    const text = new RegExp(`[{,]${label}="([^"]*)"`).exec(key)?.[1];
    if (text !== undefined) found.set(text, (found.get(text) ?? 0) + value);
  }
  return [...found].toSorted((a, b) => b[1] - a[1]);
}

export const PHASES = ['receive', 'retrieve', 'speculate', 'gateway', 'queue', 'prefill', 'answer', 'engine'] as const;
export type Phase = (typeof PHASES)[number];

export const PHASE_NAMES: Readonly<Record<Phase, string>> = {
  receive: 'Receive the request',
  retrieve: 'Retrieve',
  speculate: 'Retrieve and prefill at once',
  gateway: 'Gateway',
  queue: 'Queue',
  prefill: 'Prefill (to the first token)',
  answer: 'Decode and send',
  engine: 'Engine, not divided',
};

/**
 * The stages of a request in their order, in milliseconds. An answer in one piece does not tell when its first token
 * came: then the engine's time is one stage. Where generation began before the search was over, its wait and prefill
 * began then too.
 */
export function phasesOf(request: RequestSummary): { readonly phase: Phase; readonly ms: number }[] {
  const { durationMs, receivedMs, aheadMs, ttftMs } = request;
  const [retrieve, gateway, queue] = [request.retrievalMs ?? 0, request.overheadMs ?? 0, request.queuedMs ?? 0];
  const queueLeft = Math.max(0, queue - aheadMs);
  const engine = Math.max(0, durationMs - receivedMs - retrieve - gateway - queueLeft);
  const prefill = Math.min(engine, Math.max(0, (ttftMs ?? 0) + queue - queueLeft - aheadMs));
  const phases: { phase: Phase; ms: number }[] = [
    { phase: 'receive', ms: receivedMs },
    { phase: 'retrieve', ms: retrieve - aheadMs },
    { phase: 'speculate', ms: aheadMs },
    { phase: 'gateway', ms: gateway },
    { phase: 'queue', ms: queueLeft },
    ...(ttftMs === null
      ? [{ phase: 'engine', ms: engine } as const]
      : ([
          { phase: 'prefill', ms: prefill },
          { phase: 'answer', ms: engine - prefill },
        ] as const)),
  ];
  return phases.filter(({ ms }) => ms > 0);
}
