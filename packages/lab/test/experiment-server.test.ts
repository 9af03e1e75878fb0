import { describe, expect, it } from 'vitest';
import { createWorkload, Experiment, mean, readCache, simulate } from '../src/index.js';

const workload = createWorkload('mixed', { seed: 5 });
const service = (policy: 'retrieval' | 'exact' | 'foresight') => simulate(workload, policy).map(({ ttftMs }) => ttftMs);

describe('an experiment under load', () => {
  const run = (load: number) => {
    const experiment = new Experiment({
      workload: 'mixed',
      create: (seed) => createWorkload('mixed', { seed }),
      policies: ['retrieval', 'exact'],
      seeds: [1, 2, 3],
      queue: 8,
      cache: { name: 'unlimited', create: readCache('unlimited') },
      server: { clients: { kind: 'poisson', load } },
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
