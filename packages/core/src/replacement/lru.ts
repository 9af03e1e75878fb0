import type { ReplacementPolicy } from './policy.js';

/** The node used longest ago goes first. */
export const LRU: ReplacementPolicy = {
  name: 'lru',
  remembersEvicted: false,
  priority: ({ request }) => request,
};
