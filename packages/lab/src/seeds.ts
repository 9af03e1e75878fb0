import { WarmpathError } from '@warmpath/core';

/** Most seeds of one experiment. It limits memory: every request's outcome is kept until the report. */
const MAX_SEEDS = 1_000;

/**
 * Reads seeds as a command line gives them: single numbers and ranges, separated by commas, for instance `42`, `1..10`
 * or `1,5,7`. Each seed counts once.
 *
 * @throws WARMPATH_USAGE at `--seeds` for anything else, and for more than 1,000 seeds.
 */
export function readSeeds(text: string): readonly number[] {
  const seeds = new Set<number>();
  for (const part of text.split(',')) {
    const range = /^(\d{1,9})(?:\.\.(\d{1,9}))?$/.exec(part.trim());
    const first = Number(range?.[1]);
    const last = Number(range?.[2] ?? range?.[1]);
    if (range === null || last < first || last - first >= MAX_SEEDS) throw invalidSeeds(text);
    for (let seed = first; seed <= last; seed++) seeds.add(seed);
  }
  if (seeds.size > MAX_SEEDS) throw invalidSeeds(text);
  return [...seeds];
}

function invalidSeeds(text: string): WarmpathError {
  return new WarmpathError('WARMPATH_USAGE', {
    path: '--seeds',
    detail: `${JSON.stringify(text)} is no list of seeds; use whole numbers like 42, 1..10 or 1,5,7, at most ${MAX_SEEDS}`,
  });
}
