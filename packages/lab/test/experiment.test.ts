import type { OrderingPolicy } from '@warmpath/core';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import {
  CONVERSATION_LAYOUTS,
  createWorkload,
  Experiment,
  type ExperimentSettings,
  estimate,
  PAPER_LENGTHS,
  percentile,
  readCache,
  type SeedFigures,
  type SimulateOptions,
  simulate,
  toWorkload,
  VllmBlockCache,
  type Workload,
} from '../src/index.js';

function settings(changes: Partial<ExperimentSettings> = {}): ExperimentSettings {
  return {
    workload: 'geospatial',
    create: (seed) => createWorkload('geospatial', { seed }),
    policies: ['retrieval', 'exact'],
    seeds: [1, 2, 3],
    queue: 0,
    cache: { name: 'unlimited', create: readCache('unlimited') },
    clock: () => 0,
    ...changes,
  };
}

function runAll(changes: Partial<ExperimentSettings> = {}) {
  const experiment = new Experiment(settings(changes));
  while (experiment.step());
  return experiment.report();
}

function stepped() {
  const experiment = new Experiment(settings());
  experiment.step();
  return experiment;
}

describe('difference', () => {
  it('pairs each policy with the first, seed by seed, and leaves the first without', () => {
    const report = runAll({ policies: ['retrieval', 'exact', 'greedy'] });
    const [first, exact, greedy] = report.results;
    expect(first).not.toHaveProperty('difference');
    for (const result of [exact!, greedy!]) {
      const { cachedDocumentShare, cachedTokenShare, ttftMs } = result.difference!;
      expect(ttftMs.mean).toBeCloseTo(result.ttftMs.mean - first!.ttftMs.mean, 9);
      expect(cachedDocumentShare.mean).toBeCloseTo(
        result.cachedDocumentShare.mean - first!.cachedDocumentShare.mean,
        12,
      );
      expect(cachedTokenShare.mean).toBeCloseTo(result.cachedTokenShare.mean - first!.cachedTokenShare.mean, 12);
    }
    const bySeed = [1, 2, 3].map((seed) => {
      const [one, other] = runAll({ seeds: [seed] }).results;
      return other!.cachedDocumentShare.mean - one!.cachedDocumentShare.mean;
    });
    expect(exact!.difference!.cachedDocumentShare.se).toBeCloseTo(estimate(bySeed).se, 12);
  });
});

describe('simulate', () => {
  const workload = createWorkload('sessions', { seed: 4, lengths: 'unequal' });

  it('counts cached tokens that add up with documents, at any cache', () => {
    for (const cache of ['unlimited', '600', 'radix', 'radix:9000', 'slots', 'off']) {
      const outcomes = simulate(workload, 'exact', { cache: readCache(cache)() });
      expect(outcomes).toHaveLength(workload.requests.length);
      for (const [number, outcome] of outcomes.entries()) {
        const { documents } = workload.requests[number]!;
        expect(outcome.promptTokens).toBe(52 + documents.reduce((sum, { tokens }) => sum + tokens, 0));
        expect(outcome.cachedTokens).toBeLessThan(outcome.promptTokens);
        expect(outcome.cachedDocuments).toBeLessThanOrEqual(documents.length);
        expect(outcome.ttftMs).toBeCloseTo(20 + 0.092 * (outcome.promptTokens - outcome.cachedTokens), 9);
      }
    }
  });

  it('counts a document as reused when only the part of a last block is missing', () => {
    // 28 + 200 tokens: 14 full blocks hold 224 of them. The second request shares the first document.
    const trace = [
      { documents: [1, 2], question: 0 },
      { documents: [1, 3], question: 1 },
    ];
    const cached = (cache: string) => simulate(toWorkload('two', trace), 'retrieval', { cache: readCache(cache)() })[1];
    expect(cached('unlimited')).toMatchObject({ cachedDocuments: 1, cachedTokens: 224 });
    expect(cached('radix')).toMatchObject({ cachedDocuments: 1, cachedTokens: 228 });
    expect(cached('off')).toMatchObject({ cachedDocuments: 0, cachedTokens: 0 });
  });

  it('lets the policy know of exactly the coming requests', () => {
    const trace = [1, 2, 3].map((document) => ({ documents: [document, 9], question: document }));
    expect(knownAhead(toWorkload('three', trace), { queue: 1 })).toEqual([
      [['doc_0002', 'doc_0009']],
      [['doc_0003', 'doc_0009']],
      [],
    ]);
  });

  it('never lets it know of a question that depends on an answer still to come', () => {
    const session = fc.option(fc.integer({ min: 0, max: 3 }), { nil: undefined });
    const layout = fc.constantFrom(...CONVERSATION_LAYOUTS);
    fc.assert(
      fc.property(
        fc.array(session, { maxLength: 12 }),
        fc.integer({ min: 0, max: 12 }),
        layout,
        (sessions, queue, conversations) => {
          const trace = sessions.map((of, place) => ({
            documents: [place],
            question: place,
            ...(of !== undefined && { session: of }),
          }));
          const answered = { ...PAPER_LENGTHS, answer: 10 };
          const known = knownAhead(toWorkload('any', trace, answered), { queue, conversations });
          for (const [number, waiting] of known.entries()) {
            // Behind words of its own, a turn shares nothing with others.
            const isAlone = (place: number) =>
              conversations === 'documents-first' ||
              sessions[place] === undefined ||
              !sessions.slice(0, number).includes(sessions[place]);
            const possible = sessions.flatMap((of, place) => {
              const isComing = place > number && place <= number + queue;
              const isNext = of === undefined || !sessions.slice(number, place).includes(of);
              return isComing && isNext && isAlone(number) && isAlone(place) ? [place] : [];
            });
            expect(waiting).toEqual(possible.map((place) => [`doc_${String(place).padStart(4, '0')}`]));
          }
        },
      ),
      { seed: 43, numRuns: runs(200) },
    );
  });

  it('does not hide a policy that falls back to retrieval order', () => {
    const deep = createWorkload('k-10', { seed: 1 });
    expect(() => simulate(deep, 'oracle')).toThrow('requests[0]: the policy `oracle` failed on 10 documents');
  });

  it('corrects the history where the engine reports cached tokens and its cache is small', () => {
    const sessions = createWorkload('sessions', { seed: 1 });
    const cachedTokens = (reportsCachedTokens: boolean) =>
      simulate(sessions, 'exact', { cache: new VllmBlockCache({ blocks: 330 }), reportsCachedTokens }).reduce(
        (sum, outcome) => sum + outcome.cachedTokens,
        0,
      );
    expect(cachedTokens(true)).toBeGreaterThan(1.2 * cachedTokens(false));
  });

  it('refuses a look-ahead out of range', () => {
    expect(() => simulate(workload, 'exact', { queue: 65 })).toThrow(/queue/);
    expect(() => simulate(workload, 'exact', { queue: -1 })).toThrow(/queue/);
  });
});

/** Ids of the documents of the requests that a policy is told of, request by request. */
function knownAhead(workload: Workload, options: SimulateOptions): (readonly (readonly string[])[])[] {
  const known: (readonly (readonly string[])[])[] = [];
  const policy: OrderingPolicy = {
    name: 'retrieval',
    arrange: ({ documents, waiting = [] }) => {
      known.push(waiting.map((wanted) => wanted.map(({ id }) => id)));
      return { order: documents.map((_, rank) => rank), cachedDocuments: 0, cachedTokens: 0 };
    },
  };
  simulate(workload, policy, options);
  return known;
}

describe('Experiment', () => {
  it('reports the same figures every time, with error, settings and bounds', () => {
    const report = runAll();
    expect(runAll()).toEqual(report);
    expect(report).toMatchObject({ workload: 'geospatial', requests: 200 });
    const [retrieval, exact] = report.results;
    expect(retrieval).toMatchObject({ policy: 'retrieval', queue: 0, cache: 'unlimited', seeds: [1, 2, 3] });
    expect(exact!.cachedDocumentShare.mean).toBe(report.bounds.oracle);
    expect(exact!.cachedDocumentShare.se).toBeGreaterThan(0);
    expect(retrieval!.cachedDocumentShare.mean).toBeLessThan(report.bounds.oracle);
    expect(report.bounds.seenBefore).toBeGreaterThan(report.bounds.oracle);
  });

  it('keeps what is done when it is stopped half way', () => {
    const experiment = new Experiment(settings());
    expect(experiment.report().results[0]!.seeds).toEqual([]);
    expect(experiment.step()).toMatchObject({ seed: 1 });
    expect(experiment.report()).toEqual(runAll({ seeds: [1] }));
    while (experiment.step());
    expect(experiment.report()).toEqual(runAll());
  });

  it('goes on from what another one did, through JSON, as if there had been one', () => {
    const first = new Experiment(
      settings({ warmUp: 5, server: { clients: { kind: 'poisson', load: 0.9 } }, queue: 4 }),
    );
    first.step();
    first.step();
    const written = JSON.parse(JSON.stringify(first.done)) as SeedFigures[];
    const second = new Experiment(
      settings({ warmUp: 5, server: { clients: { kind: 'poisson', load: 0.9 } }, queue: 4 }),
      written,
    );
    expect(second.step()).toMatchObject({ seed: 3 });
    expect(second.step()).toBeUndefined();
    expect(second.report()).toEqual(
      runAll({ warmUp: 5, server: { clients: { kind: 'poisson', load: 0.9 } }, queue: 4 }),
    );
  });

  it.each([
    ['of another seed', { seeds: [4, 5] }, /done\[0\]\.seed.*seed 1 is done.*asked for is 4/],
    ['beyond the seeds asked for', { seeds: [] }, /number 1 of the seeds asked for is none/],
    ['of other policies', { policies: ['sorted'] }, /done\[0\]\.outcomes.*sorted/],
  ] as const)('does not go on from figures %s', (_, changes, message) => {
    const { done } = stepped();
    expect(() => new Experiment(settings(changes), done)).toThrow(message);
  });

  it('measures its oracle without look-ahead and on the cache at hand', () => {
    const cache = { name: '200', create: readCache('200') };
    const small = runAll({ cache, seeds: [1] });
    expect(runAll({ cache, seeds: [1], queue: 8 }).bounds).toEqual(small.bounds);
    expect(small.bounds.oracle).toBeLessThan(runAll({ seeds: [1] }).bounds.oracle);
  });

  it('leaves the warm-up out of the figures', () => {
    const [cold] = runAll({ seeds: [1] }).results;
    const [warm] = runAll({ seeds: [1], warmUp: 100 }).results;
    expect(warm!.cachedDocumentShare.mean).toBeGreaterThan(cold!.cachedDocumentShare.mean);
  });

  it('times arrange with the clock it is given', () => {
    let now = 0;
    const clock = () => {
      now += 0.5;
      return now;
    };
    expect(runAll({ clock, seeds: [1] }).results[0]!.arrangeUs).toEqual({ p50: 500, p99: 500 });
  });
});

describe('statistics', () => {
  it('estimate mean and standard error', () => {
    expect(estimate([1, 2, 3, 4])).toEqual({ mean: 2.5, se: Math.sqrt(5 / 3 / 4) });
    expect(estimate([7])).toEqual({ mean: 7, se: 0 });
  });

  it('take a percentile that is one of the values', () => {
    expect(percentile([], 0.5)).toBe(0);
    expect(percentile([3, 1, 2], 0.5)).toBe(2);
    fc.assert(
      fc.property(
        fc.array(fc.integer(), { minLength: 1 }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        (values, share) => {
          const value = percentile(values, share);
          expect(values).toContain(value);
          expect(values.filter((other) => other < value).length).toBeLessThanOrEqual(values.length * share);
        },
      ),
      { seed: 5 },
    );
  });
});

describe('readCache', () => {
  it('makes the cache that the text names, a new one each time', () => {
    const create = readCache('330');
    expect(create()).not.toBe(create());
    expect(create().capacityTokens).toBe(330 * 16);
    expect(readCache('8x32')()).toMatchObject({ capacityTokens: 256, granularity: 32 });
    expect(readCache('radix:500')().capacityTokens).toBe(500);
    expect(readCache('radix:500:pgdsf')()).toMatchObject({ capacityTokens: 500, evictsLeastRecent: false });
    expect(readCache('slots:2')().name).toBe('llama-slots');
    expect(readCache('slots:2:500')().name).toBe('llama-slots');
    expect(readCache('unlimited')().capacityTokens).toBe(Number.POSITIVE_INFINITY);
  });

  it.each(['', '0', 'slots:', 'radix:0', 'radix:9:age', 'radix:9:', 'off:3', 'unlimited:3', '-1', '1e3'])(
    'refuses %j',
    (text) => {
      expect(() => readCache(text)).toThrow(/A cache is one of/);
    },
  );
});
