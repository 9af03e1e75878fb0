import { createStatisticPolicy } from './by-statistic.js';
import type { OrderingPolicy } from './policy.js';

/** Documents of most requests in the sliding window first: the CA-Table of the CP-Tree paper. O(k log k). */
export function createHotnessPolicy(): OrderingPolicy {
  return createStatisticPolicy('hotness', (hotness, key) => hotness.frequency(key));
}
