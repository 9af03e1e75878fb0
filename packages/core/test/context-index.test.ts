import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { planBatch } from '../src/index.js';
import { averageLinkage } from '../src/plan/average-linkage.js';
import { contextDistance } from '../src/plan/context-distance.js';
import { ContextIndex } from '../src/plan/context-index.js';
import { schedulePaths } from '../src/plan/path-schedule.js';
import './seed.js';

const context = fc.uniqueArray(fc.nat(12), { maxLength: 8 });
const alpha = fc.double({ min: 0, max: 0.01, noNaN: true });

describe('contextDistance', () => {
  it('is 0 for equal contexts, 1 where nothing is shared, and symmetric', () => {
    fc.assert(
      fc.property(context, context, alpha, (a, b, weight) => {
        if (a.length > 0) expect(contextDistance(a, a, weight)).toBe(0);
        const shifted = b.map((document) => document + 100);
        expect(contextDistance(a, shifted, weight)).toBe(1);
        expect(contextDistance([], b, weight)).toBe(1);
        expect(contextDistance(a, b, weight)).toBeCloseTo(contextDistance(b, a, weight), 12);
      }),
    );
  });

  it('matches the naive form, and a larger alpha never lowers it', () => {
    fc.assert(
      fc.property(context, context, alpha, alpha, (a, b, one, other) => {
        const shared = a.filter((document) => b.includes(document));
        const apart = shared.map((document) => Math.abs(a.indexOf(document) - b.indexOf(document)));
        const mean = apart.reduce((sum, value) => sum + value, 0) / shared.length;
        const naive = shared.length === 0 ? 1 : 1 - shared.length / Math.max(a.length, b.length) + one * mean;
        expect(contextDistance(a, b, one)).toBeCloseTo(naive, 12);
        const [less, more] = [Math.min(one, other), Math.max(one, other)];
        expect(contextDistance(a, b, more)).toBeGreaterThanOrEqual(contextDistance(a, b, less));
      }),
    );
  });

  it("sets the paper's B and D nearer than A and B", () => {
    const [a, b, d] = [
      [3, 5, 1, 7],
      [2, 6, 3, 5],
      [2, 6, 4, 0],
    ] as const;
    expect(contextDistance(b, d, 0.001)).toBeLessThan(contextDistance(a, b, 0.001));
  });
});

describe('averageLinkage', () => {
  it('merges as the closest-pair-first definition does', () => {
    // Distances without ties, so that the tree is unique.
    const distances = fc
      .integer({ min: 2, max: 9 })
      .chain((count) =>
        fc
          .uniqueArray(fc.integer({ min: 1, max: 1_000_000 }), { minLength: count * count, maxLength: count * count })
          .map((values) => ({ count, values })),
      );
    fc.assert(
      fc.property(distances, ({ count, values }) => {
        const distance = (a: number, b: number) => values[Math.min(a, b) * count + Math.max(a, b)]!;
        const members: number[][] = Array.from({ length: count }, (_, item) => [item]);
        for (const [one, other] of averageLinkage(count, distance)) {
          members.push([...members[one]!, ...members[other]!].sort((a, b) => a - b));
        }
        expect(members.slice(count).map(String).sort()).toEqual(naiveLinkage(count, distance).map(String).sort());
      }),
    );
  });
});

function naiveLinkage(count: number, distance: (a: number, b: number) => number): number[][] {
  let clusters: number[][] = Array.from({ length: count }, (_, item) => [item]);
  const formed: number[][] = [];
  const mean = (a: number[], b: number[]) =>
    a.reduce((sum, x) => sum + b.reduce((part, y) => part + distance(x, y), 0), 0) / (a.length * b.length);
  while (clusters.length > 1) {
    let best: [number[], number[]] = [clusters[0]!, clusters[1]!];
    for (const [i, a] of clusters.entries())
      for (const b of clusters.slice(0, i)) if (mean(a, b) < mean(...best)) best = [a, b];
    const merged = [...best[0], ...best[1]].sort((a, b) => a - b);
    formed.push(merged);
    clusters = [...clusters.filter((cluster) => !best.includes(cluster)), merged];
  }
  return formed;
}

describe('schedulePaths', () => {
  it('runs longer paths first, then lexicographically; empty paths are a group', () => {
    expect(
      schedulePaths([
        [0, 1],
        [0, 1, 2, 3],
        [0, 1, 2],
      ]),
    ).toEqual([1, 2, 0]);
    expect(
      schedulePaths([
        [0, 2],
        [0, 1],
        [0, 1],
      ]),
    ).toEqual([1, 2, 0]);
    expect(schedulePaths([[], [1], [], [1, 0], []])).toEqual([0, 2, 4, 3, 1]);
    expect(schedulePaths([[0], [1], [1]])).toEqual([1, 2, 0]);
  });
});

describe('ContextIndex', () => {
  it("builds the paper's example: C1 and C2 share {1, 2}, C3 shares {1}", () => {
    const index = new ContextIndex();
    const orders = index
      .build([
        [2, 1, 3],
        [2, 6, 1],
        [4, 1, 0],
      ])
      .map(({ documents }) => documents);
    expect(orders).toEqual([
      [1, 2, 3],
      [1, 2, 6],
      [1, 4, 0],
    ]);
    expect(index.insert([2, 1, 4]).documents.slice(0, 2)).toEqual([1, 2]);
    expect(index.insert([1, 2, 9]).documents).toEqual([1, 2, 9]);
    expect(index.insert([5, 7, 8])).toMatchObject({ documents: [5, 7, 8], matched: 0 });
  });

  it('gives close contexts a common prefix', () => {
    const orders = new ContextIndex().build([
      [1, 2, 3, 100, 200],
      [1, 2, 3, 300, 400],
      [500, 501, 502],
    ]);
    expect(orders[0]!.documents.slice(0, 3)).toEqual(orders[1]!.documents.slice(0, 3));
    expect([...orders[0]!.documents.slice(0, 3)].sort()).toEqual([1, 2, 3]);
  });

  it('orders a later context behind what is served', () => {
    const index = new ContextIndex();
    expect(index.insert([1, 2, 3]).documents).toEqual([1, 2, 3]);
    expect(index.insert([4, 1, 2])).toEqual({ requestId: 1, documents: [1, 2, 4], matched: 2 });
  });

  it('matches a second batch that shares prefixes, under request ids of its own', () => {
    const index = new ContextIndex();
    const first = index.build([
      [1, 2, 3],
      [1, 2, 4],
      [7, 8, 9],
    ]);
    const second = [
      [2, 1, 5],
      [8, 7, 6],
    ].map((documents) => index.insert(documents));
    expect(second.every(({ matched }) => matched > 0)).toBe(true);
    const ids = [...first, ...second].map(({ requestId }) => requestId);
    expect(new Set(ids).size).toBe(5);
    expect(index.size).toBe(5);
  });

  it('permutes every context and schedules each once; equal ones and subsets have ids of their own', () => {
    const batches = fc.tuple(fc.array(context, { maxLength: 12 }), fc.array(context, { maxLength: 12 }));
    fc.assert(
      fc.property(batches, alpha, ([batch, later], weight) => {
        const index = new ContextIndex({ alpha: weight });
        const indexed = [...index.build(batch), ...later.map((documents) => index.insert(documents))];
        const all = [...batch, ...later];
        expect(indexed.map(({ requestId }) => requestId)).toEqual([...all.keys()]);
        for (const { requestId, documents } of indexed)
          expect(documents.toSorted()).toEqual(all[requestId]!.toSorted());
        expect(index.schedule().sort((a, b) => a - b)).toEqual([...all.keys()]);
      }),
      { numRuns: 300 },
    );
  });

  it('matches no more than an earlier order or a batch mate has', () => {
    fc.assert(
      fc.property(fc.array(context, { minLength: 1, maxLength: 12 }), (stream) => {
        const index = new ContextIndex();
        const served: (readonly number[])[] = [];
        for (const documents of stream) {
          const indexed = index.insert(documents);
          const prefix = indexed.documents.slice(0, indexed.matched).join();
          if (indexed.matched > 0) {
            expect(served.some((order) => order.slice(0, indexed.matched).join() === prefix)).toBe(true);
          }
          served.push(indexed.documents);
        }
      }),
    );
  });

  it('keeps clusters together, the same way every time, and each group starts alike', () => {
    const batch = Array.from({ length: 10 }, (_, i) =>
      i % 2 === 0 ? ['1', '2', '3', `x${i}`] : ['10', '20', '30', `y${i}`],
    );
    const plans = [1, 2, 3].map(() => planBatch(batch, { method: 'context-index' }));
    expect(plans[1]).toEqual(plans[0]);
    expect(plans[2]).toEqual(plans[0]);
    const parities = plans[0]!.steps.map(({ index }) => index % 2);
    expect(parities.filter((parity, i) => i > 0 && parity !== parities[i - 1])).toHaveLength(1);
    for (const parity of [0, 1]) {
      const group = plans[0]!.steps.filter(({ index }) => index % 2 === parity);
      expect(new Set(group.map(({ documents }) => documents.slice(0, 3).join())).size).toBe(1);
    }
  });
});
