import { withCachedPrefix } from './cached-prefix.js';
import type { OrderingPolicy } from './policy.js';
import { retrievalOrder } from './retrieval-order.js';

/** Leaves the documents as they came. What every doubt falls back to. O(k). */
export function createRetrievalPolicy(): OrderingPolicy {
  return {
    name: 'retrieval',
    arrange: (context, view) => withCachedPrefix(retrievalOrder(context.documents.length), context, view),
  };
}
