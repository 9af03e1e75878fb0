import type { Document } from '../document.js';
import { withCachedPrefix } from './cached-prefix.js';
import type { OrderingPolicy } from './policy.js';
import { retrievalOrder } from './retrieval-order.js';
import { limitShift } from './shift-limit.js';

/**
 * Orders by id, code unit by code unit: the baseline of RAGCache++ §4.1 («APC + Sorted»), which needs no state.
 * O(k log k).
 */
export function createSortedPolicy(): OrderingPolicy {
  return {
    name: 'sorted',
    arrange(context, view) {
      const { documents } = context;
      const desired = retrievalOrder(documents.length).sort(
        (a, b) => compareIds(documents[a]!, documents[b]!) || a - b,
      );
      return withCachedPrefix(limitShift(desired, context), context, view);
    },
  };
}

function compareIds(a: Document, b: Document): number {
  if (a.id === b.id) return 0;
  return a.id < b.id ? -1 : 1;
}
