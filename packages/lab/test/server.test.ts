import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import {
  type ClientSettings,
  closedLoopClients,
  createNoCache,
  createWorkload,
  LlamaSlots,
  poissonClients,
  type ReplicaLoad,
  ROUTERS,
  type RoutedRequest,
  type RouterName,
  RTX_4090,
  RTX_4090_DECODE,
  readCache,
  recordedClients,
  SCHEDULERS,
  type ServedOutcome,
  type ServerOptions,
  type ServerOutcome,
  type ServerRun,
  serverFigures,
  sessionClients,
  simulate,
  simulateServer,
  VllmBlockCache,
  type Workload,
  type WorkloadRequest,
} from '../src/index.js';
import { serveInTurn } from './naive-server.js';

const mixed = createWorkload('mixed', { seed: 5 });

/** A workload cut to its first requests. */
function firstOf(workload: Workload, count: number): Workload {
  return { ...workload, requests: workload.requests.slice(0, count) };
}

/** A workload of so many requests for a document each, all at the times given. */
function at(...times: readonly number[]): Workload {
  const { preamble, requests } = mixed;
  return { name: 'timed', preamble, requests: times.map((arrivalMs, i) => ({ ...requests[i]!, arrivalMs })) };
}

const served = ({ number: _, arrivedMs: _a, startedMs: _s, doneMs: _d, answerTokens: _t, ...rest }: ServerOutcome) =>
  rest satisfies ServedOutcome;

const NO_CACHE = { createCache: createNoCache } as const;

describe('a server with a batch of one', () => {
  it('is the loop that serves one request after another, to the last bit', () => {
    fc.assert(
      fc.property(
        fc.record({
          name: fc.constantFrom('headline', 'mixed', 'geospatial', 'sessions'),
          seed: fc.nat({ max: 50 }),
          policy: fc.constantFrom('retrieval' as const, 'exact' as const, 'foresight' as const),
          perSecond: fc.constantFrom(0.001, 5, 12, 20, 1e9),
          queue: fc.constantFrom(0, 1, 8, 64),
          cache: fc.constantFrom('unlimited', '200', 'radix:2500', 'slots', 'off'),
        }),
        ({ name, seed, policy, perSecond, queue, cache }) => {
          const workload = firstOf(createWorkload(name, { seed, lengths: 'unequal' }), 80);
          const clients = poissonClients({ perSecond, seed });
          const createCache = readCache(cache);
          const { outcomes } = simulateServer(workload, policy, clients, { queue, createCache });
          const naive = serveInTurn(workload, policy, clients(workload).first(), {
            queue,
            cache: createCache(),
          });
          expect(outcomes.map(served)).toEqual(naive);
        },
      ),
      { seed: 41, numRuns: runs(60) },
    );
  });

  it('is `simulate` where nobody ever waits', () => {
    const { outcomes } = simulateServer(mixed, 'foresight', poissonClients({ perSecond: 0.001, seed: 1 }), {
      queue: 16,
    });
    for (const [number, outcome] of simulate(mixed, 'foresight').entries()) {
      expect(served(outcomes[number]!)).toEqual({ ...outcome, ttftMs: expect.closeTo(outcome.ttftMs, 4) });
    }
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
      simulateServer(mixed, policy, poissonClients({ perSecond, seed: 2 }), { queue: 4 });
      return counts;
    };
    expect(Math.max(...known(0.001))).toBe(0);
    expect(new Set(known(1e9).slice(1, -4))).toEqual(new Set([4]));
    expect(new Set(known(8)).size).toBeGreaterThan(2);
  });
});

const optionsArbitrary: fc.Arbitrary<ServerOptions> = fc
  .record({
    maxBatch: fc.constantFrom(1, 2, 5, 16),
    tokens: fc.constantFrom(undefined, 16, 300, 2_000),
    chunked: fc.boolean(),
    sharesInStep: fc.boolean(),
    leaderFirst: fc.boolean(),
    replicas: fc.constantFrom(1, 3),
    router: fc.constantFrom(...Object.values(ROUTERS)),
    scheduler: fc.constantFrom(...Object.values(SCHEDULERS)),
    createCache: fc.constantFrom('unlimited', '200', 'radix:2500', 'slots:3', 'tiered:2500/4000', 'off').map(readCache),
    queue: fc.constantFrom(0, 8),
    answer: fc.constantFrom(1, 2, 30),
    retrievalMs: fc.constantFrom(0, 25),
    learnsAt: fc.constantFrom('dispatch' as const, 'completion' as const),
  })
  .map(({ tokens, answer, ...options }) => ({
    ...options,
    ...(tokens !== undefined && { stepTokens: Math.max(tokens, options.maxBatch) }),
    answerTokens: (_: unknown, number: number) => 1 + ((number * 7) % answer),
  }));

const clientsArbitrary = fc.constantFrom(
  poissonClients({ perSecond: 15, seed: 3 }),
  poissonClients({ perSecond: 1e9, seed: 3 }),
  closedLoopClients({ clients: 4, thinkMs: 50, seed: 3 }),
  sessionClients({ thinkMs: 100, seed: 3, startsPerSecond: 4 }),
);

describe('any server', () => {
  it('serves every request once, in time, and counts what it did', () => {
    fc.assert(
      fc.property(
        fc.constantFrom('mixed', 'sessions'),
        fc.constantFrom('exact' as const, 'foresight' as const),
        clientsArbitrary,
        optionsArbitrary,
        (name, policy, clients, options) => {
          const workload = firstOf(createWorkload(name, { seed: 7 }), 60);
          const run = simulateServer(workload, policy, clients, options);
          expect(run.outcomes.map(({ number }) => number)).toEqual(workload.requests.map((_, number) => number));
          for (const outcome of run.outcomes) expectPossible(outcome, options);
          expect(run.replicas.reduce((sum, { requests }) => sum + requests, 0)).toBe(60);
          const laterTokens = run.outcomes.reduce((sum, { answerTokens }) => sum + answerTokens - 1, 0);
          expect(run.replicas.flatMap(({ gaps }) => gaps).reduce((sum, { tokens }) => sum + tokens, 0)).toBe(
            laterTokens,
          );
          for (const replica of run.replicas) expect(replica.largestBatch).toBeLessThanOrEqual(options.maxBatch!);
          expect(simulateServer(workload, policy, clients, options)).toEqual(run);
        },
      ),
      { seed: 42, numRuns: runs(150) },
    );
  });

  function expectPossible(outcome: ServerOutcome, options: ServerOptions): void {
    const { arrivedMs, startedMs, doneMs, ttftMs, answerTokens, cachedTokens, promptTokens } = outcome;
    expect(startedMs).toBeGreaterThanOrEqual(arrivedMs + options.retrievalMs!);
    const first = arrivedMs + ttftMs;
    // No prompt is faster in company than alone, nor a token faster than a step.
    expect(first - startedMs).toBeGreaterThanOrEqual(RTX_4090.prefillMs(0, promptTokens - cachedTokens) - 1e-6);
    expect(doneMs - first).toBeGreaterThanOrEqual((answerTokens - 1) * RTX_4090_DECODE.stepMs - 1e-6);
    expect(cachedTokens).toBeLessThan(promptTokens);
  }
});

describe('steps', () => {
  const prompt = 28 + 5 * 200 + 24;
  const alone = RTX_4090.prefillMs(0, prompt);
  const ttft = ({ outcomes }: ServerRun) => outcomes.map(({ ttftMs }) => ttftMs);

  it('share what a step costs without work', () => {
    const run = simulateServer(at(0, 0, 0), 'retrieval', recordedClients(), { ...NO_CACHE, maxBatch: 3 });
    const together = 3 * alone - 2 * RTX_4090.prefillMs(0, 0);
    expect(ttft(run)).toEqual([together, together, together].map((ms) => expect.closeTo(ms, 6)));
    expect(run.replicas[0]).toMatchObject({ steps: 1, sequences: 3, largestBatch: 3 });
  });

  it('cost a prompt in chunks one more empty step for each', () => {
    const options = { ...NO_CACHE, stepTokens: 400, chunked: true };
    const run = simulateServer(at(0), 'retrieval', recordedClients(), options);
    expect(ttft(run)).toEqual([expect.closeTo(alone + 2 * RTX_4090.prefillMs(0, 0), 6)]);
    expect(run.replicas[0]).toMatchObject({ steps: 3 });
  });

  it('leave no tokens unused when chunks are allowed, and break no prompt when not', () => {
    const options = { ...NO_CACHE, maxBatch: 4, stepTokens: 1_500 };
    const steps = (chunked: boolean) =>
      simulateServer(at(0, 0, 0), 'retrieval', recordedClients(), { ...options, chunked }).replicas[0]!.steps;
    expect(steps(true)).toBe(Math.ceil((3 * prompt) / 1_500));
    expect(steps(false)).toBe(3);
    // A prompt that no step has room for goes alone.
    const run = simulateServer(at(0), 'retrieval', recordedClients(), { ...NO_CACHE, stepTokens: 100 });
    expect(ttft(run)).toEqual([alone]);
  });

  it('decode beside prefills, and read the weights once', () => {
    const options = { ...NO_CACHE, maxBatch: 2, answerTokens: () => 3 };
    const { stepMs, sequenceMs } = RTX_4090_DECODE;
    const { outcomes, replicas } = simulateServer(at(0, 1), 'retrieval', recordedClients(), options);
    // The first prompt; the second with the first answer's second token; both decode; the second alone.
    expect(replicas[0]).toMatchObject({ steps: 4 });
    expect(replicas[0]!.gaps).toEqual([
      { ms: alone + sequenceMs, tokens: 1 },
      { ms: stepMs + 2 * sequenceMs, tokens: 2 },
      { ms: stepMs + sequenceMs, tokens: 1 },
    ]);
    expect(outcomes[0]!.doneMs).toBeCloseTo(2 * alone + stepMs + 3 * sequenceMs, 6);
    expect(outcomes[1]).toMatchObject({ startedMs: alone, ttftMs: expect.closeTo(2 * alone + sequenceMs - 1, 6) });
  });

  it('share a prefix at once, from the next step on, or behind a leader', () => {
    const same: Workload = { ...mixed, requests: [0, 1].map(() => ({ ...mixed.requests[0]!, arrivalMs: 0 })) };
    const run = (options: ServerOptions) => {
      const { outcomes, replicas } = simulateServer(same, 'retrieval', recordedClients(), { maxBatch: 2, ...options });
      return { cached: outcomes.map(({ cachedTokens }) => cachedTokens), steps: replicas[0]!.steps };
    };
    const all = prompt - (prompt % 16 || 16);
    expect(run({})).toEqual({ cached: [0, all], steps: 1 });
    expect(run({ sharesInStep: false })).toEqual({ cached: [0, 0], steps: 1 });
    expect(run({ sharesInStep: false, leaderFirst: true })).toEqual({ cached: [0, all], steps: 2 });
  });

  it('wait for copies from host memory', () => {
    const { requests } = mixed;
    const workload: Workload = {
      ...mixed,
      requests: [requests[0]!, requests[60]!, requests[0]!].map((each, i) => ({ ...each, arrivalMs: 1_000 * i })),
    };
    const run = (hostCopy: (tokens: number) => number) =>
      simulateServer(workload, 'retrieval', recordedClients(), {
        createCache: () => new LlamaSlots({ slots: 1 }),
        hostCopy,
      });
    const [plain, copied] = [run(() => 0), run((tokens) => tokens / 100)];
    const { cachedTokens } = plain.outcomes[2]!;
    expect(cachedTokens).toBeGreaterThan(500);
    expect(copied.outcomes[2]!.ttftMs - plain.outcomes[2]!.ttftMs).toBeCloseTo(cachedTokens / 100, 6);
  });
});

describe('a queue ordered by what the cache holds', () => {
  it('is told what all tiers hold', () => {
    const seen: number[] = [];
    const watching: typeof SCHEDULERS.fifo = ({ lookup, capacity }) =>
      SCHEDULERS['cache-aware']({
        lookup: (queued, now) => {
          const reuse = lookup(queued, now);
          seen.push(reuse.cachedTokens);
          return reuse;
        },
        capacity,
      });
    const requests = [0, 60, 120, 0].map((number, place) => ({
      ...mixed.requests[number]!,
      arrivalMs: 1_000 * place,
    }));
    const options = { createCache: readCache('tiered:1300/20000'), scheduler: watching };
    const { outcomes } = simulateServer({ ...mixed, requests }, 'retrieval', recordedClients(), options);
    expect(seen[3]).toBeGreaterThan(500);
    expect(seen[3]).toBe(outcomes[3]!.cachedTokens);
  });
});

describe('memory', () => {
  it('lets requests in as others leave, and answers take room', () => {
    // Room for two prompts of 66 blocks, not for a third, nor for two with answers of 100 tokens.
    const createCache = readCache('138');
    const different = { ...mixed, requests: [0, 50, 120].map((i) => ({ ...mixed.requests[i]!, arrivalMs: 0 })) };
    const batch = (answer: number) =>
      simulateServer(different, 'retrieval', recordedClients(), {
        createCache,
        maxBatch: 3,
        answerTokens: () => answer,
      }).replicas[0]!.largestBatch;
    expect(batch(2)).toBe(2);
    expect(batch(100)).toBe(1);
  });

  it('lets nobody overtake one that waits for room', () => {
    const { preamble, requests } = mixed;
    // Beside the first there is room for the short third, but not for the second.
    const documents = [requests[0]!.documents, requests[50]!.documents, requests[120]!.documents.slice(0, 1)];
    const workload: Workload = {
      name: 'lengths',
      preamble,
      requests: documents.map((each, i) => ({ documents: each, question: requests[i]!.question, arrivalMs: i })),
    };
    const { outcomes } = simulateServer(workload, 'retrieval', recordedClients(), {
      createCache: readCache('100'),
      maxBatch: 3,
      answerTokens: () => 5,
    });
    const [first, second, third] = outcomes.map(({ startedMs, doneMs }) => ({ startedMs, doneMs }));
    expect(second!.startedMs).toBe(first!.doneMs);
    expect(third!.startedMs).toBe(first!.doneMs);
  });

  it('refuses a prompt that never fits', () => {
    expect(() => simulateServer(at(0), 'exact', recordedClients(), { createCache: readCache('60') })).toThrow(
      /66 blocks/,
    );
  });
});

describe('clients', () => {
  it('of a closed loop wait for their answers', () => {
    const { outcomes } = simulateServer(mixed, 'retrieval', closedLoopClients({ clients: 3, thinkMs: 0, seed: 1 }));
    for (const [number, { arrivedMs }] of outcomes.entries()) {
      const done = outcomes.filter(({ doneMs }) => doneMs <= arrivedMs).length;
      expect(number).toBeLessThan(done + 3);
      if (number >= 3) expect(outcomes.some(({ doneMs }) => doneMs === arrivedMs)).toBe(true);
    }
  });

  it('think between an answer and the next question', () => {
    const pace = (thinkMs: number) =>
      serverFigures(simulateServer(mixed, 'exact', closedLoopClients({ clients: 2, thinkMs, seed: 1 }))).throughput
        .requestsPerSecond;
    expect(pace(500)).toBeLessThan(0.5 * pace(0));
    expect(pace(500)).toBeGreaterThan(1);
  });

  it('of sessions ask one turn after another', () => {
    const workload = createWorkload('sessions', { seed: 2 });
    const clients = sessionClients({ thinkMs: 200, seed: 4, startsPerSecond: 2 });
    const { outcomes } = simulateServer(firstOf(workload, 120), 'exact', clients, { maxBatch: 8, replicas: 2 });
    const last = new Map<string, number>();
    for (const [number, { arrivedMs, doneMs }] of outcomes.entries()) {
      const session = workload.requests[number]!.session!;
      expect(arrivedMs).toBeGreaterThan(last.get(session) ?? -1);
      last.set(session, doneMs);
    }
  });

  it('come as recorded, or say what is missing', () => {
    const { outcomes } = simulateServer(at(5, 3, 400), 'exact', recordedClients());
    expect(outcomes.map(({ arrivedMs }) => arrivedMs)).toEqual([5, 3, 400]);
    expect(outcomes[1]!.startedMs).toBe(3);
    expect(() => simulateServer(mixed, 'exact', recordedClients())).toThrow(/requests\[0\]\.arrivalMs/);
  });

  it('refuse rates, numbers and times that are none', () => {
    for (const perSecond of [0, -1, Number.NaN, Number.POSITIVE_INFINITY]) {
      expect(() => poissonClients({ perSecond, seed: 1 })).toThrow(/perSecond/);
    }
    expect(() => closedLoopClients({ clients: 0, thinkMs: 0, seed: 1 })).toThrow(/clients/);
    expect(() => closedLoopClients({ clients: 1, thinkMs: -1, seed: 1 })).toThrow(/thinkMs/);
    expect(() => sessionClients({ thinkMs: 0, seed: 1, startsPerSecond: 0 })).toThrow(/startsPerSecond/);
  });
});

describe('replicas', () => {
  const settings: ClientSettings = { kind: 'poisson', load: 1 };
  const clients = poissonClients({ perSecond: 20 * settings.load, seed: 6 });
  const run = (router: keyof typeof ROUTERS) =>
    simulateServer(createWorkload('sessions', { seed: 3 }), 'exact', clients, { replicas: 4, router: ROUTERS[router] });
  const cachedShare = ({ outcomes }: ServerRun) =>
    outcomes.reduce((sum, { cachedTokens }) => sum + cachedTokens, 0) /
    outcomes.reduce((sum, { promptTokens }) => sum + promptTokens, 0);

  it('are dealt requests in turn, evenly', () => {
    expect(run('round-robin').replicas.map(({ requests }) => requests)).toEqual([250, 250, 250, 250]);
    expect(serverFigures(run('round-robin')).imbalance).toBe(1);
  });

  it('reuse more where requests go to what is cached, without being overrun', () => {
    const [turn, cached] = [run('round-robin'), run('cache-aware')];
    expect(cachedShare(cached)).toBeGreaterThan(cachedShare(turn) + 0.03);
    expect(serverFigures(cached).endToEndMs.mean).toBeLessThan(serverFigures(turn).endToEndMs.mean);
    expect(serverFigures(cached).imbalance).toBeLessThan(1.5);
  });

  it('wait less where requests go to the least loaded', () => {
    const waits = (router: keyof typeof ROUTERS) => serverFigures(run(router)).waitMs.mean;
    expect(waits('least-loaded')).toBeLessThan(waits('round-robin'));
  });
});

describe('routers', () => {
  const documents = (first: string) => [{ key: first }] as unknown as WorkloadRequest['documents'];
  const routed = (number: number, fields: Partial<WorkloadRequest> = {}): RoutedRequest => ({
    number,
    request: { documents: documents('a'), question: { key: 'q', tokens: 1 }, ...fields },
    promptTokens: 1_000,
  });
  const idle = (newTokens: number, requests = 0): ReplicaLoad => ({ requests, pendingTokens: 0, newTokens });
  const four = [idle(1_000), idle(1_000), idle(1_000), idle(1_000)];

  it('by session, and by the first document, send the same to the same replica', () => {
    for (const [name, fields] of [
      ['session-hash', (name: string) => ({ session: name })],
      ['prefix-hash', (name: string) => ({ documents: documents(name) })],
    ] as const) {
      const router = ROUTERS[name]();
      const places = Array.from({ length: 100 }, (_, number) =>
        router.choose(four, routed(number, fields(`${number}`))),
      );
      const again = Array.from({ length: 100 }, (_, number) =>
        router.choose(four, routed(number, fields(`${number}`))),
      );
      expect(again).toEqual(places);
      for (const place of four.keys()) expect(places.filter((each) => each === place).length).toBeGreaterThan(10);
    }
  });

  it('by the first document goes on where a replica has a quarter more than its share', () => {
    const router = ROUTERS['prefix-hash']();
    const place = router.choose(four, routed(0));
    const full = four.with(place, idle(1_000, 4));
    expect(router.choose(full, routed(0))).not.toBe(place);
  });

  it('in two modes goes to the best match, unless there is none or loads are far apart', () => {
    const router = () => ROUTERS['two-mode']();
    const matched = [idle(1_000), idle(600), idle(1_000), idle(1_000)];
    expect(router().choose(matched, routed(0))).toBe(1);
    expect(router().choose(matched.with(1, idle(800)), routed(0))).toBe(0);
    expect(router().choose([idle(1_000), idle(600, 100), idle(1_000), idle(1_000)], routed(0))).toBe(0);
  });

  it('by weighted score and by tokens weigh what is cached against what waits', () => {
    const loads = [idle(500, 10), idle(900, 0)];
    expect(ROUTERS['weighted-score']().choose(loads, routed(0))).toBe(1);
    expect(ROUTERS['weighted-score']().choose([idle(100, 10), idle(900, 0)], routed(0))).toBe(0);
    const pending = { requests: 1, pendingTokens: 700, newTokens: 400 };
    expect(ROUTERS['cache-aware']().choose([pending, idle(1_000)], routed(0))).toBe(1);
    expect(ROUTERS['cache-aware']().choose([{ ...pending, pendingTokens: 500 }, idle(1_000)], routed(0))).toBe(0);
  });

  it('by cache pressure spread what is new, although one replica has a little more of it', () => {
    const counts = (name: 'cache-aware' | 'cache-pressure') => {
      const router = ROUTERS[name]();
      const places = Array.from({ length: 100 }, (_, number) =>
        router.choose([idle(950), idle(1_000), idle(1_000), idle(1_000)], routed(number)),
      );
      return four.map((_, place) => places.filter((each) => each === place).length);
    };
    expect(counts('cache-aware')).toEqual([100, 0, 0, 0]);
    expect(Math.max(...counts('cache-pressure'))).toBeLessThan(45);
  });

  it('reuse most, and answer first, by order and cache pressure together', () => {
    const clients = poissonClients({ perSecond: 60, seed: 6 });
    const workload = createWorkload('sessions', { seed: 3 });
    const serve = (policy: 'retrieval' | 'exact', router: RouterName) => {
      const { outcomes } = simulateServer(workload, policy, clients, {
        createCache: () => new VllmBlockCache({ blocks: 1_500 }),
        replicas: 4,
        router: ROUTERS[router],
      });
      const warm = outcomes.slice(outcomes.length / 5);
      const sum = (of: (outcome: ServerOutcome) => number) => warm.reduce((total, each) => total + of(each), 0);
      const uncached = sum(({ promptTokens, cachedTokens }) => promptTokens - cachedTokens);
      return { uncached, ttftMs: sum(({ ttftMs }) => ttftMs) };
    };
    const together = serve('exact', 'cache-pressure');
    for (const router of ['two-mode', 'weighted-score', 'cache-aware'] as const) {
      expect(together.uncached).toBeLessThan(0.85 * serve('retrieval', router).uncached);
      expect(together.ttftMs).toBeLessThan(serve('retrieval', router).ttftMs);
    }
  });
});

it('refuses options out of range', () => {
  const run = (options: ServerOptions) => () => simulateServer(mixed, 'exact', recordedClients(), options);
  expect(run({ replicas: 0 })).toThrow(/replicas/);
  expect(run({ maxBatch: 1.5 })).toThrow(/maxBatch/);
  expect(run({ maxBatch: 8, stepTokens: 7 })).toThrow(/stepTokens/);
  expect(run({ retrievalMs: -1 })).toThrow(/retrievalMs/);
  expect(run({ queue: 65 })).toThrow(/queue/);
});
