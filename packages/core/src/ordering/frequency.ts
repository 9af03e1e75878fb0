import { createStatisticPolicy } from './by-statistic.js';
import type { OrderingPolicy } from './policy.js';

/** Documents of most requests so far first: popularity without a window. O(k log k). */
export function createFrequencyPolicy(): OrderingPolicy {
  return createStatisticPolicy('frequency', (hotness, key) => hotness.total(key));
}
