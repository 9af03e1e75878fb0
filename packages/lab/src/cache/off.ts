import type { PrefixCacheModel } from './prefix-cache.js';

/** An engine without a prefix cache: every token is computed every time. */
export function createNoCache(): PrefixCacheModel {
  return {
    name: 'off',
    granularity: 1,
    evictsLeastRecent: true,
    usedTokens: 0,
    capacityTokens: 0,
    cachedTokens: () => 0,
    serve: () => 0,
    clear: () => {},
  };
}
