import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { runs } from '../../../test/suite.js';
import { type Context, POLICY_NAMES, ServedHistory } from '../src/index.js';
import { createPolicy } from '../src/internal.js';
import { constraints, order, servedOrders } from './arbitraries.js';
import { orderingPolicyCases } from './conformance/ordering-policy.cases.js';
import { documentsOf, historyOf, serve, tokensOf } from './served.js';

for (const name of POLICY_NAMES) {
  orderingPolicyCases(() => createPolicy(name), {
    maxDocuments: 10,
    keepsRetrievalOrderWhenCold: name !== 'sorted',
  });
}

function contextOf(ids: readonly string[], limits: Partial<Context> = {}): Context {
  return { documents: documentsOf(ids), preamble: undefined, maxShift: undefined, pinned: [], ...limits };
}

function orderedIds(name: (typeof POLICY_NAMES)[number], ids: readonly string[], history: ServedHistory): string[] {
  return createPolicy(name)
    .arrange(contextOf(ids), history, 0)
    .order.map((rank) => ids[rank]!);
}

describe('the optimum', () => {
  const instance = order(8, 1, 9).chain((ids) =>
    fc.record({ served: servedOrders(8, 40, 9), ids: fc.constant(ids), limits: constraints(ids.length) }),
  );

  test('is never beaten by the greedy walk, nor by any other policy', () => {
    fc.assert(
      fc.property(instance, ({ served, ids, limits }) => {
        const history = historyOf(served);
        const context = contextOf(ids, limits);
        const best = createPolicy('exact').arrange(context, history, 0).cachedTokens;
        for (const name of POLICY_NAMES) {
          expect(createPolicy(name).arrange(context, history, 0).cachedTokens, name).toBeLessThanOrEqual(best);
        }
      }),
      { numRuns: runs(150) },
    );
  });

  test('tokens count, not documents', () => {
    const byTokens = [...'abcdefghijklmnop'].sort((a, b) => tokensOf(a) - tokensOf(b));
    const [small, next] = byTokens as [string, string];
    const large = byTokens.at(-1)!;
    const history = historyOf([[small, next], [large]]);
    expect(tokensOf(small) + tokensOf(next)).toBeLessThan(tokensOf(large));
    expect(orderedIds('exact', [small, next, large], history)).toEqual([large, small, next]);
    expect(orderedIds('greedy', [small, next, large], history)).toEqual([small, next, large]);
  });
});

describe('what each policy is', () => {
  test('greedy is Algorithm 1: the first document in retrieval rank with a cached child, never looking back', () => {
    const history = historyOf([['a', 'b', 'c', 'd'], ['f']]);
    expect(orderedIds('greedy', ['f', 'a', 'b', 'c', 'd'], history)).toEqual(['f', 'a', 'b', 'c', 'd']);
    expect(orderedIds('greedy', ['b', 'e', 'c', 'a'], history)).toEqual(['a', 'b', 'c', 'e']);
    expect(orderedIds('exact', ['f', 'a', 'b', 'c', 'd'], history)).toEqual(['a', 'b', 'c', 'd', 'f']);
  });

  test('a prefix of a longer path counts', () => {
    const history = historyOf([['a', 'b', 'c', 'd', 'e']]);
    for (const name of ['greedy', 'exact'] as const) {
      expect(orderedIds(name, ['z', 'b', 'a'], history)).toEqual(['a', 'b', 'z']);
    }
  });

  test('sorted: by id, code unit by code unit', () => {
    expect(orderedIds('sorted', ['b', 'a', 'B', 'ä', '10', '9'], new ServedHistory())).toEqual([
      '10',
      '9',
      'B',
      'a',
      'b',
      'ä',
    ]);
  });

  test('hotness counts the requests in the window', () => {
    const history = new ServedHistory({ hotness: { window: 3 } });
    for (const ids of [['a', 'b'], ['a'], ['a'], ['b'], ['c'], ['c']]) serve(history, ids);
    expect(orderedIds('hotness', ['a', 'b', 'c'], history)).toEqual(['c', 'b', 'a']);
  });
});
