import './seed.js';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { profiledCost } from '../src/internal.js';

describe('profiledCost', () => {
  const profile = {
    cachedTokens: [0, 100],
    newTokens: [10, 20, 40],
    prefillMs: [
      [1, 2, 3],
      [5, 6, 11],
    ],
  };

  it('gives the grid its own values, and what lies between them in proportion', () => {
    const { prefillMs } = profiledCost(profile);
    expect([prefillMs(0, 10), prefillMs(100, 40), prefillMs(0, 20)]).toEqual([1, 11, 2]);
    expect(prefillMs(50, 10)).toBe(3);
    expect(prefillMs(0, 30)).toBe(2.5);
    expect(prefillMs(50, 30)).toBe((2.5 + 8.5) / 2);
  });

  it('keeps the value of the edge beyond the grid', () => {
    const { prefillMs } = profiledCost(profile);
    expect([prefillMs(0, 0), prefillMs(1_000, 1_000), prefillMs(1_000, 15)]).toEqual([1, 11, 5.5]);
    expect(profiledCost({ cachedTokens: [0], newTokens: [1], prefillMs: [[7]] }).prefillMs(5, 9)).toBe(7);
  });

  it('agrees with a plane at every point of any grid', () => {
    const axis = fc
      .uniqueArray(fc.nat({ max: 5_000 }), { minLength: 1, maxLength: 6 })
      .map((values) => values.sort((a, b) => a - b));
    const plane = (cached: number, fresh: number) => 20 + 0.01 * cached + 0.092 * fresh;
    const within = (values: readonly number[], value: number) => Math.min(values.at(-1)!, Math.max(values[0]!, value));
    fc.assert(
      fc.property(
        axis,
        axis,
        fc.nat({ max: 6_000 }),
        fc.nat({ max: 6_000 }),
        (cachedTokens, newTokens, cached, fresh) => {
          const prefillMs = cachedTokens.map((row) => newTokens.map((column) => plane(row, column)));
          const expected = plane(within(cachedTokens, cached), within(newTokens, fresh));
          expect(profiledCost({ cachedTokens, newTokens, prefillMs }).prefillMs(cached, fresh)).toBeCloseTo(
            expected,
            6,
          );
        },
      ),
    );
  });

  it.each([
    [{ ...profile, cachedTokens: [] }, 'cachedTokens'],
    [{ ...profile, newTokens: [10, 10, 40] }, 'newTokens[1]'],
    [{ ...profile, prefillMs: [[1, 2, 3]] }, 'prefillMs'],
    [{ ...profile, prefillMs: [[1, 2, 3], [1]] }, 'prefillMs[1]'],
    [
      {
        ...profile,
        prefillMs: [
          [1, -2, 3],
          [1, 2, 3],
        ],
      },
      'prefillMs[0][1]',
    ],
  ])('refuses %j at %s', (wrong, path) => {
    expect(() => profiledCost(wrong)).toThrow(expect.objectContaining({ code: 'WARMPATH_INVALID_REQUEST', path }));
  });
});
