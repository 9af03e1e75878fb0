import type { HotnessView } from '../residency/view.js';
import { withCachedPrefix } from './cached-prefix.js';
import type { OrderingPolicy, PolicyName } from './policy.js';
import { retrievalOrder } from './retrieval-order.js';
import { limitShift } from './shift-limit.js';

/**
 * A policy that orders by a document's access statistic, highest first, equals in retrieval order. O(k log k).
 */
export function createStatisticPolicy(
  name: PolicyName,
  statistic: (hotness: HotnessView, key: string) => number,
): OrderingPolicy {
  return {
    name,
    arrange(context, view) {
      const { documents } = context;
      const values = documents.map((document) => statistic(view.hotness, document.key));
      const desired = retrievalOrder(documents.length).sort((a, b) => values[b]! - values[a]! || a - b);
      return withCachedPrefix(limitShift(desired, context), context, view);
    },
  };
}
