/** Summary of a sample of durations, in milliseconds. */
export interface DurationSummary {
  readonly p50: number;
  readonly p95: number;
  readonly mean: number;
}

/** p50, p95 and mean. `values` must not be empty. Cost: O(n log n). */
export function summarise(values: readonly number[]): DurationSummary {
  const sorted = [...values].sort((a, b) => a - b);
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  return { p50: quantile(sorted, 0.5), p95: quantile(sorted, 0.95), mean };
}

/** The quantile of ascending values, interpolated between the two nearest ranks. */
export function quantile(sorted: readonly number[], share: number): number {
  const position = (sorted.length - 1) * share;
  const lower = Math.floor(position);
  const upper = Math.min(lower + 1, sorted.length - 1);
  return sorted[lower]! + (sorted[upper]! - sorted[lower]!) * (position - lower);
}
