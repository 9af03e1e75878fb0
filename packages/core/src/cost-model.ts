import { WarmpathError } from './errors.js';

/** Predicts prefill times of one engine on one machine. */
export interface CostModel {
  /** Milliseconds to compute `newTokens` behind `cachedTokens`. */
  prefillMs(cachedTokens: number, newTokens: number): number;
}

/** Measured prefill times over a grid of prompts. */
export interface PrefillProfile {
  /** Cached tokens of the rows, ascending. */
  readonly cachedTokens: readonly number[];
  /** New tokens of the columns, ascending. */
  readonly newTokens: readonly number[];
  /** Milliseconds; a row for each of `cachedTokens`, in it a value for each of `newTokens`. */
  readonly prefillMs: readonly (readonly number[])[];
}

/** The two grid lines around a value, and its position between them (0 to 1). */
interface Bracket {
  readonly low: number;
  readonly high: number;
  readonly share: number;
}

/**
 * The cost model of a measured profile: bilinear between grid points, constant outside (RAGCache §5.1, Algorithm 1).
 * O(log grid).
 *
 * @throws `WARMPATH_INVALID_REQUEST` with a path, for an axis that is empty or not ascending, a missing or short row,
 * or a value that is not a finite number of 0 or more
 */
export function profiledCost(profile: PrefillProfile): CostModel {
  const { cachedTokens: rows, newTokens: columns, prefillMs } = profile;
  checkAxis(rows, 'cachedTokens');
  checkAxis(columns, 'newTokens');
  if (prefillMs.length !== rows.length) throw invalid('prefillMs', `${rows.length} rows were expected.`);
  for (const [number, row] of prefillMs.entries()) {
    if (row.length !== columns.length) throw invalid(`prefillMs[${number}]`, `${columns.length} values were expected.`);
    const wrong = row.findIndex((value) => !isAmount(value));
    if (wrong >= 0) throw invalid(`prefillMs[${number}][${wrong}]`, 'A number of 0 or more was expected.');
  }
  return {
    prefillMs: (cachedTokens, newTokens) => {
      const row = bracket(rows, cachedTokens);
      const column = bracket(columns, newTokens);
      const along = (number: number) =>
        between(prefillMs[number]![column.low]!, prefillMs[number]![column.high]!, column.share);
      return between(along(row.low), along(row.high), row.share);
    },
  };
}

function bracket(axis: readonly number[], value: number): Bracket {
  let low = 0;
  let high = axis.length - 1;
  if (value <= axis[low]!) return { low, high: low, share: 0 };
  if (value >= axis[high]!) return { low: high, high, share: 0 };
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (axis[middle]! <= value) low = middle;
    else high = middle;
  }
  return { low, high, share: (value - axis[low]!) / (axis[high]! - axis[low]!) };
}

function between(low: number, high: number, share: number): number {
  return low + (high - low) * share;
}

function checkAxis(axis: readonly number[], path: string): void {
  if (axis.length === 0) throw invalid(path, 'At least one number of tokens was expected.');
  const wrong = axis.findIndex((value, place) => !isAmount(value) || (place > 0 && value <= axis[place - 1]!));
  if (wrong >= 0)
    throw invalid(`${path}[${wrong}]`, 'Numbers of 0 or more were expected, each larger than the one before.');
}

function isAmount(value: number): boolean {
  return Number.isFinite(value) && value >= 0;
}

function invalid(path: string, detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_INVALID_REQUEST', { path, detail });
}
