/** Of the runs of a property, `npm test` makes one in so many. */
const FAST_DIVISOR = 5;
/** A property of fewer runs shows little. */
const MIN_FAST_RUNS = 10;

/**
 * Whether `npm run test:full` is running, and not `npm test`. A file that imports this module belongs to both suites:
 * `it.runIf(isFull)` leaves a test out of `npm test`.
 */
export const isFull = process.env['WARMPATH_TEST'] === 'full';

/** Runs of a property, or a count that grows with them: all in `npm run test:full`, a fifth in `npm test`. */
export function runs(full: number): number {
  return isFull ? full : Math.min(full, Math.max(MIN_FAST_RUNS, Math.ceil(full / FAST_DIVISOR)));
}

/** Pairs of two lists: all in `npm run test:full`; in `npm test` as few as name each member of both. */
export function pairs<First, Second>(first: readonly First[], second: readonly Second[]): [First, Second][] {
  if (isFull) return first.flatMap((one) => second.map((other): [First, Second] => [one, other]));
  const count = Math.max(first.length, second.length);
  return Array.from({ length: count }, (_, i) => [first[i % first.length]!, second[i % second.length]!]);
}
