/** Of the runs of a property, `npm test` makes one in so many. */
const FAST_DIVISOR = 5;
/** A property of fewer runs shows little. */
const MIN_FAST_RUNS = 10;

/**
 * Runs of a property in the suite that is running: all of them in `npm run test:full`, a fifth in `npm test`. A file
 * that imports this function belongs to both suites.
 */
export function runs(full: number): number {
  if (process.env['WARMPATH_TEST'] === 'full') return full;
  return Math.min(full, Math.max(MIN_FAST_RUNS, Math.ceil(full / FAST_DIVISOR)));
}
