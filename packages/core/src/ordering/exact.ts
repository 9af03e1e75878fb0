import { ConstraintRule, isFree } from './placement.js';
import type { OrderingPolicy } from './policy.js';
import { followedByRetrievalOrder } from './retrieval-order.js';

/**
 * The cached path that saves most tokens, then the rest in retrieval order: the optimum of Eq. 1 in CacheWeaver §3.3
 * with tokens for documents, at a cost near that of the greedy walk. See `tree/best-path.ts` for exactness and cost.
 */
export function createExactPolicy(): OrderingPolicy {
  return {
    name: 'exact',
    arrange(context, view) {
      const { documents, preamble } = context;
      const rule = isFree(context) ? undefined : new ConstraintRule(documents.length, context);
      const path = view.bestPath(documents, preamble, rule);
      const order =
        rule === undefined ? followedByRetrievalOrder(path.order, documents.length) : rule.complete(path.order);
      return { order, cachedDocuments: path.order.length, cachedTokens: path.tokens, laterTokens: 0 };
    },
  };
}
