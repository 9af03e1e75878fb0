import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createWorkload, profiledLatency, RTX_4090, simulate } from '../src/index.js';

describe('profiledLatency', () => {
  const profile = {
    cachedTokens: [0, 100],
    newTokens: [10, 20, 40],
    ttftMs: [
      [1, 2, 3],
      [5, 6, 11],
    ],
  };

  it('gives the grid its own values, and what lies between them in proportion', () => {
    const latency = profiledLatency(profile);
    expect([latency(0, 10), latency(100, 40), latency(0, 20)]).toEqual([1, 11, 2]);
    expect(latency(50, 10)).toBe(3);
    expect(latency(0, 30)).toBe(2.5);
    expect(latency(50, 30)).toBe((2.5 + 8.5) / 2);
  });

  it('keeps the value of the edge beyond the grid', () => {
    const latency = profiledLatency(profile);
    expect([latency(0, 0), latency(1_000, 1_000), latency(1_000, 15)]).toEqual([1, 11, 5.5]);
    expect(profiledLatency({ cachedTokens: [0], newTokens: [1], ttftMs: [[7]] })(5, 9)).toBe(7);
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
          const ttftMs = cachedTokens.map((row) => newTokens.map((column) => plane(row, column)));
          const expected = plane(within(cachedTokens, cached), within(newTokens, fresh));
          expect(profiledLatency({ cachedTokens, newTokens, ttftMs })(cached, fresh)).toBeCloseTo(expected, 6);
        },
      ),
      { seed: 41 },
    );
  });

  it('serves a simulation', () => {
    const grid = { cachedTokens: [0], newTokens: [0, 2_000], ttftMs: [[20, 204]] };
    const workload = createWorkload('headline-a', { seed: 1 });
    const times = (latency: typeof RTX_4090) => simulate(workload, 'exact', { latency }).map(({ ttftMs }) => ttftMs);
    const expected = times(RTX_4090);
    for (const [number, value] of times(profiledLatency(grid)).entries()) {
      expect(value).toBeCloseTo(expected[number]!, 6);
    }
  });

  it.each([
    [{ ...profile, cachedTokens: [] }, 'cachedTokens'],
    [{ ...profile, newTokens: [10, 10, 40] }, 'newTokens[1]'],
    [{ ...profile, ttftMs: [[1, 2, 3]] }, 'ttftMs'],
    [{ ...profile, ttftMs: [[1, 2, 3], [1]] }, 'ttftMs[1]'],
    [
      {
        ...profile,
        ttftMs: [
          [1, -2, 3],
          [1, 2, 3],
        ],
      },
      'ttftMs[0][1]',
    ],
  ])('refuses %j at %s', (wrong, path) => {
    expect(() => profiledLatency(wrong)).toThrow(expect.objectContaining({ code: 'WARMPATH_INVALID_REQUEST', path }));
  });
});
