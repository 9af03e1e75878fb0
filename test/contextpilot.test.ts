import { describe, expect, it } from 'vitest';
import type { ConformanceCase } from './contextpilot/case.js';
import { planningCases } from './contextpilot/planning.cases.js';
import { sessionCases } from './contextpilot/sessions.cases.js';

// What ContextPilot, the nearest peer, tests of itself, and what it was found to get wrong: 26 cases in our own words, each of
// them a real test of what we do in its place. A group of cases is a file; a number stands in one of them, or is still open.

const CASES: readonly ConformanceCase[] = [...planningCases, ...sessionCases];

/** Numbers that no file has yet. */
const OPEN: readonly number[] = [13, 14, 15, 16, 17, 18, 19, 25, 26];

describe('what users of ContextPilot would expect', () => {
  it('lists each of the 26 cases once', () => {
    const numbers = [...CASES.map(({ number }) => number), ...OPEN].sort((a, b) => a - b);
    expect(numbers).toEqual(Array.from({ length: 26 }, (_, place) => place + 1));
  });

  for (const { number, title, run } of CASES.toSorted((a, b) => a.number - b.number)) it(`${number}: ${title}`, run);
});
