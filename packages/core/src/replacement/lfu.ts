import type { ReplacementPolicy } from './policy.js';

/** The node used least often since it came in goes first; of equals, the one used longest ago. */
export const LFU: ReplacementPolicy = {
  name: 'lfu',
  remembersEvicted: false,
  priority: ({ frequency }) => frequency,
};
