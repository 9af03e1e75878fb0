import { POLICY_NAMES } from '@warmpath/core';
import { createPolicy } from '@warmpath/core/internal';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type Context, ServedHistory } from '../../core/src/index.js';
import { constraints, order, servedOrders } from '../../core/test/arbitraries.js';
import { orderingPolicyCases } from '../../core/test/conformance/ordering-policy.cases.js';
import { documentsOf, historyOf, serve } from '../../core/test/served.js';
import { createLabPolicy, LAB_POLICY_NAMES, type LabPolicyName, readLabPolicyName } from '../src/index.js';
import { createRandomPolicy } from '../src/ordering/lab-policies.js';

const BASELINES = LAB_POLICY_NAMES.filter((name) => !POLICY_NAMES.some((core) => core === name));

for (const name of BASELINES) {
  orderingPolicyCases(() => createLabPolicy(name), {
    maxDocuments: name === 'oracle' ? 6 : 10,
    keepsRetrievalOrderWhenCold: name !== 'random',
  });
}
orderingPolicyCases(() => createRandomPolicy(7), { maxDocuments: 10, keepsRetrievalOrderWhenCold: false });

function contextOf(ids: readonly string[], limits: Partial<Context> = {}): Context {
  return { documents: documentsOf(ids), preamble: undefined, maxShift: undefined, pinned: [], ...limits };
}

function orderedIds(name: LabPolicyName, ids: readonly string[], history: ServedHistory): string[] {
  return createLabPolicy(name)
    .arrange(contextOf(ids), history, 0)
    .order.map((rank) => ids[rank]!);
}

test('the lab has the policies of the core and five baselines', () => {
  expect(BASELINES).toEqual(['random', 'recency', 'frequency', 'hotness-tree', 'oracle']);
  for (const name of LAB_POLICY_NAMES) {
    expect(createLabPolicy(name).name).toBe(name);
    expect(readLabPolicyName(name)).toBe(name);
  }
});

test('an unknown policy is answered with the nearest known one and with what experiments take', () => {
  const read = (name: string) => () => readLabPolicyName(name, '--policies');
  expect(read('recenzy')).toThrow(expect.objectContaining({ code: 'WARMPATH_UNKNOWN_POLICY', path: '--policies' }));
  expect(read('recenzy')).toThrow(
    'did you mean `recency`? Experiments also take random, recency, frequency, hotness-tree, oracle.',
  );
  expect(read('zzzzzzzzzzzz')).toThrow('of that name. Experiments also take');
});

describe('the optimum', () => {
  const instance = order(8, 1, 9).chain((ids) =>
    fc.record({ served: servedOrders(8, 40, 9), ids: fc.constant(ids), limits: constraints(ids.length) }),
  );

  test('`exact` is what trying every permutation finds, ties and constraints included', () => {
    fc.assert(
      fc.property(instance, ({ served, ids, limits }) => {
        const history = historyOf(served);
        const context = contextOf(ids.slice(0, 7), { ...limits, pinned: limits.pinned.filter((rank) => rank < 7) });
        expect(createPolicy('exact').arrange(context, history, 0)).toEqual(
          createLabPolicy('oracle').arrange(context, history, 0),
        );
      }),
      { numRuns: 150 },
    );
  });

  test('also with eight documents', () => {
    fc.assert(
      fc.property(servedOrders(8, 40, 8), order(8, 8, 8), (served, ids) => {
        const history = historyOf(served);
        const context = contextOf(ids);
        expect(createPolicy('exact').arrange(context, history, 0)).toEqual(
          createLabPolicy('oracle').arrange(context, history, 0),
        );
      }),
      { numRuns: 8 },
    );
  });

  test('is never beaten by a baseline', () => {
    fc.assert(
      fc.property(instance, ({ served, ids, limits }) => {
        const history = historyOf(served);
        const context = contextOf(ids, limits);
        const best = createPolicy('exact').arrange(context, history, 0).cachedTokens;
        for (const name of BASELINES) {
          if (name === 'oracle') continue;
          expect(createLabPolicy(name).arrange(context, history, 0).cachedTokens, name).toBeLessThanOrEqual(best);
        }
      }),
      { numRuns: 150 },
    );
  });

  test('`oracle` refuses more than eight documents', () => {
    const arrangeNine = () => createLabPolicy('oracle').arrange(contextOf([...'abcdefghi']), new ServedHistory(), 0);
    expect(arrangeNine).toThrow(expect.objectContaining({ code: 'WARMPATH_INVALID_REQUEST', path: 'documents' }));
    expect(arrangeNine).toThrow('`exact` finds the same optimum');
  });
});

describe('what each baseline is', () => {
  test('oracle: a prefix of a longer path counts', () => {
    const history = historyOf([['a', 'b', 'c', 'd', 'e']]);
    expect(orderedIds('oracle', ['z', 'b', 'a'], history)).toEqual(['a', 'b', 'z']);
  });

  test('recency: most recently seen first, never seen last, equals by rank', () => {
    const history = historyOf([['a'], ['c'], ['b', 'e']]);
    expect(orderedIds('recency', ['z', 'a', 'c', 'e', 'b', 'y'], history)).toEqual(['e', 'b', 'c', 'a', 'z', 'y']);
  });

  test('frequency counts for ever', () => {
    const history = new ServedHistory({ hotness: { window: 3 } });
    for (const ids of [['a', 'b'], ['a'], ['a'], ['b'], ['c'], ['c']]) serve(history, ids);
    expect(orderedIds('frequency', ['c', 'b', 'a'], history)).toEqual(['a', 'c', 'b']);
  });

  test('hotness-tree: the cached path of the hottest, though others are hotter, and the rest by hotness', () => {
    const history = historyOf([['a', 'b', 'x'], ['c'], ['c'], ['d', 'y'], ['d', 'y'], ['d', 'y'], ['e', 'c'], ['b']]);
    expect(orderedIds('hotness', ['a', 'b', 'c', 'd'], history)).toEqual(['c', 'd', 'b', 'a']);
    expect(orderedIds('hotness-tree', ['a', 'b', 'c', 'e'], history)).toEqual(['c', 'b', 'a', 'e']);
    expect(orderedIds('hotness-tree', ['z', 'b', 'e', 'y', 'd', 'a'], history)).toEqual(['d', 'y', 'b', 'e', 'a', 'z']);
  });

  test('random: another order for another seed and for the next request, all places equally likely', () => {
    const ids = [...'abcdefgh'];
    const history = new ServedHistory();
    const bySeed = new Set(
      Array.from({ length: 50 }, (_, seed) =>
        createRandomPolicy(seed).arrange(contextOf(ids), history, 0).order.join(),
      ),
    );
    expect(bySeed.size).toBe(50);
    const firstPlaces = new Array<number>(8).fill(0);
    for (let request = 0; request < 4_000; request++) {
      const { order: ranks } = createRandomPolicy().arrange(
        contextOf(ids),
        {
          ...history,
          tree: history.tree,
          hotness: history.hotness,
          recent: history.recent,
          state: 'history',
          requests: request,
          bestPath: history.bestPath,
        },
        0,
      );
      firstPlaces[ranks[0]!]! += 1;
    }
    for (const count of firstPlaces) expect(Math.abs(count - 500)).toBeLessThan(120);
  });
});
