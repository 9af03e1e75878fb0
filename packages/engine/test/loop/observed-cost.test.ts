import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ObservedCost } from '../../src/loop/observed-cost.js';

describe('the cost learned from steps', () => {
  it('is one millisecond a token before anything is known', () => {
    expect(new ObservedCost().prefillMs(500, 20)).toBe(20);
  });

  it('finds what a token and what its depth cost, whatever the steps were', () => {
    const chunk = fc.record({ tokens: fc.integer({ min: 1, max: 128 }), from: fc.integer({ min: 0, max: 8000 }) });
    fc.assert(
      fc.property(
        fc.array(chunk, { minLength: 20, maxLength: 60 }),
        fc.double({ min: 0.05, max: 5, noNaN: true }),
        fc.double({ min: 0.001, max: 0.5, noNaN: true }),
        (steps, perToken, perThousand) => {
          fc.pre(new Set(steps.map(({ from }) => from >> 9)).size > 4);
          const cost = new ObservedCost();
          const truth = (cached: number, tokens: number): number =>
            tokens * perToken + (tokens * (cached + tokens / 2) * perThousand) / 1000;
          for (const { tokens, from } of steps) {
            cost.observe(tokens, tokens * (from + tokens / 2), truth(from, tokens));
          }
          expect(cost.prefillMs(3000, 200) / truth(3000, 200)).toBeCloseTo(1, 3);
          expect(cost.prefillMs(0, 1000) / truth(0, 1000)).toBeCloseTo(1, 3);
        },
      ),
      { seed: 1, numRuns: 100 },
    );
  });

  it('is never negative, and follows the mean of steps that are all alike', () => {
    const cost = new ObservedCost();
    for (let step = 0; step < 10; step++) {
      cost.observe(100, 5000, 40);
    }
    expect(cost.prefillMs(0, 10)).toBeCloseTo(4);
    // Deeper steps that were faster: noise.
    cost.observe(100, 900_000, 1);
    cost.observe(100, 1_900_000, 1);
    expect(cost.prefillMs(100_000, 10)).toBeGreaterThan(0);
  });
});
