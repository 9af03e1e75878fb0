import type { ReplacementPolicy } from './policy.js';

/**
 * Prefix-aware Greedy-Dual-Size-Frequency (RAGCache §5.1, Eq. 2–4): `clock + frequency × cost / size`. Cost over size
 * is the mean time a token over the requests that missed the node, so it knows what stood before the node and how much
 * was computed along with it. The frequency counts within the window, whether or not the node was held.
 */
export const PGDSF: ReplacementPolicy = {
  name: 'pgdsf',
  remembersEvicted: true,
  priority: ({ frequency, costPerToken }, clock) => clock + frequency * costPerToken,
};
