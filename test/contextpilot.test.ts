import { describe, expect, it } from 'vitest';
import type { ConformanceCase } from './contextpilot/case.js';
import { planningCases } from './contextpilot/planning.cases.js';
import { recognitionCases } from './contextpilot/recognition.cases.js';
import { requestCases } from './contextpilot/requests.cases.js';
import { sessionCases } from './contextpilot/sessions.cases.js';

// What ContextPilot, the nearest peer, tests of itself, and what it was found to get wrong: 26 cases in our own words,
// each of them a real test of what we do in its place. A group of cases is a file. Where we do something else, the
// title says what.

const CASES: readonly ConformanceCase[] = [...planningCases, ...sessionCases, ...recognitionCases, ...requestCases];

describe('what users of ContextPilot would expect', () => {
  it('lists each of the 26 cases once', () => {
    const numbers = CASES.map(({ number }) => number).sort((a, b) => a - b);
    expect(numbers).toEqual(Array.from({ length: 26 }, (_, place) => place + 1));
  });

  for (const { number, title, run } of CASES.toSorted((a, b) => a.number - b.number)) it(`${number}: ${title}`, run);
});
