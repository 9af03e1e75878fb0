import { type ReplacementPolicy, USE_HALF_LIFE } from './policy.js';

/**
 * Least recently and frequently used (LRFU, Lee et al. 2001): uses that count half for every 500 requests since, the
 * logarithm of their sum. All sums shrink alike, so adding the age to the logarithm makes a priority that stays right
 * as time goes by, and no clock is needed. Hits 3 to 27 % more than PGDSF where popularity is steady; less where it
 * changes faster than the half-life and the cache is small (docs/research/ragcache.md).
 */
export const LRFU: ReplacementPolicy = {
  name: 'lrfu',
  remembersEvicted: true,
  // What was not used yet counts as used now.
  priority: ({ request, recentFrequency }) => request / USE_HALF_LIFE + Math.log2(recentFrequency || 1),
};
