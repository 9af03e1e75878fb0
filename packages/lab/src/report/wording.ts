/** A share as percent, with its unit, not to be parted by a line end. */
export function percent(share: number): string {
  return `${(100 * share).toFixed(1)}\u00a0%`;
}

/** A share as percent in a column of a table whose heading has the unit. */
export function inPercent(share: number): string {
  return (100 * share).toFixed(2);
}

/** A difference of shares in percentage points, without a unit. */
export function points(difference: number): string {
  return (100 * difference).toFixed(1);
}

/** Whole numbers in order, runs of them written `1..10`. */
export function writeRanges(numbers: readonly number[]): string {
  const ranges: { first: number; last: number }[] = [];
  for (const number of numbers) {
    const range = ranges.at(-1);
    if (range !== undefined && number === range.last + 1) range.last = number;
    else ranges.push({ first: number, last: number });
  }
  return ranges.map(({ first, last }) => (first === last ? String(first) : `${first}..${last}`)).join(', ');
}

/** A difference with its sign. */
export function signed(value: number, places: number): string {
  const text = value.toFixed(places);
  return text.startsWith('-') ? `−${text.slice(1)}` : `+${text}`;
}

/** What policies know of requests to come: `queue` of them are looked at, on a server those that wait. */
export function knownAhead(queue: number, where: 'trace' | 'server'): string {
  if (queue === 0) return 'nothing';
  return where === 'server'
    ? `at most ${queue} waiting requests`
    : `of the next ${queue} requests those that could be waiting`;
}
