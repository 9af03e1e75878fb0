import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { quantile, summarise } from '../src/demo/statistics.js';

describe('summarise', () => {
  it('keeps p50 and p95 in order, within the sample, whatever the sample', () => {
    const sample = fc.array(fc.double({ min: 0, max: 1e6, noNaN: true }), { minLength: 1, maxLength: 200 });
    fc.assert(
      fc.property(sample, (values) => {
        const { p50, p95, mean } = summarise(values);
        const [low, high] = [Math.min(...values), Math.max(...values)];
        const slack = 1e-9 * high;
        expect(low <= p50 && p50 <= p95 && p95 <= high).toBe(true);
        expect(mean >= low - slack && mean <= high + slack).toBe(true);
      }),
      { seed: 3, numRuns: 300 },
    );
  });

  it('interpolates between ranks and does not depend on order', () => {
    expect(summarise([4, 1, 3, 2])).toEqual({ p50: 2.5, p95: 3.8499999999999996, mean: 2.5 });
    expect(quantile([10], 0.95)).toBe(10);
  });
});
