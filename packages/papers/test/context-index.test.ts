import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { isFull, runs } from '../../../test/suite.js';
import { averageLinkage, contextDistance } from '../src/average-linkage.js';
import { ContextIndex, schedulePaths } from '../src/context-index.js';
import { planByContextIndex } from '../src/planned.js';

// The real one, counted.
vi.mock('../src/average-linkage.js', async (original) => {
  const real = await original<typeof import('../src/average-linkage.js')>();
  return { ...real, contextDistance: vi.fn(real.contextDistance) };
});

fc.configureGlobal({ seed: Number(process.env['FAST_CHECK_SEED'] ?? 20_260_601) });

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

  it('begins with all that it shares with a leaf, in the order of the leaf', () => {
    const index = new ContextIndex();
    index.insert([1, 2, 3, 4, 5]);
    // 1 is cached; 3 and 5 are not, but the next of their kind will find them behind it.
    expect(index.insert([7, 5, 3, 1])).toMatchObject({ documents: [1, 3, 5, 7], matched: 1 });
    expect(index.insert([9, 5, 1, 3])).toMatchObject({ documents: [1, 3, 5, 9], matched: 3 });
    expect(index.insert([2, 1, 8])).toMatchObject({ documents: [1, 2, 8], matched: 2 });
  });

  it("stops where all children are equally far, as with the paper's C6", () => {
    const index = new ContextIndex({ alpha: 0 });
    for (const documents of [
      [1, 2, 3],
      [1, 2, 6],
    ]) {
      index.insert(documents);
    }
    expect(index.insert([2, 1, 4])).toMatchObject({ documents: [1, 2, 4], matched: 2 });
    const flat = new ContextIndex({ alpha: 0 });
    for (const documents of [
      [1, 2],
      [3, 4],
    ]) {
      flat.insert(documents);
    }
    expect(flat.insert([5, 3, 1]).documents).toEqual([5, 3, 1]);
  });

  it('looks at nothing that shares no document, however many there are', () => {
    const index = new ContextIndex();
    for (let first = 0; first < 5_000; first++) index.insert([10 * first, 10 * first + 1, 10 * first + 2]);
    vi.mocked(contextDistance).mockClear();
    expect(index.insert([1_002, 7, 1_000]).documents).toEqual([1_000, 1_002, 7]);
    index.insert([60_001, 60_002]);
    expect(contextDistance).toHaveBeenCalledTimes(1);
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
      { numRuns: runs(300) },
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
    const plans = [1, 2, 3].map(() => planByContextIndex(batch));
    expect(plans[1]).toEqual(plans[0]);
    expect(plans[2]).toEqual(plans[0]);
    const parities = plans[0]!.map(({ index }) => index % 2);
    expect(parities.filter((parity, i) => i > 0 && parity !== parities[i - 1])).toHaveLength(1);
    for (const parity of [0, 1]) {
      const group = plans[0]!.filter(({ index }) => index % 2 === parity);
      expect(new Set(group.map(({ documents }) => documents.slice(0, 3).join())).size).toBe(1);
    }
  });
});

/** Bytes on the heap that something still needs. */
function heapBytes(): number {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  collect();
  return process.memoryUsage().heapUsed;
}

/** Every prefix that is held, with the time of its last use: what the index should hold, written down naively. */
class PrefixList {
  readonly #lastUse = new Map<string, number>();
  #now = 0;

  constructor(readonly tokensOf: (document: number) => number) {}

  get tokens(): number {
    return [...this.#lastUse.keys()].reduce((sum, path) => sum + this.tokensOf(Number(path.split(',').at(-1))), 0);
  }

  has(path: readonly number[]): boolean {
    return path.length === 0 || this.#lastUse.has(path.join());
  }

  use(path: readonly number[]): void {
    this.#now++;
    for (let end = 1; end <= path.length; end++) this.#lastUse.set(path.slice(0, end).join(), this.#now);
  }

  evictTo(limit: number): void {
    while (this.tokens > limit && this.#lastUse.size > 0) {
      const paths = [...this.#lastUse.keys()];
      const ends = paths.filter((path) => !paths.some((other) => other.startsWith(`${path},`)));
      const oldest = ends.reduce((one, other) => (this.#lastUse.get(other)! < this.#lastUse.get(one)! ? other : one));
      this.#lastUse.delete(oldest);
    }
  }
}

describe('eviction from the ContextIndex', () => {
  const tokens = (document: number) => 1 + ((document * 7) % 5);
  const step = fc.oneof(
    { weight: 4, arbitrary: fc.record({ kind: fc.constant('insert' as const), context }) },
    fc.record({ kind: fc.constant('evict' as const), count: fc.nat(25) }),
  );

  it('holds what a list of all prefixes by last use holds, and promises nothing else', () => {
    const capacity = fc.oneof(fc.constant(Number.POSITIVE_INFINITY), fc.integer({ min: 0, max: 60 }));
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40 }), capacity, (steps, limit) => {
        const index = new ContextIndex({ tokens, capacity: limit });
        const naive = new PrefixList(tokens);
        for (const each of steps) {
          if (each.kind === 'evict') {
            naive.evictTo(naive.tokens - each.count);
            index.evict(each.count);
          } else {
            const { documents, matched } = index.insert(each.context);
            expect(naive.has(documents.slice(0, matched))).toBe(true);
            naive.use(documents);
          }
          naive.evictTo(limit);
          expect(index.tokens).toBe(naive.tokens);
        }
        index.evict(Number.POSITIVE_INFINITY);
        expect([index.tokens, index.size]).toEqual([0, 0]);
      }),
      { numRuns: runs(500) },
    );
  });

  it('says which requests are gone, and schedules the others', () => {
    fc.assert(
      fc.property(fc.array(context, { maxLength: 20 }), fc.nat(40), (contexts, count) => {
        const index = new ContextIndex();
        const built = index.build(contexts.slice(0, 6));
        const ids = [...built, ...contexts.slice(6).map((each) => index.insert(each))].map(
          ({ requestId }) => requestId,
        );
        const gone = index.evict(count);
        expect(index.schedule().sort((a, b) => a - b)).toEqual(ids.filter((id) => !gone.includes(id)));
        expect(new Set(gone).size).toBe(gone.length);
        expect(gone.every((id) => !index.remove(id))).toBe(true);
      }),
    );
  });

  it('takes the least recently used end first; a use of any part renews it', () => {
    const index = new ContextIndex({ capacity: 6 });
    index.insert([1, 2, 3]);
    index.insert([4, 5, 6]);
    expect(index.insert([1, 2, 7])).toMatchObject({ requestId: 2, matched: 2 });
    // Over by one: 3 was used before 4, 5 and 6.
    expect(index.tokens).toBe(6);
    expect(index.insert([3, 2, 1])).toMatchObject({ matched: 2 });
    expect(index.insert([4, 5, 6]).matched).toBe(2);
  });

  it('removes requests by id, with parents that nothing else needs', () => {
    fc.assert(
      fc.property(fc.array(context, { maxLength: 15 }), fc.array(fc.nat(20)), (contexts, removed) => {
        const index = new ContextIndex();
        const all = contexts.map((each) => index.insert(each));
        const isGone = new Set<number>();
        for (const id of removed) {
          expect(index.remove(id)).toBe(id < all.length && !isGone.has(id));
          isGone.add(id);
        }
        const left = all.filter(({ requestId }) => !isGone.has(requestId));
        const prefixes = new Set(
          left.flatMap(({ documents }) => documents.map((_, place) => documents.slice(0, place + 1).join())),
        );
        expect(index.size).toBe(left.length);
        expect(index.tokens).toBe(prefixes.size);
      }),
    );
  });

  it.runIf(isFull)('is bounded: in contexts where equal ones cost no tokens, and in memory whatever is removed', () => {
    const index = new ContextIndex({ maxContexts: 10 });
    for (let i = 0; i < 1_000; i++) index.insert([1, 2, 3]);
    expect([index.size, index.tokens]).toEqual([10, 3]);
    const removing = new ContextIndex();
    const before = heapBytes();
    for (let i = 0; i < 50_000; i++) removing.remove(removing.insert([i, 1]).requestId);
    // Kept, they would take 12 MB.
    expect(heapBytes() - before).toBeLessThan(3_000_000);
    expect([removing.size, removing.tokens]).toEqual([0, 0]);
    const [last] = [removing.insert([1, 2])];
    expect(removing.evict(1)).toEqual([]);
    expect(removing.evict(1)).toEqual([last!.requestId]);
  });
});
