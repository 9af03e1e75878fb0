import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isFull } from '../../../test/suite.js';
import {
  createWorkload,
  type LoggedRequest,
  loadOfflineSolver,
  mean,
  meanAdjacentJaccard,
  percentile,
  RecordedReplay,
  Replay,
  type ReplaySettings,
  RTX_4090,
  readCache,
  recordedClients,
  seenBeforeShare,
  simulate,
  simulateServer,
  type Workload,
} from '../src/index.js';
import { Distribution } from '../src/replay/reuse-sums.js';
import { SessionRepeats } from '../src/replay/traffic.js';

/** Requests of a log. */
const REQUESTS = isFull ? 1_000 : 400;

const cache = (name: string) => ({ name, create: readCache(name) });

function settings(changes: Partial<ReplaySettings> = {}): ReplaySettings {
  return {
    log: 'log',
    policies: ['retrieval', 'exact'],
    caches: [cache('unlimited')],
    latency: { name: 'test', model: RTX_4090 },
    clock: () => 0,
    ...changes,
  };
}

/** A workload as its own log. */
const logOf = ({ requests }: Workload): LoggedRequest[] =>
  requests.map(({ documents, question, session }, i) => ({
    line: i + 1,
    documents: documents.map(({ id, tokens }) => ({ id, tokens })),
    timestampMs: undefined,
    session,
    queryTokens: question.tokens,
  }));

function replay(log: readonly LoggedRequest[], changes: Partial<ReplaySettings> = {}) {
  const running = new Replay(settings(changes));
  for (const request of log) running.next(request);
  running.finish();
  return running.report();
}

describe('Replay', () => {
  const workload = createWorkload('sessions', { seed: 4, lengths: 'unequal' });
  // Every question of a log is another.
  const distinct = {
    ...workload,
    requests: workload.requests
      .slice(0, REQUESTS)
      .map((request, i) => ({ ...request, question: { key: `q${i}`, tokens: 24 } })),
  };
  const log = logOf(distinct);

  it('gets what the simulator gets, on every cache, with and without look-ahead', () => {
    for (const queue of [0, 8]) {
      const report = replay(log, { policies: ['foresight'], caches: [cache('900'), cache('radix:9000')], queue });
      for (const result of report.results) {
        const outcomes = simulate(distinct, 'foresight', { cache: readCache(result.cache)(), queue });
        const uncached = outcomes.map(({ promptTokens, cachedTokens }) => promptTokens - cachedTokens);
        expect(result.requests).toBe(REQUESTS);
        expect(result.uncachedTokens.total).toBe(uncached.reduce((a, b) => a + b));
        expect(result.cachedDocumentShare).toBeCloseTo(
          mean(outcomes.map(({ cachedDocuments, documents }) => cachedDocuments / documents)),
          9,
        );
        expect(result.ttftMs.mean).toBeCloseTo(mean(outcomes.map(({ ttftMs }) => ttftMs)), 9);
        const p95 = percentile(
          outcomes.map(({ ttftMs }) => ttftMs),
          0.95,
        );
        expect(Math.abs(result.ttftMs.p95 / p95 - 1)).toBeLessThan(0.005);
      }
    }
  });

  it('describes the traffic', () => {
    const { traffic } = replay(log);
    expect(traffic.jaccard).toBeCloseTo(meanAdjacentJaccard(distinct.requests), 9);
    expect(traffic.documentsSeenBefore / traffic.documents).toBeCloseTo(seenBeforeShare(distinct), 9);
    expect(traffic.repeatedInSession).toBeGreaterThan(0.1);
    expect(traffic.repeatedInSession).toBeLessThan(traffic.documentsSeenBefore / traffic.documents);
    expect(traffic.spanMs).toBeNull();
  });

  it('never finds more than was seen before, and has the oracle of each cache', () => {
    const report = replay(log, { policies: ['retrieval', 'foresight'], caches: [cache('radix'), cache('radix:5000')] });
    for (const { cachedTokenShare } of report.results) {
      expect(cachedTokenShare).toBeLessThan(report.traffic.seenBefore);
    }
    const exact = replay(log, { policies: ['exact'], caches: [cache('radix'), cache('radix:5000')], queue: 8 });
    expect(report.bounds).toEqual(exact.bounds);
    expect(report.bounds.map(({ oracle }) => oracle)).toEqual(
      exact.results.map(({ cachedTokenShare }) => cachedTokenShare),
    );
  });

  it('says what would be saved, as the figures have it', () => {
    const { savings, results, finding, assumptions } = replay(log, { caches: [cache('radix'), cache('radix:5000')] });
    const total = (policy: string) => results.find((each) => each.policy === policy)!.uncachedTokens.total;
    expect(savings.map(({ policy, cache: name }) => [policy, name])).toEqual([
      ['exact', 'radix'],
      ['exact', 'radix:5000'],
    ]);
    expect(savings[0]!.uncachedTokens).toBeCloseTo(1 - total('exact') / total('retrieval'), 12);
    expect(finding).toContain(`prefill ${(100 * savings[0]!.uncachedTokens).toFixed(1)} % fewer tokens on SGLang`);
    expect(assumptions.join('\n')).toContain('one after another');
  });

  it('does not promise what is not there', () => {
    const fresh = Array.from(
      { length: 50 },
      (_, i): LoggedRequest => ({ ...log[0]!, documents: [{ id: `n${i}`, tokens: 9 }] }),
    );
    expect(replay(fresh).finding).toMatch(
      /^Reordering documents would save you next to nothing on vLLM with unlimited room: 0\.0 %/,
    );
    expect(replay(log, { policies: ['exact'] }).finding).toContain('nothing to compare');
    expect(replay([]).finding).toBe('No request was replayed.');
  });

  it('finds the offline bound of a log that is short enough', async () => {
    const solve = await loadOfflineSolver();
    const offline = (workload: Workload) => solve(workload, { seconds: 600 });
    const [name, share] = isFull ? (['headline', 0.714] as const) : (['k-10', 0.9] as const);
    const report = replay(logOf(createWorkload(name, { seed: 42 })), { offline, policies: ['exact'] });
    expect(report.offline!.low).toBeCloseTo(share, 6);
    expect(report.offline!.high).toBeCloseTo(share, 6);
    const solver = () => ({ low: 0, high: 0 });
    const long = Array.from({ length: 10_001 }, (): LoggedRequest => ({ ...log[0]!, documents: [] }));
    expect(replay(long.slice(1), { offline: solver, caches: [cache('off')] }).offline).toBeDefined();
    expect(replay(long, { offline: solver, caches: [cache('off')] }).offline).toBeUndefined();
    expect(replay(log.slice(0, 9)).offline).toBeUndefined();
  });

  it('serves the warm-up without counting it', () => {
    const { traffic, results } = replay(log, { warmUp: REQUESTS - 100 });
    expect(results.map(({ requests }) => requests)).toEqual([100, 100]);
    expect(traffic).toMatchObject({ requests: REQUESTS, warmUp: REQUESTS - 100 });
    expect(results[0]!.cachedTokenShare).toBeGreaterThan(replay(log).results[0]!.cachedTokenShare);
    expect(traffic.seenBefore).toBeGreaterThan(results[1]!.cachedTokenShare);
  });

  it('measures what was seen before on the counted requests alone', () => {
    const twice = [log[0]!, { ...log[0]!, documents: [{ id: 'new', tokens: 100 }, ...log[0]!.documents] }];
    const known = log[0]!.documents.reduce((sum, { tokens }) => sum + tokens!, 28);
    const share = (warmUp: number) => replay(twice, { warmUp }).traffic.seenBefore;
    expect(share(1)).toBeCloseTo(known / (known + 100 + 24), 12);
    expect(share(0)).toBeCloseTo(known / (2 * known + 100 + 48), 12);
  });

  it('leaves out, on each cache, what does not fit it', () => {
    const long = { ...log[0]!, documents: [{ id: 'long', tokens: 5_000 }] };
    const { results } = replay([...log, long], { caches: [cache('radix:4000'), cache('off')] });
    expect(results.map(({ tooLong, requests }) => [tooLong, requests])).toEqual([
      [1, REQUESTS],
      [1, REQUESTS],
      [0, REQUESTS + 1],
      [0, REQUESTS + 1],
    ]);
  });

  it('states what the log left open', () => {
    const bare = {
      line: 1,
      documents: [{ id: 'a', tokens: undefined }],
      timestampMs: 5,
      session: undefined,
      queryTokens: undefined,
    };
    const { assumptions, traffic } = replay([bare, { ...bare, timestampMs: 9 }], { preambleTokens: 1_000 });
    expect(assumptions).toEqual(
      expect.arrayContaining([
        'A prompt is 1000 tokens that all requests share, the documents, and the question.',
        'Documents without a token count (1) have 200 tokens.',
        'Requests without query_tokens (2) have 24.',
      ]),
    );
    expect(traffic.spanMs).toBe(4);
  });
});

describe('RecordedReplay', () => {
  const workload = createWorkload('sessions', { seed: 6 });
  const log = logOf(workload)
    .slice(0, REQUESTS)
    .map((request, i) => ({ ...request, timestampMs: 1_000_000 + 90 * i }));
  const run = (changes: Partial<ReplaySettings> = {}, steps = Number.POSITIVE_INFINITY) => {
    const running = new RecordedReplay(settings({ caches: [cache('900'), cache('radix:9000')], ...changes }));
    for (const request of log) running.next(request);
    for (let step = 0; step < steps && running.step(); step++);
    return running.report();
  };

  it('serves what the server serves, at the times of the log', () => {
    const requests = log.map((request, i) => ({
      ...workload.requests[i]!,
      question: { key: `question ${i + 1}`, tokens: request.queryTokens! },
      arrivalMs: 90 * i,
    }));
    const report = run({ policies: ['retrieval', 'foresight'], queue: 8 });
    for (const { policy, cache: name, ttftMs, uncachedTokens } of report.results) {
      const options = { createCache: readCache(name), queue: 8 };
      const { outcomes } = simulateServer({ ...workload, requests }, policy, recordedClients(), options);
      expect(ttftMs.mean).toBeCloseTo(mean(outcomes.map((outcome) => outcome.ttftMs)), 6);
      expect(uncachedTokens.mean).toBeCloseTo(
        mean(outcomes.map(({ promptTokens, cachedTokens }) => promptTokens - cachedTokens)),
        6,
      );
    }
    expect(report).toMatchObject({ arrivals: 'recorded', traffic: { spanMs: 90 * (REQUESTS - 1) } });
    expect(report.utilisation).toBeGreaterThan(0.5);
    expect(report.bounds.map(({ cache: name }) => name)).toEqual(['900', 'radix:9000']);
  });

  it('keeps the steps that are done', () => {
    const all = run();
    const some = run({}, 3);
    expect(some.results).toEqual(all.results.slice(0, 3));
    expect(some.bounds).toEqual(all.bounds.slice(0, 1));
    expect(run({}, 0).finding).toBe('No request was replayed.');
  });

  it('leaves the warm-up and what does not fit out of the figures', () => {
    const { results } = run({ warmUp: REQUESTS - 100, caches: [cache('radix:1080'), cache('radix:1000')] });
    expect(results.map(({ requests, tooLong }) => [requests, tooLong])).toEqual([
      [100, 0],
      [100, 0],
      [0, 100],
      [0, 100],
    ]);
  });

  it('wants timestamps', () => {
    const [first] = logOf(workload);
    expect(() => new RecordedReplay(settings()).next(first!)).toThrow(expect.objectContaining({ path: 'line 1' }));
  });
});

describe('Distribution', () => {
  it('has the mean, and percentiles within half a percent', () => {
    const values = fc.array(fc.double({ min: 0.001, max: 1e9, noNaN: true }), { minLength: 1, maxLength: 200 });
    fc.assert(
      fc.property(values, fc.double({ min: 0, max: 1, noNaN: true }), (list, share) => {
        const distribution = new Distribution();
        for (const value of list) distribution.add(value);
        expect(distribution.mean).toBeCloseTo(mean(list), 3);
        expect(Math.abs(distribution.percentile(share) / percentile(list, share) - 1)).toBeLessThan(0.0051);
      }),
      { seed: 11 },
    );
  });

  it('knows zeros, and nothing', () => {
    const distribution = new Distribution();
    expect([distribution.percentile(0.5), distribution.mean]).toEqual([0, 0]);
    for (const value of [0, 0, 5]) distribution.add(value);
    expect(distribution.percentile(0.5)).toBe(0);
    expect(distribution.percentile(0.9)).toBeCloseTo(5, 1);
  });
});

describe('SessionRepeats', () => {
  it('finds what the same session had before', () => {
    const repeats = new SessionRepeats();
    expect(repeats.enter('x', ['a', 'b'])).toEqual([false, false]);
    expect(repeats.enter('y', ['a'])).toEqual([false]);
    expect(repeats.enter('x', ['b', 'c'])).toEqual([true, false]);
  });

  it('forgets the session that spoke longest ago beyond 2^20 documents', () => {
    const repeats = new SessionRepeats();
    const many = (name: string, count: number) => Array.from({ length: count }, (_, i) => `${name}${i}`);
    repeats.enter('old', ['a']);
    repeats.enter('other', ['a']);
    repeats.enter('large', many('l', 2 ** 20 - 2));
    expect(repeats.enter('other', ['a', 'b'])).toEqual([true, false]);
    expect(repeats.enter('old', ['a'])).toEqual([false]);
  });
});
