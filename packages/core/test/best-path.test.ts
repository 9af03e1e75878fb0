import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { heldHeapBytes } from '../../../test/held-bytes.js';
import { isFull, runs } from '../../../test/suite.js';
import { arrange, observe, type Preamble, prepareDocuments, ServedHistory } from '../src/index.js';
import { createPolicy } from '../src/internal.js';
import { ConstraintRule } from '../src/ordering/placement.js';
import type { PlacementRule } from '../src/tree/view.js';
import { constraints, order, servedOrders } from './arbitraries.js';
import { documentsOf, historyOf, serve, tokensOf } from './served.js';

/** Over all prefixes of all served orders: the one inside the set with most tokens, then the first by ranks. */
function naiveBest(
  served: readonly (readonly string[])[],
  ids: readonly string[],
  allowed: (ranks: number[]) => boolean,
): number[] {
  let best: number[] = [];
  for (const path of served) {
    const ranks: number[] = [];
    for (const id of path) {
      const rank = ids.indexOf(id);
      if (rank < 0 || !allowed([...ranks, rank])) break;
      ranks.push(rank);
    }
    if (isBetter(ranks, best, ids)) best = ranks;
  }
  return best;
}

function isBetter(ranks: readonly number[], best: readonly number[], ids: readonly string[]): boolean {
  const difference = weight(ranks, ids) - weight(best, ids);
  if (difference !== 0) return difference > 0;
  const place = ranks.findIndex((rank, index) => rank !== best[index]);
  return place >= 0 && ranks[place]! < best[place]!;
}

function weight(ranks: readonly number[], ids: readonly string[]): number {
  return ranks.reduce((sum, rank) => sum + tokensOf(ids[rank]!), 0);
}

test('finds the best path of any set of up to 16 documents, as looking at every served order does', () => {
  fc.assert(
    fc.property(servedOrders(16, 60), order(16), (served, ids) => {
      const expected = naiveBest(served, ids, () => true);
      expect(historyOf(served).bestPath(documentsOf(ids), undefined, undefined)).toMatchObject({
        order: expected,
        tokens: weight(expected, ids),
      });
    }),
    { numRuns: runs(400) },
  );
});

test('few documents in many orders: deep trees with many branches inside the set', () => {
  fc.assert(
    fc.property(fc.array(order(6, 3, 6), { minLength: 20, maxLength: 200 }), order(6, 4, 6), (served, ids) => {
      const expected = naiveBest(served, ids, () => true);
      expect(historyOf(served).bestPath(documentsOf(ids), undefined, undefined).order).toEqual(expected);
    }),
    { numRuns: runs(60) },
  );
});

test('keeps within the constraints and is still the best that the constraints allow', () => {
  const withConstraints = order(8, 1).chain((ids) => fc.tuple(fc.constant(ids), constraints(ids.length)));
  fc.assert(
    fc.property(servedOrders(8, 40, 9), withConstraints, (served, [ids, limits]) => {
      const rule = new ConstraintRule(ids.length, limits);
      const allowed = (ranks: number[]) => rule.allows(ranks.slice(0, -1), ranks.at(-1)!);
      const expected = naiveBest(served, ids, allowed);
      expect(historyOf(served).bestPath(documentsOf(ids), undefined, rule).order).toEqual(expected);
    }),
    { numRuns: runs(400) },
  );
});

describe('the preamble', () => {
  const preamble: Preamble = { key: 'preamble#1', tokens: 50 };
  const other: Preamble = { key: 'preamble#2', tokens: 9 };

  test('separates paths, and its tokens count', () => {
    const history = new ServedHistory();
    serve(history, ['a', 'b'], { preamble });
    serve(history, ['b', 'a'], { preamble: other });
    const documents = documentsOf(['b', 'a']);
    expect(history.bestPath(documents, preamble, undefined)).toMatchObject({
      order: [1, 0],
      tokens: 50 + tokensOf('a') + tokensOf('b'),
    });
    expect(history.bestPath(documents, other, undefined).order).toEqual([0, 1]);
    expect(history.bestPath(documentsOf(['z']), preamble, undefined)).toMatchObject({ order: [], tokens: 50 });
  });

  test('unknown: nothing is cached', () => {
    expect(historyOf([['a']]).bestPath(documentsOf(['a']), preamble, undefined)).toMatchObject({
      order: [],
      tokens: 0,
    });
  });
});

test('a search of one request leaves nothing behind for the next', () => {
  const history = historyOf([['a', 'b', 'c'], ['d']]);
  const first = history.bestPath(documentsOf(['a', 'b', 'c']), undefined, undefined);
  expect(history.bestPath(documentsOf(['d', 'b']), undefined, undefined).order).toEqual([0]);
  expect(history.bestPath(documentsOf(['a', 'b', 'c']), undefined, undefined)).toEqual(first);
});

test('nor does a search whose rule throws', () => {
  const history = historyOf([
    ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j'],
    ['b', 'a'],
  ]);
  const documents = documentsOf(['b', 'a', 'c']);
  let calls = 0;
  const rule: PlacementRule = {
    allows: () => {
      if (++calls === 2) throw new Error('broken');
      return true;
    },
  };
  const before = history.bestPath(documents, undefined, undefined);
  expect(() => history.bestPath(documents, undefined, rule)).toThrow('broken');
  expect(history.bestPath(documents, undefined, undefined)).toEqual(before);
  expect(history.bestPath(documentsOf(['b']), undefined, undefined).order).toEqual([0]);
});

test('1,000 documents in thousands of orders: the search ends early with a real path, no worse than the greedy one', () => {
  const ids = Array.from({ length: 1_000 }, (_, i) => `document-${i}`);
  const documents = documentsOf(ids);
  const history = new ServedHistory();
  for (let i = 0; i < 3_000; i++) {
    const served = Array.from({ length: 6 }, (_, place) => ids[(i * (7 + place * 13) + place * place * i) % 1_000]!);
    serve(history, [...new Set(served)]);
  }
  const context = { documents, preamble: undefined, maxShift: undefined, pinned: [] };
  const exact = createPolicy('exact').arrange(context, history, 0);
  const greedy = createPolicy('greedy').arrange(context, history, 0);
  expect(exact.cachedTokens).toBeGreaterThanOrEqual(greedy.cachedTokens);
  const keys = exact.order.slice(0, exact.cachedDocuments).map((rank) => documents[rank]!.key);
  expect(keys.length).toBeGreaterThan(0);
  expect(history.tree.longestPrefix(keys)).toBe(keys.length);
});

test.runIf(isFull)('documents are not kept once their order is decided', async () => {
  const history = new ServedHistory();
  const decide = (length: number, salt: string) => {
    const content = `${salt} ${'word '.repeat(length / 5)}`;
    const given = Array.from({ length: 4 }, (_, i) => ({ id: `${i}`, content: `${content}${i}` }));
    const arrangement = arrange({ documents: prepareDocuments(given).documents }, history, 0);
    observe({ kind: 'dispatched', arrangement, now: 0 }, history);
  };
  decide(1_000, 'first');
  decide(1_000, 'first');
  const before = await heldHeapBytes();
  decide(900_000, 'large');
  expect((await heldHeapBytes()) - before).toBeLessThan(500_000);
});
