import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { seededRandom } from '../../src/loop/sampler.js';

describe('seeded random numbers', () => {
  it('are the same for the same seed and lie in [0, 1)', () => {
    fc.assert(
      fc.property(fc.nat({ max: Number.MAX_SAFE_INTEGER }), (seed) => {
        const [a, b] = [seededRandom(seed), seededRandom(seed)];
        for (let index = 0; index < 20; index++) {
          const value = a();
          expect(value).toBe(b());
          expect(value >= 0 && value < 1).toBe(true);
        }
      }),
      { seed: 1 },
    );
  });

  it('differ between neighbouring seeds, also in the bits above 32', () => {
    const firsts = [0, 1, 2, 3, 2 ** 32, 2 ** 33, 2 ** 46].map((seed) => seededRandom(seed)());
    expect(new Set(firsts).size).toBe(firsts.length);
  });

  it('fill [0, 1) evenly', () => {
    const next = seededRandom(42);
    const counts = new Array<number>(10).fill(0);
    for (let index = 0; index < 10_000; index++) {
      const bin = Math.floor(next() * 10);
      counts[bin] = counts[bin]! + 1;
    }
    // Five standard deviations around 1000.
    expect(Math.min(...counts)).toBeGreaterThan(850);
    expect(Math.max(...counts)).toBeLessThan(1150);
  });
});
