import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { runs } from '../../../test/suite.js';
import {
  arrange,
  type Context,
  type Document,
  type Ordering,
  observe,
  prepareDocuments,
  type ResidencyView,
  ServedHistory,
} from '../src/index.js';
import { createPolicy } from '../src/internal.js';
import { RankSurvival, RecentRequests } from '../src/residency/request-statistics.js';
import { constraints, order, servedOrders } from './arbitraries.js';
import { NaiveForesight } from './naive-foresight.js';
import { documentsOf, historyOf, idsOf } from './served.js';

const PREAMBLE = { key: 'preamble#known', tokens: 33 };

function contextOf(ids: readonly string[], more: Partial<Context> = {}): Context {
  return { documents: documentsOf(ids), preamble: undefined, maxShift: undefined, pinned: [], ...more };
}

function waitingOf(orders: readonly (readonly string[])[]): readonly (readonly Document[])[] {
  return orders.map(documentsOf);
}

function foresee(context: Context, view: ResidencyView, maxOperations?: number): Ordering {
  const options = maxOperations === undefined ? {} : { maxOperations };
  return createPolicy('foresight', options).arrange(context, view, 0);
}

/** The same view without a memory of requests. */
function forgetful(history: ServedHistory): ResidencyView {
  return {
    state: 'history',
    tree: history.tree,
    hotness: history.hotness,
    recent: new RecentRequests(),
    requests: history.requests,
    bestPath: (documents, preamble, rule) => history.bestPath(documents, preamble, rule),
  };
}

const situation = (least: number, most: number) =>
  fc
    .record({
      served: servedOrders(6, 30, 9),
      ids: order(most, least, most <= 9 ? 9 : 16),
      waiting: servedOrders(6, 6, 9),
      withPreamble: fc.boolean(),
    })
    .chain((drawn) => constraints(drawn.ids.length).map((limits) => ({ ...drawn, limits })));

describe('the plan', () => {
  test('is worth as much as the best of all permutations, tokens, waiting requests and constraints included', () => {
    fc.assert(
      fc.property(situation(1, 6), ({ served, ids, waiting, withPreamble, limits }) => {
        const preamble = withPreamble ? PREAMBLE : undefined;
        const history = historyOf(served, preamble);
        const context = contextOf(ids, { ...limits, preamble, waiting: waitingOf(waiting) });
        const naive = new NaiveForesight(
          context,
          history,
          served.map((orderServed) => documentsOf(orderServed).map(({ key }) => key)),
        );
        fc.pre(naive.isPlanned());
        expect(naive.worth(foresee(context, history).order)).toBeCloseTo(naive.most(), 6);
      }),
      { numRuns: runs(150) },
    );
  });

  test('is that of `exact` among documents of like length, unless a waiting request wants some of them', () => {
    fc.assert(
      fc.property(situation(2, 12), fc.integer({ min: 0, max: 9 }), ({ served, ids, waiting, limits }, spread) => {
        const lengthOf = (id: string) => 100 + (id.charCodeAt(0) % 2 === 0 ? spread : -spread);
        const likeLong = (some: readonly string[]) =>
          documentsOf(some).map((document) => ({ ...document, tokens: lengthOf(document.id) }));
        const history = new ServedHistory();
        for (const each of served) history.completed({ documents: likeLong(each), preamble: undefined }, 0, {});
        const strangers = waiting.map((each) => likeLong(each.filter((id) => !ids.includes(id))));
        const context: Context = { ...contextOf([]), ...limits, documents: likeLong(ids), waiting: strangers };
        const exact = createPolicy('exact').arrange(context, history, 0);
        expect(foresee(context, history)).toEqual(exact);
        expect(foresee({ ...context, waiting: undefined }, history)).toEqual(exact);
      }),
      { numRuns: runs(150) },
    );
  });

  test('is made by what recent requests let expect where lengths deviate by 15 % of their mean', () => {
    const orderAt = (deviation: number) => {
      const documents = (ids: string) =>
        documentsOf([...ids]).map((document) => ({
          ...document,
          tokens: document.id === 'd' ? 100 + 2 * deviation : 100,
        }));
      const history = new ServedHistory();
      for (let i = 0; i < 10; i++) history.completed({ documents: documents('abd'), preamble: undefined }, 0, {});
      for (const more of 'efghij') history.completed({ documents: documents(`${more}d`), preamble: undefined }, 0, {});
      return foresee({ ...contextOf([]), documents: documents('xd') }, history).order;
    };
    expect(orderAt(16)).toEqual([0, 1]);
    expect(orderAt(19)).toEqual([1, 0]);
  });

  test('is that of `exact` when nothing is known of coming requests', () => {
    fc.assert(
      fc.property(situation(0, 16), ({ served, ids, limits }) => {
        const history = historyOf(served);
        const context = contextOf(ids, limits);
        expect(foresee(context, forgetful(history))).toEqual(createPolicy('exact').arrange(context, history, 0));
      }),
      { numRuns: runs(150) },
    );
  });

  test('above eight documents it still keeps all documents, the constraints and the truth about what is cached', () => {
    fc.assert(
      fc.property(situation(9, 16), ({ served, ids, waiting, limits }) => {
        const history = historyOf(served);
        const context = contextOf(ids, { ...limits, waiting: waitingOf(waiting) });
        const ordering = foresee(context, history);
        expect([...ordering.order].sort((a, b) => a - b)).toEqual([...ids.keys()]);
        for (const [place, rank] of ordering.order.entries()) {
          expect(Math.abs(place - rank)).toBeLessThanOrEqual(limits.maxShift ?? ids.length);
        }
        for (const rank of limits.pinned) expect(ordering.order[rank]).toBe(rank);
        const keys = ordering.order.map((rank) => context.documents[rank]!.key);
        expect(ordering.cachedDocuments).toBe(history.tree.longestPrefix(keys));
      }),
      { numRuns: runs(150) },
    );
  });

  test('one instance answers like a fresh one, whatever it was asked before', () => {
    fc.assert(
      fc.property(fc.array(situation(0, 12), { minLength: 2, maxLength: 6 }), (situations) => {
        const policy = createPolicy('foresight');
        for (const { served, ids, waiting, limits } of situations) {
          const history = historyOf(served);
          const context = contextOf(ids, { ...limits, waiting: waitingOf(waiting) });
          expect(policy.arrange(context, history, 0)).toEqual(foresee(context, history));
        }
      }),
      { numRuns: runs(60) },
    );
  });

  test('more than thirty documents are ordered like `exact`', () => {
    const ids = Array.from({ length: 31 }, (_, number) => `document-${number}`);
    const history = historyOf([[ids[7]!, ids[3]!], ids.slice(5, 9)]);
    const context = contextOf(ids, { waiting: waitingOf([ids.slice(20, 24)]) });
    expect(foresee(context, history)).toEqual(createPolicy('exact').arrange(context, history, 0));
    const thirty = contextOf(ids.slice(1), { waiting: waitingOf([[ids[30]!, ids[20]!]]) });
    expect(foresee(thirty, new ServedHistory()).order.slice(0, 2)).toEqual([19, 29]);
  });
});

describe('waiting requests', () => {
  test('what they share comes first, although nothing is cached yet', () => {
    for (const ids of [[...'abcde'], [...'abcdefghijk']]) {
      const context = contextOf(ids, {
        waiting: waitingOf([
          ['d', 'b', 'x'],
          ['b', 'y', 'd'],
        ]),
      });
      const first = foresee(context, new ServedHistory()).order.slice(0, 2);
      expect(first.map((rank) => ids[rank]).toSorted()).toEqual(['b', 'd']);
    }
  });

  test('above eight documents, too, the next document is one that those want who want all before it', () => {
    const documents = (ids: string): readonly Document[] =>
      prepareDocuments([...ids].map((id) => ({ id, content: id, tokens: 100 }))).documents;
    const waiting = ['cd', 'ce', 'cg', 'ax', 'ay'].map(documents);
    const context: Context = { ...contextOf([]), documents: documents('abcdefghi'), waiting };
    expect(foresee(context, new ServedHistory()).order.slice(0, 3)).toEqual([2, 3, 0]);
  });

  test('a cached path is given up only for what is worth more', () => {
    const history = historyOf([['a', 'b']]);
    const orderFor = (waiting: readonly (readonly string[])[]): string[] =>
      idsOf(
        arrange({ documents: documentsOf([...'abcd']), policy: 'foresight', waiting: waitingOf(waiting) }, history, 0),
      );
    expect(orderFor([]).slice(0, 2)).toEqual(['a', 'b']);
    expect(orderFor([['d', 'x']]).slice(0, 2)).toEqual(['a', 'b']);
    const many = Array.from({ length: 5 }, (_, number) => ['c', 'd', `other-${number}`]);
    expect(orderFor(many).slice(0, 2).toSorted()).toEqual(['c', 'd']);
  });

  test('a request that finds as much cached without us changes nothing', () => {
    const history = historyOf([['c', 'd']]);
    const waiting = waitingOf([['c', 'd']]);
    const context = contextOf(['a', 'c', 'b', 'e'], { waiting });
    const withIt = foresee(context, forgetful(history));
    expect(withIt).toEqual(foresee({ ...context, waiting: undefined }, forgetful(history)));
  });

  test('the first 64 count', () => {
    const strangers = Array.from({ length: 63 }, (_, number) => [`stranger-${number}`]);
    const view = new ServedHistory();
    const orderOf = (waiting: readonly (readonly string[])[]) =>
      foresee(contextOf(['a', 'b', 'c'], { waiting: waitingOf(waiting) }), view).order;
    expect(orderOf([...strangers, ['c', 'x']])).toEqual([2, 0, 1]);
    expect(orderOf([...strangers, ['stranger'], ['c', 'x']])).toEqual([0, 1, 2]);
  });
});

describe('the budget', () => {
  test('without one, the answer is that of `exact` without one; with any, the same one every time and a permutation', () => {
    fc.assert(
      fc.property(situation(2, 12), fc.integer({ min: 0, max: 5_000 }), ({ served, ids, waiting, limits }, budget) => {
        const history = historyOf(served);
        const context = contextOf(ids, { ...limits, waiting: waitingOf(waiting) });
        const none = createPolicy('exact', { maxOperations: 0 }).arrange(context, history, 0);
        expect(foresee(context, history, 0).order).toEqual(none.order);
        const ordering = foresee(context, history, budget);
        expect([...ordering.order].sort((a, b) => a - b)).toEqual([...ids.keys()]);
        expect(foresee(context, history, budget)).toEqual(ordering);
      }),
      { numRuns: runs(100) },
    );
  });

  test('a smaller budget plans by chains what it cannot weigh in all subsets', () => {
    const history = new ServedHistory();
    const context = contextOf([...'abcdefgh'], { waiting: waitingOf([[...'abcdefgx'], ['h', 'y'], ['h', 'z']]) });
    const orders = [0, 1_000, 10_000].map((budget) => foresee(context, history, budget).order.join(''));
    expect(orders[0]).toBe('01234567');
    expect(new Set(orders).size).toBe(3);
  });
});

describe('what recent requests teach', () => {
  test('overlaps are those of the last hundred requests behind the same preamble', () => {
    const request = order(8, 1, 16);
    fc.assert(
      fc.property(
        fc.array(fc.record({ ids: request, withPreamble: fc.boolean() }), { minLength: 60, maxLength: 160 }),
        request,
        fc.boolean(),
        (served, ids, withPreamble) => {
          const recent = new RecentRequests();
          for (const each of served) {
            recent.record({ documents: documentsOf(each.ids), preamble: each.withPreamble ? PREAMBLE : undefined });
          }
          const masks = new Int32Array(128);
          const found = recent.overlaps(documentsOf(ids), withPreamble ? PREAMBLE : undefined, masks);
          const expected = served
            .slice(-100)
            .filter((each) => each.withPreamble === withPreamble)
            .map((each) => ids.reduce((mask, id, rank) => mask | (each.ids.includes(id) ? 1 << rank : 0), 0))
            .filter((mask) => mask !== 0);
          expect([...masks.subarray(0, found)].toSorted()).toEqual(expected.toSorted());
        },
      ),
      { numRuns: runs(30) },
    );
  });

  test('ranks are those of retrieval, whatever the order in the prompt', () => {
    const recent = new RecentRequests();
    recent.record({ documents: documentsOf(['c', 'a', 'b']), preamble: undefined, order: [2, 0, 1] });
    recent.record({ documents: documentsOf(['z', 'a', 'y', 'c']), preamble: undefined });
    expect(recent.survival(0b101)).toBeCloseTo(1 / 1.995);
    expect(recent.survival(0b110)).toBe(0);
  });

  test('how many requests keep a set of ranks follows what happens lately', () => {
    const survival = new RankSurvival();
    expect([survival.expected(1), survival.recurrence]).toEqual([0, 0]);
    for (let request = 0; request < 100; request++) {
      survival.beginRequest();
      survival.learn(1);
      survival.learn(1);
    }
    expect(survival.expected(1)).toBeCloseTo(2);
    for (let request = 0; request < 2_000; request++) {
      survival.beginRequest();
      survival.learn(3);
    }
    expect(survival.expected(3)).toBeCloseTo(1, 2);
    expect(survival.expected(1)).toBeLessThan(0.001);
    expect(survival.recurrence).toBeCloseTo(survival.expected(1) + survival.expected(3));
  });

  test('documents that come back after more than twenty requests are ordered like `exact`', () => {
    const ids = (number: number): string[] => ['a', 'b', 'd'].map((letter) => `${letter}-${number % 21}`);
    const history = historyOf(Array.from({ length: 63 }, (_, number) => ids(number)));
    expect(history.recent.recurrence).toBe(0);
    expect(foresee(contextOf(['c', 'd-3', 'b-3']), history).order).toEqual([0, 1, 2]);
    const sooner = historyOf([...Array.from({ length: 63 }, (_, number) => ids(number)), ids(62)]);
    expect(foresee(contextOf(['c', 'd-3', 'b-3']), sooner).order[0]).not.toBe(0);
  });

  test('a history that is cleared knows nothing any more', () => {
    const history = historyOf([
      ['a', 'b'],
      ['b', 'c'],
    ]);
    const masks = new Int32Array(128);
    expect(history.recent.overlaps(documentsOf(['b']), undefined, masks)).toBe(2);
    history.clear();
    expect(history.recent.overlaps(documentsOf(['b']), undefined, masks)).toBe(0);
    expect(history.recent.survival(0b10)).toBe(0);
  });
});

describe('what it is for', () => {
  /** Bursts of ten requests for five of a region's ten documents, the first three kept from one to the next. */
  function bursts(seed: number): string[][] {
    return Array.from({ length: 120 }, (_, number) => {
      const pick = (salt: number): number =>
        Math.imul((number - (number % 10) * (salt < 3 ? 1 : 0)) * 31 + salt * 7 + seed, 0x9e3779b1) >>> 0;
      const ids = new Set<string>();
      for (let salt = 0; ids.size < 5; salt++) {
        ids.add(`region-${Math.floor(number / 10)}/document-${(pick(salt) >>> 16) % 10}`);
      }
      return [...ids];
    });
  }

  test('with eight waiting requests known it serves more from the cache than the best order of each request alone', () => {
    const cachedDocuments = (policy: 'exact' | 'foresight'): number => {
      let cached = 0;
      for (let seed = 1; seed <= 5; seed++) {
        const history = new ServedHistory();
        const requests = bursts(seed).map(documentsOf);
        for (const [now, documents] of requests.entries()) {
          const waiting = requests.slice(now + 1, now + 9);
          const arrangement = arrange({ documents, policy, waiting }, history, now);
          cached += arrangement.trace.cachedDocuments;
          observe({ kind: 'dispatched', arrangement, now }, history);
          observe({ kind: 'completed', arrangement, now }, history);
        }
      }
      return cached;
    };
    const exact = cachedDocuments('exact');
    expect(exact).toBeGreaterThan(1_000);
    expect(cachedDocuments('foresight')).toBeGreaterThan(1.02 * exact);
  });
});
