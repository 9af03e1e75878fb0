import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { runs } from '../../../test/suite.js';
import { arrange, type Context, type Document, type Ordering, ServedHistory } from '../src/index.js';
import { createPolicy, PromptSlots, placesMoved } from '../src/internal.js';
import { ConstraintRule, isFree } from '../src/ordering/placement.js';
import { constraints, order, servedOrders } from './arbitraries.js';
import { NaiveForesight } from './naive-foresight.js';
import { documentsOf, historyOf, idsOf, serve } from './served.js';

const WEIGHING = ['greedy', 'exact', 'foresight'] as const;
const PREAMBLE = { key: 'preamble#known', tokens: 33 };
/** More than all documents of a context have together: no move is worth it. */
const TOO_DEAR = 100_000;

/** A price that decides: documents have 20 to 400 tokens. */
const price = fc.oneof(fc.constantFrom(0.1, 1, 10, 50), fc.double({ min: 0.01, max: 150, noNaN: true }));

const situation = (most: number, pool: number) =>
  fc
    .record({
      served: servedOrders(6, 30, pool),
      ids: order(most, 1, pool),
      waiting: servedOrders(6, 6, pool),
      withPreamble: fc.boolean(),
    })
    .chain((drawn) => constraints(drawn.ids.length).map((limits) => ({ ...drawn, limits })));

type Situation = typeof situation extends (most: number, pool: number) => fc.Arbitrary<infer Drawn> ? Drawn : never;

function situationOf({ served, ids, waiting, withPreamble, limits }: Situation) {
  const preamble = withPreamble ? PREAMBLE : undefined;
  const history = historyOf(served, preamble);
  const context: Context = { documents: documentsOf(ids), preamble, ...limits, waiting: waiting.map(documentsOf) };
  return { history, context };
}

function permutations(items: readonly number[]): number[][] {
  if (items.length === 0) return [[]];
  return items.flatMap((first) => permutations(items.filter((item) => item !== first)).map((rest) => [first, ...rest]));
}

/** All orders within the constraints. */
function allowedOrders(context: Context): number[][] {
  const rule = new ConstraintRule(context.documents.length, { ...context, shiftPrice: 0 });
  return permutations([...context.documents.keys()]).filter((each) =>
    each.every((rank, place) => rule.allows(each.slice(0, place), rank)),
  );
}

/** Tokens that the tree holds of this order. */
function cachedTokens(ranks: readonly number[], { documents, preamble }: Context, history: ServedHistory): number {
  const above = preamble === undefined ? [] : [preamble.key];
  const keys = ranks.map((rank) => documents[rank]!.key);
  const held = history.tree.longestPrefix([...above, ...keys]) - above.length;
  if (held < 0) return 0;
  return ranks.slice(0, held).reduce((sum, rank) => sum + documents[rank]!.tokens, preamble?.tokens ?? 0);
}

describe('the price of a prefix', () => {
  test('is that of the cheapest order that begins so, and never falls on the way', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 5 }).chain((count) => fc.tuple(fc.constant(count), constraints(count))),
        ([count, limits]) => {
          const documents = documentsOf([...'abcde'].slice(0, count));
          const context = { documents, preamble: undefined, ...limits };
          const { priceOf } = new ConstraintRule(count, { ...limits, shiftPrice: 2 });
          const orders = allowedOrders(context);
          for (const each of orders) {
            expect(priceOf!(each)).toBe(2 * placesMoved(each));
            let before = 0;
            for (let length = 0; length <= count; length++) {
              const prefix = each.slice(0, length);
              const same = orders.filter((other) => prefix.every((rank, place) => other[place] === rank));
              expect(priceOf!(prefix)).toBe(2 * Math.min(...same.map(placesMoved)));
              expect(priceOf!(prefix)).toBeGreaterThanOrEqual(before);
              before = priceOf!(prefix);
            }
          }
        },
      ),
      { numRuns: runs(60) },
    );
  });

  test('is not there where nothing costs anything', () => {
    const free = { maxShift: undefined, pinned: [], shiftPrice: 0 };
    expect(isFree(free)).toBe(true);
    expect(new ConstraintRule(3, free).priceOf).toBeUndefined();
    expect(isFree({ ...free, shiftPrice: 0.5 })).toBe(false);
  });
});

describe('an order at a price', () => {
  test('of `exact` saves as much above it as any order does', () => {
    fc.assert(
      fc.property(situation(5, 7), price, (drawn, shiftPrice) => {
        const { history, context } = situationOf(drawn);
        const worth = (ranks: readonly number[]) =>
          cachedTokens(ranks, context, history) - shiftPrice * placesMoved(ranks);
        const found = createPolicy('exact').arrange({ ...context, shiftPrice }, history, 0);
        expect(worth(found.order)).toBeCloseTo(Math.max(...allowedOrders(context).map(worth)), 6);
        expect(found.cachedTokens).toBe(cachedTokens(found.order, context, history));
      }),
      { numRuns: runs(200) },
    );
  });

  test('of `foresight` is worth as much as the best of all permutations', () => {
    fc.assert(
      fc.property(situation(5, 8), price, (drawn, shiftPrice) => {
        const { history, context } = situationOf(drawn);
        const served = drawn.served.map((each) => documentsOf(each).map(({ key }) => key));
        const naive = new NaiveForesight(context, history, served);
        fc.pre(naive.isPlanned());
        const worth = (ranks: readonly number[]) => naive.worth(ranks) - shiftPrice * placesMoved(ranks);
        const found = createPolicy('foresight').arrange({ ...context, shiftPrice }, history, 0);
        expect(worth(found.order)).toBeCloseTo(Math.max(...allowedOrders(context).map(worth)), 6);
      }),
      { numRuns: runs(150) },
    );
  });

  test('of 0 is the order without one, and what nothing is worth leaves retrieval order', () => {
    fc.assert(
      fc.property(situation(16, 16), fc.constantFrom(...WEIGHING), (drawn, name) => {
        const { history, context } = situationOf(drawn);
        const at = (shiftPrice?: number): Ordering =>
          createPolicy(name).arrange({ ...context, shiftPrice }, history, 0);
        expect(at(0)).toEqual(at());
        expect(at(TOO_DEAR).order).toEqual([...drawn.ids.keys()]);
        expect(at(1_000_000_000).order).toEqual([...drawn.ids.keys()]);
      }),
      { numRuns: runs(200) },
    );
  });

  test('moves documents no farther than a lower price does, wherever the search is exhaustive', () => {
    const prices = fc.uniqueArray(price, { minLength: 2, maxLength: 6 });
    fc.assert(
      fc.property(situation(8, 10), prices, fc.constantFrom(...WEIGHING), (drawn, some, name) => {
        const { history, context } = situationOf(drawn);
        let most = Number.POSITIVE_INFINITY;
        for (const shiftPrice of [0, ...some.toSorted((a, b) => a - b)]) {
          const { order: ranks, cutShort } = createPolicy(name).arrange({ ...context, shiftPrice }, history, 0);
          expect(cutShort).toBeUndefined();
          expect(placesMoved(ranks)).toBeLessThanOrEqual(most);
          most = placesMoved(ranks);
        }
      }),
      { numRuns: runs(300) },
    );
  });

  test('keeps within the constraints, and says the truth about what is cached, for any number of documents', () => {
    fc.assert(
      fc.property(situation(16, 16), price, fc.constantFrom(...WEIGHING), (drawn, shiftPrice, name) => {
        const { history, context } = situationOf(drawn);
        const found = createPolicy(name).arrange({ ...context, shiftPrice }, history, 0);
        expect([...found.order].sort((a, b) => a - b)).toEqual([...drawn.ids.keys()]);
        const rule = new ConstraintRule(drawn.ids.length, context);
        for (const [place, rank] of found.order.entries()) {
          expect(rule.allows(found.order.slice(0, place), rank)).toBe(true);
        }
        expect(found.cachedTokens).toBe(cachedTokens(found.order, context, history));
      }),
      { numRuns: runs(200) },
    );
  });

  test('is paid beside the hint', () => {
    const history = historyOf([['d', 'c']]);
    const documents = documentsOf([...'abcd']);
    const at = (shiftPrice: number) => arrange({ documents, policy: 'exact', shiftPrice }, history, 0);
    const saved = at(0).predictedCachedTokens;
    const places = placesMoved(at(0).order);
    const hinted = idsOf(at(0));
    expect(hinted.slice(0, 2)).toEqual(['d', 'c']);
    // Just below what the order saves: it pays for its moves, and no longer for its hint as well.
    const near = (saved - 1) / places;
    expect(idsOf(arrange({ documents, policy: 'exact', shiftPrice: near, hints: false }, history, 0))).toEqual(hinted);
    expect(idsOf(at(near))).toEqual([...'abcd']);
    expect(at(near).trace).toMatchObject({ shiftPrice: near, moves: [0, 0, 0, 0] });
    expect(at(0).trace.shiftPrice).toBe(0);
  });

  test('holds for prompts in slots', () => {
    const situations = fc.record({ served: servedOrders(5, 20, 6), ids: order(6, 1, 6) });
    fc.assert(
      fc.property(situations, fc.constantFrom('exact', 'foresight'), price, ({ served, ids }, policy, shiftPrice) => {
        const history = new ServedHistory({ slots: { prompts: new PromptSlots(), name: 't' } });
        for (const each of served) serve(history, each);
        const at = (dear: number, documents: readonly Document[] = documentsOf(ids)) =>
          arrange({ documents, policy, shiftPrice: dear, hints: false }, history, 0);
        expect(at(0)).toEqual(arrange({ documents: documentsOf(ids), policy, hints: false }, history, 0));
        expect(at(TOO_DEAR).order).toEqual([...ids.keys()]);
        const { order: ranks, predictedCachedTokens: cached } = at(shiftPrice);
        const kept = at(TOO_DEAR).predictedCachedTokens;
        if (policy === 'exact') expect(cached - shiftPrice * placesMoved(ranks)).toBeGreaterThanOrEqual(kept - 1e-9);
      }),
      { numRuns: runs(150) },
    );
  });
});

test('a price that is none is refused', () => {
  for (const shiftPrice of [-1, Number.NaN, Number.POSITIVE_INFINITY, 1e10]) {
    expect(() => arrange({ documents: documentsOf(['a']), shiftPrice }, new ServedHistory(), 0)).toThrow(
      expect.objectContaining({ code: 'WARMPATH_INVALID_SHIFT_PRICE', path: 'shiftPrice' }),
    );
  }
});
