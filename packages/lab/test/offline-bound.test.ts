import fc from 'fast-check';
import { beforeAll, describe, expect, it } from 'vitest';
import { isFull, runs } from '../../../test/suite.js';
import { CostShares } from '../src/bounds/cost-shares.js';
import { distinctContexts } from '../src/bounds/distinct-contexts.js';
import { mostShared } from '../src/bounds/offline.js';
import { SharedSubsets } from '../src/bounds/shared-subsets.js';
import { TrieSearch } from '../src/bounds/trie-search.js';
import {
  createWorkload,
  Experiment,
  type LabPolicyName,
  labDocument,
  loadOfflineSolver,
  mean,
  type OfflineSolver,
  readCache,
  simulate,
  type Workload,
} from '../src/index.js';

let solve: OfflineSolver;
beforeAll(async () => {
  solve = await loadOfflineSolver();
});

/** Requests for documents by number, and what a document's tokens are. */
interface Drawn {
  readonly sets: readonly (readonly number[])[];
  readonly tokens: readonly number[];
}

function drawn(options: { requests: number; k: number; documents: number }): fc.Arbitrary<Drawn> {
  const document = fc.integer({ min: 0, max: options.documents - 1 });
  const set = fc.uniqueArray(document, { maxLength: options.k });
  const lengths = { minLength: options.documents, maxLength: options.documents };
  return fc.record({
    sets: fc.array(set, { maxLength: options.requests }),
    tokens: fc.oneof(
      fc.constant(Array.from({ length: options.documents }, () => 200)),
      fc.array(fc.integer({ min: 0, max: 60 }), lengths),
    ),
  });
}

function workloadOf({ sets, tokens }: Drawn): Workload {
  return {
    name: 'drawn',
    preamble: { key: 'preamble', tokens: 28 },
    requests: sets.map((set, number) => ({
      documents: set.map((document) => labDocument(`d${document}`, tokens[document]!)),
      question: { key: `question_${number}`, tokens: 24 },
    })),
  };
}

function permutations(set: readonly number[]): number[][] {
  if (set.length === 0) return [[]];
  return set.flatMap((first) => permutations(set.filter((other) => other !== first)).map((rest) => [first, ...rest]));
}

/** Tokens of the smallest trie, by trying every order of every set. */
function smallestTrie({ sets, tokens }: Drawn, nodes: ReadonlySet<string> = new Set(), at = 0): number {
  const set = sets[at];
  if (set === undefined) return 0;
  let least = Number.POSITIVE_INFINITY;
  for (const order of permutations(set)) {
    const grown = new Set(nodes);
    let added = 0;
    for (let depth = 1; depth <= order.length; depth++) {
      const path = order.slice(0, depth).join();
      if (!grown.has(path)) added += tokens[order[depth - 1]!]!;
      grown.add(path);
    }
    least = Math.min(least, added + smallestTrie({ sets, tokens }, grown, at + 1));
  }
  return least;
}

const totalOf = ({ sets, tokens }: Drawn) => sets.flat().reduce((sum, document) => sum + tokens[document]!, 0);

function seenBeforeTokens({ sets, tokens }: Drawn): number {
  const distinct = new Set(sets.flat());
  const once = [...distinct].reduce((sum, document) => sum + tokens[document]!, 0);
  const total = totalOf({ sets, tokens });
  return total === 0 ? 0 : 1 - once / total;
}

describe('the offline bound', () => {
  it('is what trying every order of every request finds', () => {
    fc.assert(
      fc.property(drawn({ requests: 4, k: 3, documents: 5 }), (each) => {
        const total = totalOf(each);
        const optimum = total === 0 ? 0 : 1 - smallestTrie(each) / total;
        const { low, high } = solve(workloadOf(each));
        expect(low).toBe(high);
        expect(low).toBeCloseTo(optimum, 12);
      }),
      { seed: 11, numRuns: runs(120) },
    );
  });

  it('is never below what a policy gets from an unlimited cache, and never above what was seen before', () => {
    const policies: readonly LabPolicyName[] = ['retrieval', 'sorted', 'greedy', 'exact', 'foresight'];
    fc.assert(
      fc.property(drawn({ requests: 14, k: 5, documents: 9 }), fc.constantFrom(...policies), (each, policy) => {
        const workload = workloadOf(each);
        const { low, high } = solve(workload);
        const outcomes = simulate(workload, policy, { cache: readCache('radix')(), queue: 8 });
        const cached = outcomes.reduce((sum, { cachedTokens, promptTokens }) => {
          return sum + Math.min(promptTokens - 52, Math.max(0, cachedTokens - 28));
        }, 0);
        expect(low).toBeLessThanOrEqual(high);
        expect(low).toBeLessThanOrEqual(seenBeforeTokens(each) + 1e-12);
        expect(high * totalOf(each)).toBeGreaterThanOrEqual(cached - 1e-6);
      }),
      { seed: 12, numRuns: runs(150) },
    );
  });

  it.runIf(isFull)('is a bracket around the optimum where a group is too large or no time is left', () => {
    fc.assert(
      fc.property(drawn({ requests: 10, k: 4, documents: 8 }), (each) => {
        const workload = workloadOf(each);
        const { low: optimum } = solve(workload);
        for (const limits of [{ sharedSets: 2 }, { seconds: 0 }]) {
          const { low, high } = solve(workload, limits);
          expect(low).toBeLessThanOrEqual(optimum);
          expect(high).toBeGreaterThanOrEqual(optimum);
          expect(high).toBeLessThanOrEqual(seenBeforeTokens(each) + 1e-12);
        }
      }),
      { seed: 13, numRuns: runs(60) },
    );
    const wide = solve(createWorkload('geospatial', { seed: 42 }), { sharedSets: 2 });
    expect(wide.high).toBeGreaterThan(wide.low);
  });

  const small = [
    ['k-3', 0.5333],
    ['k-7', 0.7357],
    ['k-10', 0.9],
    ['overlap-0.0', 0.5667],
    ['overlap-0.4', 0.6167],
  ] as const;
  const large = [
    ['headline', 0.714],
    ['true-zero', 0.345],
    ['mixed', 0.464],
  ] as const;
  it.each(isFull ? [...small, ...large] : small)('of %s is the one that was found elsewhere', (name, share) => {
    const { low, high } = solve(createWorkload(name, { seed: 42 }), { seconds: 60 });
    expect(low).toBe(high);
    expect(low).toBeCloseTo(share, 3);
  });

  it('stands in the report: one value if it was proven for every seed, else both ends', () => {
    const report = (offline: OfflineSolver | undefined) => {
      const experiment = new Experiment({
        workload: 'k-3',
        create: (seed) => createWorkload('k-3', { seed }),
        policies: ['exact'],
        seeds: [1, 2],
        queue: 0,
        cache: { name: 'unlimited', create: readCache('unlimited') },
        ...(offline !== undefined && { offline }),
        clock: () => 0,
      });
      while (experiment.step());
      return experiment.report().bounds;
    };
    const bounds = report(solve);
    const value = mean([1, 2].map((seed) => solve(createWorkload('k-3', { seed })).low));
    expect(bounds.offline).toEqual({ value });
    expect(value).toBeGreaterThan(bounds.oracle);
    expect(value).toBeLessThan(bounds.seenBefore);
    const ends = [
      { low: 0.25, high: 0.5 },
      { low: 0.5, high: 0.5 },
    ];
    expect(report(() => ends.pop()!).offline).toEqual({ low: 0.375, high: 0.5 });
    expect(report(undefined)).not.toHaveProperty('offline');
  });
});

describe('TrieSearch', () => {
  /** Tokens of the trie that the orders make, one document after the other. */
  const trieTokens = (orders: readonly (readonly number[])[], weights: readonly number[]): number => {
    const paths = new Map<string, number>();
    for (const order of orders) {
      for (const [place, document] of order.entries()) paths.set(order.slice(0, place + 1).join(), weights[document]!);
    }
    return [...paths.values()].reduce((sum, tokens) => sum + tokens, 0);
  };
  const sorted = (set: readonly number[]) => [...set].sort((one, other) => one - other);

  it('is a trie of the very sets after every step, whether the step was kept or undone', () => {
    fc.assert(
      fc.property(drawn({ requests: 14, k: 6, documents: 9 }), fc.double({ min: 0.01, max: 500 }), (each, hot) => {
        const { sets, weights } = distinctContexts(workloadOf(each));
        fc.pre(sets.length > 0);
        const search = new TrieSearch(sets, weights);
        let least = search.tokens;
        for (let step = 0; step < 40; step++) {
          expect(search.orders().map(sorted)).toEqual(sets);
          // Less where two nodes below one happen to begin alike.
          expect(trieTokens(search.orders(), weights)).toBeLessThanOrEqual(search.tokens);
          expect(search.least).toBe(least);
          search.step(hot);
          least = Math.min(least, search.tokens);
        }
      }),
      { seed: 15, numRuns: runs(60) },
    );
  });

  it('finds the smallest trie that there is, tried order by order, and never a smaller one', () => {
    fc.assert(
      fc.property(drawn({ requests: 5, k: 4, documents: 6 }), (each) => {
        const { sets, weights } = distinctContexts(workloadOf(each));
        fc.pre(sets.length > 0);
        const search = new TrieSearch(sets, weights);
        for (let step = 0; step < 400; step++) search.step(1 + 200 / (step + 1));
        expect(search.least).toBe(smallestTrie(each));
      }),
      { seed: 16, numRuns: runs(60) },
    );
  });

  it('finds the optimum that is proven for a trace of a hundred requests, the same every time', () => {
    const { sets, weights } = distinctContexts(createWorkload('k-7', { seed: 42 }));
    const search = () => {
      const found = new TrieSearch(sets, weights);
      for (let step = 0; step < 20_000; step++) found.step(400 * 0.05 ** (step / 20_000));
      return found;
    };
    const found = search();
    const { low } = solve(createWorkload('k-7', { seed: 42 }), { seconds: 30 });
    const { totalTokens } = distinctContexts(createWorkload('k-7', { seed: 42 }));
    expect(1 - found.least / totalTokens).toBeLessThanOrEqual(low + 1e-9);
    expect(1 - found.least / totalTokens).toBeGreaterThan(low - 0.005);
    expect(search().orders()).toEqual(found.orders());
  });
});

describe('mostShared', () => {
  it('counts the heaviest tree of pairs, and no document more often than it comes again', () => {
    expect(
      mostShared(
        [
          [0, 1],
          [1, 2],
          [0, 1, 2],
        ],
        [1, 10, 100],
      ),
    ).toBe(111 + 10);
    expect(mostShared([[0], [0], [0]], [5])).toBe(10);
    expect(mostShared([[0], [1]], [5, 5])).toBe(0);
    expect(mostShared([], [])).toBe(0);
  });
});

describe('CostShares', () => {
  const groupOf = (each: Drawn) => {
    const { sets, weights } = distinctContexts(workloadOf(each));
    return { sets, weights, found: smallestTrie(each) };
  };

  it('never passes the tokens of the smallest trie, whatever the round, and only ever gets nearer', () => {
    fc.assert(
      fc.property(drawn({ requests: 5, k: 4, documents: 6 }), (each) => {
        const { sets, weights, found } = groupOf(each);
        const shares = new CostShares(SharedSubsets.of(sets, weights)!);
        let before = 0;
        for (let round = 0; round < 30; round++) {
          const least = shares.round(found);
          expect(least).toBeGreaterThanOrEqual(before);
          expect(least).toBeLessThanOrEqual(found + 1e-6);
          before = least;
        }
        // Each document has to stand somewhere.
        const once = new Set(sets.flat());
        expect(before).toBeGreaterThanOrEqual([...once].reduce((sum, document) => sum + weights[document]!, 0) * 0.5);
      }),
      { seed: 14, numRuns: runs(60) },
    );
  });

  it('comes within two per cent of the optimum that is proven for the papers traces', () => {
    const traces = [
      ['k-7', 0.7357],
      ['headline', 0.714],
      ['mixed', 0.464],
    ] as const;
    for (const [name, share] of isFull ? traces : traces.slice(0, 1)) {
      const contexts = distinctContexts(createWorkload(name, { seed: 42 }));
      const unit = contexts.weights[0]!;
      const total = contexts.totalTokens / unit;
      const weights = contexts.weights.map((tokens) => tokens / unit);
      const shares = new CostShares(SharedSubsets.of(contexts.sets, weights)!);
      let least = 0;
      for (let round = 0; round < 300 && !shares.isDone; round++) least = shares.round((1 - share) * total);
      expect(1 - least / total).toBeGreaterThanOrEqual(share - 1e-3);
      expect(1 - least / total).toBeLessThanOrEqual(share + 0.02);
    }
  });

  it.runIf(isFull)('brings the bracket of 15 documents a request below that of pairs', () => {
    const workload = createWorkload('zipf', { seed: 42 });
    const sample = { ...workload, requests: workload.requests.slice(0, 120) };
    const pairs = solve(sample, { seconds: 0 });
    const shared = solve(sample, { seconds: 2, sharedSets: 2 });
    expect(shared.low).toBeGreaterThanOrEqual(pairs.low);
    expect(shared.low).toBeLessThan(shared.high);
    expect(shared.high).toBeLessThan(pairs.low + 0.6 * (pairs.high - pairs.low));
  });

  it('brings it, with the search, to within three points, counted in steps and rounds', () => {
    const workload = createWorkload('zipf', { seed: 42 });
    const { sets, weights, totalTokens } = distinctContexts({ ...workload, requests: workload.requests.slice(0, 60) });
    const search = new TrieSearch(sets, weights);
    const steps = 6_000;
    for (let step = 0; step < steps; step++) search.step(400 * 0.1 ** (step / steps));
    const shares = new CostShares(SharedSubsets.of(sets, weights)!);
    let least = 0;
    for (let round = 0; round < 120 && !shares.isDone; round++) least = Math.max(least, shares.round(search.least));
    const width = (search.least - least) / totalTokens;
    expect(width).toBeGreaterThanOrEqual(0);
    expect(width).toBeLessThan(0.03);
  });

  it('is not asked about sets that are too large', () => {
    const wide = [Array.from({ length: 17 }, (_, document) => document), [0, 1]];
    expect(SharedSubsets.of(wide, Array(17).fill(1))).toBeUndefined();
    expect(
      SharedSubsets.of(
        [
          [0, 1],
          [1, 2],
        ],
        [1, 1, 1],
      )!.masks.map((masks) => [...masks]),
    ).toEqual([[2], [1]]);
  });
});
