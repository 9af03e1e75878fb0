import { createStatisticPolicy } from './by-statistic.js';
import type { OrderingPolicy } from './policy.js';

/** Most recently seen documents first, documents never seen last (RAGCache++ §4.6, «APC + Recency»). O(k log k). */
export function createRecencyPolicy(): OrderingPolicy {
  return createStatisticPolicy('recency', (hotness, key) => hotness.lastSeen(key));
}
