/** Mean over seeds and its standard error; the error is 0 for a single value. */
export interface Estimate {
  readonly mean: number;
  readonly se: number;
}

/** Mean of the values; 0 for none. O(n). */
export function mean(values: readonly number[]): number {
  return values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** Mean and standard error (sample standard deviation over the square root of n). O(n). */
export function estimate(values: readonly number[]): Estimate {
  const centre = mean(values);
  if (values.length < 2) return { mean: centre, se: 0 };
  const squares = values.reduce((sum, value) => sum + (value - centre) ** 2, 0);
  return { mean: centre, se: Math.sqrt(squares / (values.length - 1) / values.length) };
}

/** The papers' percentile: the value at `floor(n × share)` of the sorted list; 0 for none. O(n log n). */
export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}

/**
 * The value at or below which `share` of the weight lies, where each value counts as often as its weight says; 0 for
 * none. With equal weights, `percentile`. O(n log n).
 */
export function weightedPercentile(values: readonly number[], weights: readonly number[], share: number): number {
  const places = values.map((_, place) => place).sort((a, b) => values[a]! - values[b]!);
  const wanted = share * weights.reduce((sum, weight) => sum + weight, 0);
  let passed = 0;
  for (const place of places) {
    passed += weights[place]!;
    if (passed > wanted) return values[place]!;
  }
  return values[places.at(-1) ?? -1] ?? 0;
}

/** Calls at the start of a run whose times are left out: the first run a code that is not compiled yet. */
export const WARM_UP_CALLS = 200;

/** The times of calls that ran compiled code, or of the later half where there are few. O(n). */
export function settledTimes(times: readonly number[]): readonly number[] {
  return times.slice(Math.min(WARM_UP_CALLS, Math.floor(times.length / 2)));
}
