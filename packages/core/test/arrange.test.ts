import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  type Arrangement,
  arrange,
  limitShift,
  type OrderingPolicy,
  observe,
  POLICY_NAMES,
  prepareRequest,
  type ResidencyView,
  ServedHistory,
  WarmpathError,
  withCachedPrefix,
} from '../src/index.js';
import { movedChains } from '../src/render/layout.js';
import { order, servedOrders } from './arbitraries.js';
import { documentsOf, historyOf, idsOf, tokensOf } from './served.js';

test('the arrangement is consistent with itself, for every policy and any state', () => {
  fc.assert(
    fc.property(
      servedOrders(8),
      order(8),
      fc.constantFrom(...POLICY_NAMES),
      fc.boolean(),
      (served, ids, policy, hints) => {
        const documents = documentsOf(ids);
        const arrangement = arrange({ documents, policy, hints }, historyOf(served), 0);
        expect(arrangement.documents).toEqual(arrangement.order.map((rank) => documents[rank]));
        expect(arrangement.trace.moves).toEqual(arrangement.order.map((rank, place) => rank - place));
        expect(arrangement.trace).toMatchObject({ policy, fellBack: undefined, residency: 'history' });
        const moved = arrangement.order.some((rank, place) => rank !== place);
        const named = movedChains(arrangement.order).flatMap((chain) => chain.map((rank) => documents[rank]!.label));
        expect(arrangement.hint).toEqual(hints && moved ? { labels: named } : undefined);
        const cached = arrangement.documents.slice(0, arrangement.trace.cachedDocuments);
        expect(arrangement.predictedCachedTokens).toBe(cached.reduce((sum, { tokens }) => sum + tokens, 0));
      },
    ),
    { numRuns: 300 },
  );
});

test('frozen input, same answer', () => {
  const request = Object.freeze({
    documents: Object.freeze([...documentsOf(['a', 'b', 'c'])]),
    pin: Object.freeze(['b']),
  });
  const history = historyOf([['c', 'b', 'a']]);
  expect(arrange(request, history, 1)).toEqual(arrange(request, history, 1));
});

describe('the constraints', () => {
  test('pins by id, in any order, twice if one likes', () => {
    const history = historyOf([['c', 'b', 'a']]);
    const arrangement = arrange({ documents: documentsOf(['a', 'b', 'c']), pin: ['c', 'b', 'c'] }, history, 0);
    expect(arrangement.trace.pinned).toEqual([1, 2]);
    expect(idsOf(arrangement)).toEqual(['a', 'b', 'c']);
  });

  test('a bound leaves the cached path intact that keeps within it', () => {
    const history = historyOf([
      ['d', 'c', 'b', 'a'],
      ['b', 'a', 'c'],
    ]);
    const documents = documentsOf(['a', 'b', 'c', 'd']);
    expect(idsOf(arrange({ documents }, history, 0))).toEqual(['d', 'c', 'b', 'a']);
    const bounded = arrange({ documents, maxShift: 1 }, history, 0);
    expect(idsOf(bounded)).toEqual(['b', 'a', 'c', 'd']);
    expect(bounded.predictedCachedTokens).toBe(tokensOf('b') + tokensOf('a') + tokensOf('c'));
  });
});

describe('what bad input gets', () => {
  const documents = documentsOf(['a', 'b']);
  const history = new ServedHistory();

  test.each([
    [{ documents, maxShift: -1 }, 'WARMPATH_INVALID_MAX_SHIFT'],
    [{ documents, maxShift: Number.NaN }, 'WARMPATH_INVALID_MAX_SHIFT'],
    [{ documents, pin: ['z'] }, 'WARMPATH_INVALID_PIN'],
    [{ documents, policy: 'best' as 'exact' }, 'WARMPATH_UNKNOWN_POLICY'],
  ])('%o → %s', (request, code) => {
    expect(() => arrange(request, history, 0)).toThrow(expect.objectContaining({ code }));
  });

  test('a policy that fails makes it retrieval order, and the trace says why', () => {
    const many = documentsOf([...'abcdefghi']);
    const served = historyOf([[...'ihgfedcba'], ['a', 'b']]);
    const failing = (error: Error): OrderingPolicy => ({
      name: 'failing',
      arrange: () => {
        throw error;
      },
    });
    const refused = new WarmpathError('WARMPATH_INVALID_REQUEST');
    const arrangement = arrange({ documents: many, policy: failing(refused) }, served, 0);
    expect(arrangement.order).toEqual([...many.keys()]);
    expect(arrangement.trace).toMatchObject({ fellBack: 'WARMPATH_INVALID_REQUEST', cachedDocuments: 2 });
    expect(arrangement.hint).toBeUndefined();
    const broken = failing(new TypeError('broken'));
    expect(arrange({ documents: many, policy: broken }, served, 0).trace.fellBack).toBe('WARMPATH_INTERNAL');
  });

  test('even a view that fails altogether costs no answer', () => {
    const broken: ResidencyView = {
      state: 'history',
      requests: 0,
      get tree(): never {
        throw new Error('gone');
      },
      get hotness(): never {
        throw new Error('gone');
      },
      get recent(): never {
        throw new Error('gone');
      },
      bestPath: () => {
        throw new Error('gone');
      },
    };
    expect(arrange({ documents }, broken, 0)).toMatchObject({ order: [0, 1], predictedCachedTokens: 0 });
  });
});

test('a policy of one’s own is used and named', () => {
  const documents = documentsOf(['b', 'a']);
  const policy: OrderingPolicy = {
    name: 'reversed',
    arrange: (context, view) => withCachedPrefix(limitShift([1, 0], context), context, view),
  };
  const arrangement = arrange({ documents, policy }, new ServedHistory(), 0);
  expect(arrangement.trace.policy).toBe('reversed');
  expect(idsOf(arrangement)).toEqual(['a', 'b']);
  expect(arrange({ documents, policy, maxShift: 0 }, new ServedHistory(), 0).order).toEqual([0, 1]);
});

test('warnings of the preparation end up in the trace', () => {
  const request = prepareRequest({ documents: [{ content: 'x' }, { content: 'x' }] });
  expect(arrange(request, new ServedHistory(), 0).trace.warnings).toEqual(request.warnings);
  expect(request.warnings).toHaveLength(1);
});

describe('cases that other context reorderers get wrong', () => {
  const serveNext = (history: ServedHistory, ids: readonly string[]): Arrangement => {
    const arrangement = arrange(
      prepareRequest({ documents: ids.map((id) => ({ id, content: `Text of ${id}.` })) }),
      history,
      0,
    );
    observe({ kind: 'dispatched', arrangement, now: 0 }, history);
    return arrangement;
  };

  test('every answer is a permutation of its own input, duplicates and subsets included', () => {
    const history = new ServedHistory();
    for (const ids of ['abc', 'dab', 'abba', 'ab', 'cba', 'abc', 'a', 'cab']) {
      const arrangement = serveNext(history, [...ids]);
      expect(idsOf(arrangement).sort()).toEqual([...new Set(ids)].sort());
      expect(arrangement.documents.map(({ id }) => id)).toEqual(
        arrangement.order.map((rank) => [...new Set(ids)][rank]),
      );
    }
  });

  test('live [A, B, C], then [D, A, B]: [A, B, D]', () => {
    const history = new ServedHistory();
    serveNext(history, ['A', 'B', 'C']);
    expect(idsOf(serveNext(history, ['D', 'A', 'B']))).toEqual(['A', 'B', 'D']);
  });

  test('[1, 2, 2, 3], then [3, 2, 1]: each its own answer', () => {
    const history = new ServedHistory();
    const first = serveNext(history, ['1', '2', '2', '3']);
    const second = serveNext(history, ['3', '2', '1']);
    expect(idsOf(first)).toEqual(['1', '2', '3']);
    expect(idsOf(second)).toEqual(['1', '2', '3']);
    expect(second.order).toEqual([2, 1, 0]);
    expect(second).not.toBe(first);
  });
});
