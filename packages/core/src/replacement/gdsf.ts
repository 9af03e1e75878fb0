import type { ReplacementPolicy } from './policy.js';

/**
 * Greedy-Dual-Size-Frequency (Cherkasova 1998) with the cost that RAGCache §7.4 gives it for comparison, proportional
 * to the size. Cost over size is then the same for all and leaves `clock + frequency`; the frequency starts anew when a
 * node comes in.
 */
export const GDSF: ReplacementPolicy = {
  name: 'gdsf',
  remembersEvicted: false,
  priority: ({ frequency }, clock) => clock + frequency,
};
