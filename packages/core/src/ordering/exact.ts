import { BEST_PATH_MAX_OPERATIONS } from '../tree/best-path.js';
import { withCachedPrefix } from './cached-prefix.js';
import { ConstraintRule, isFree } from './placement.js';
import type { OrderingPolicy } from './policy.js';
import { followedByRetrievalOrder } from './retrieval-order.js';

/**
 * The cached path that saves most tokens (less what it costs to move documents, where that has a price), then the rest
 * in retrieval order: the optimum of Eq. 1 in CacheWeaver §3.3
 * with tokens for documents, at a cost near that of the greedy walk. What the search cannot finish in `maxOperations`
 * (a hostile tree; those of real requests take a tenth) is answered by the best path until then. See
 * `tree/best-path.ts`.
 */
export function createExactPolicy(maxOperations: number = BEST_PATH_MAX_OPERATIONS): OrderingPolicy {
  return {
    name: 'exact',
    arrange(context, view) {
      const { documents, preamble } = context;
      const rule = isFree(context) ? undefined : new ConstraintRule(documents.length, context);
      const path = view.bestPath(documents, preamble, rule, maxOperations);
      const order =
        rule === undefined ? followedByRetrievalOrder(path.order, documents.length) : rule.complete(path.order);
      const ordering =
        rule?.priceOf === undefined
          ? { order, cachedDocuments: path.order.length, cachedTokens: path.tokens, laterTokens: 0 }
          : { ...withCachedPrefix(order, context, view), laterTokens: 0 };
      return path.isComplete ? ordering : { ...ordering, cutShort: 'partial' };
    },
  };
}
