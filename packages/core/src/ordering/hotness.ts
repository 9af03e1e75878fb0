import type { HotnessView } from '../residency/view.js';
import { withCachedPrefix } from './cached-prefix.js';
import type { OrderingPolicy } from './policy.js';
import { retrievalOrder } from './retrieval-order.js';
import { limitShift } from './shift-limit.js';

/**
 * Orders by requests in the sliding window that held a document, most first: the CA-Table of the CP-Tree paper. O(k log
 * k).
 */
export function createHotnessPolicy(): OrderingPolicy {
  return createStatisticPolicy('hotness', (hotness, key) => hotness.frequency(key));
}

/**
 * A policy that orders by a statistic of each document, highest first; equal documents keep retrieval order. O(k log
 * k).
 */
export function createStatisticPolicy(
  name: string,
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
