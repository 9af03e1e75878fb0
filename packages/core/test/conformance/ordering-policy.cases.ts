import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type Context, type Ordering, type OrderingPolicy, type Preamble, ServedHistory } from '../../src/index.js';
import { constraints, order, servedOrders } from '../arbitraries.js';
import { documentsOf, historyOf } from '../served.js';

/** What the suite needs to know of a policy beside the interface. */
export interface PolicyTraits {
  /** Documents it takes at most. */
  readonly maxDocuments: number;
  /** Whether it leaves retrieval order alone while nothing has been served. */
  readonly keepsRetrievalOrderWhenCold: boolean;
}

const PREAMBLE: Preamble = { key: 'preamble#known', tokens: 33 };

/** Any state, any documents, any constraints, with and without a preamble. */
function situation(maxDocuments: number): fc.Arbitrary<{ served: string[][]; context: Context }> {
  return fc
    .record({ served: servedOrders(8, 30, 10), ids: order(maxDocuments, 0, 10), withPreamble: fc.boolean() })
    .chain(({ served, ids, withPreamble }) =>
      constraints(ids.length).map((limits) => ({
        served,
        context: { documents: documentsOf(ids), preamble: withPreamble ? PREAMBLE : undefined, ...limits },
      })),
    );
}

/** The contract of `OrderingPolicy`, for every implementation. */
export function orderingPolicyCases(create: () => OrderingPolicy, traits: PolicyTraits): void {
  const policy = create();
  const holds = (check: (ordering: Ordering, context: Context, history: ServedHistory) => void): void => {
    fc.assert(
      fc.property(situation(traits.maxDocuments), ({ served, context }) => {
        const history = historyOf(served, context.preamble);
        check(policy.arrange(context, history, 0), context, history);
      }),
      { numRuns: 150 },
    );
  };

  describe(policy.name, () => {
    test('answers with a permutation: no document is lost, none is invented', () => {
      holds(({ order: ranks }, { documents }) => {
        expect([...ranks].sort((a, b) => a - b)).toEqual([...documents.keys()]);
      });
    });

    test('keeps within maxShift and leaves pinned documents where they are', () => {
      holds(({ order: ranks }, { maxShift, pinned }) => {
        for (const [place, rank] of ranks.entries()) {
          expect(Math.abs(place - rank)).toBeLessThanOrEqual(maxShift ?? ranks.length);
        }
        for (const rank of pinned) expect(ranks[rank]).toBe(rank);
      });
    });

    test('claims exactly what the tree holds of its order', () => {
      holds((ordering, { documents, preamble }, { tree }) => {
        const keys = ordering.order.map((rank) => documents[rank]!.key);
        const above = preamble === undefined ? [] : [preamble.key];
        const held = tree.longestPrefix([...above, ...keys]) - above.length;
        expect(ordering.cachedDocuments).toBe(Math.max(0, held));
        let tokens = held < 0 ? 0 : (preamble?.tokens ?? 0);
        for (const rank of ordering.order.slice(0, Math.max(0, held))) tokens += documents[rank]!.tokens;
        expect(ordering.cachedTokens).toBe(tokens);
      });
    });

    test('is pure: the same answer again, from another instance too, and nothing changed', () => {
      holds((ordering, context, history) => {
        const before = [history.tree.nodes, history.tree.bytes, history.requests, history.state];
        const documents = [...context.documents];
        expect(policy.arrange(context, history, 0)).toEqual(ordering);
        expect(create().arrange(context, history, 0)).toEqual(ordering);
        expect([history.tree.nodes, history.tree.bytes, history.requests, history.state]).toEqual(before);
        expect(context.documents).toEqual(documents);
      });
    });

    test('maxShift 0 and pins on all are retrieval order', () => {
      holds((_ordering, context, history) => {
        const ranks = [...context.documents.keys()];
        expect(policy.arrange({ ...context, maxShift: 0 }, history, 0).order).toEqual(ranks);
        expect(policy.arrange({ ...context, pinned: ranks }, history, 0).order).toEqual(ranks);
      });
    });

    test('an empty context and a single document', () => {
      const history = historyOf([['a'], ['b', 'a']]);
      const context = { preamble: undefined, maxShift: undefined, pinned: [] };
      expect(policy.arrange({ ...context, documents: [] }, history, 0)).toMatchObject({
        order: [],
        cachedDocuments: 0,
        cachedTokens: 0,
      });
      const documents = documentsOf(['a']);
      expect(policy.arrange({ ...context, documents }, history, 0)).toMatchObject({
        order: [0],
        cachedDocuments: 1,
        cachedTokens: documents[0]!.tokens,
      });
    });

    test('behind a preamble that was never served, nothing counts as cached', () => {
      const history = historyOf([['a', 'b']]);
      const context = { documents: documentsOf(['b', 'a']), preamble: PREAMBLE, maxShift: undefined, pinned: [] };
      expect(policy.arrange(context, history, 0)).toMatchObject({ cachedDocuments: 0, cachedTokens: 0 });
    });

    if (traits.keepsRetrievalOrderWhenCold) {
      test('keeps retrieval order while nothing has been served', () => {
        fc.assert(
          fc.property(situation(traits.maxDocuments), ({ context }) => {
            const ordering = policy.arrange(context, new ServedHistory(), 0);
            expect(ordering).toMatchObject({
              order: [...context.documents.keys()],
              cachedDocuments: 0,
              cachedTokens: 0,
            });
          }),
        );
      });
    }
  });
}
