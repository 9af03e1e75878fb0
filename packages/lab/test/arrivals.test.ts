import { describe, expect, it } from 'vitest';
import { createWorkload, Experiment, mean, readCache, simulate, simulateArrivals } from '../src/index.js';

const workload = createWorkload('mixed', { seed: 5 });
const service = (policy: 'retrieval' | 'exact' | 'foresight') => simulate(workload, policy).map(({ ttftMs }) => ttftMs);

describe('simulateArrivals', () => {
  it('is `simulate` without look-ahead where nobody ever waits', () => {
    const outcomes = simulateArrivals(workload, 'foresight', { perSecond: 0.001, seed: 1 }, { queue: 16 });
    for (const [number, outcome] of simulate(workload, 'foresight').entries()) {
      expect(outcomes[number]).toEqual({ ...outcome, ttftMs: expect.closeTo(outcome.ttftMs, 4) });
    }
  });

  it('makes the last of a burst wait for all before it', () => {
    const outcomes = simulateArrivals(workload, 'retrieval', { perSecond: 1e9, seed: 1 });
    const total = service('retrieval').reduce((sum, value) => sum + value, 0);
    expect(outcomes.at(-1)!.ttftMs).toBeCloseTo(total, 1);
  });

  it('knows of coming requests only once they wait', () => {
    const known = (perSecond: number) => {
      const counts: number[] = [];
      const policy = {
        name: 'retrieval' as const,
        arrange: (context: {
          readonly documents: readonly unknown[];
          readonly waiting?: readonly unknown[] | undefined;
        }) => {
          counts.push(context.waiting!.length);
          return { order: context.documents.map((_, rank) => rank), cachedDocuments: 0, cachedTokens: 0 };
        },
      };
      simulateArrivals(workload, policy, { perSecond, seed: 2 }, { queue: 4 });
      return counts;
    };
    expect(Math.max(...known(0.001))).toBe(0);
    expect(
      known(1e9)
        .slice(1, -4)
        .every((count) => count === 4),
    ).toBe(true);
    const some = known(8);
    expect(new Set(some).size).toBeGreaterThan(2);
  });

  it('is the same for the same seed, another for another', () => {
    const ttft = (seed: number) =>
      simulateArrivals(workload, 'exact', { perSecond: 9, seed }).map(({ ttftMs }) => ttftMs);
    expect(ttft(1)).toEqual(ttft(1));
    expect(ttft(1)).not.toEqual(ttft(2));
  });

  it('refuses a rate that is none', () => {
    for (const perSecond of [0, -1, Number.NaN, Number.POSITIVE_INFINITY]) {
      expect(() => simulateArrivals(workload, 'exact', { perSecond, seed: 1 })).toThrow(/perSecond/);
    }
  });
});

describe('an experiment under load', () => {
  const run = (load: number) => {
    const experiment = new Experiment({
      workload: 'mixed',
      create: (seed) => createWorkload('mixed', { seed }),
      policies: ['retrieval', 'exact'],
      seeds: [1, 2, 3],
      queue: 8,
      cache: { name: 'unlimited', create: readCache('unlimited') },
      load,
      clock: () => 0,
    });
    while (experiment.step());
    return experiment.report();
  };

  it('saturates retrieval order above 1, and better orders later', () => {
    const [light, heavy] = [run(0.3), run(1.2)];
    const ttft = (report: typeof light, policy: number) => report.results[policy]!.ttftMs.mean;
    expect(ttft(heavy, 0)).toBeGreaterThan(5 * ttft(light, 0));
    expect(ttft(heavy, 1)).toBeLessThan(0.85 * ttft(heavy, 0));
    expect(ttft(light, 0)).toBeLessThan(2 * mean(service('retrieval')));
    expect(heavy.results[0]).toMatchObject({ load: 1.2 });
  });

  it('leaves the shares of an order that looks at nothing ahead as they are', () => {
    const { results, bounds } = run(1.2);
    expect(results[1]!.cachedDocumentShare.mean).toBe(bounds.oracle);
  });
});
