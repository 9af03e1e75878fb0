import type { Admission, PrefixCacheModel } from './prefix-cache.js';

const ADMISSION: Admission = { cachedTokens: 0, enter: () => {}, release: () => {} };

/** An engine without a prefix cache: every token is computed every time, and memory never ends. */
export function createNoCache(): PrefixCacheModel {
  return {
    name: 'off',
    granularity: 1,
    evictsLeastRecent: true,
    usedTokens: 0,
    capacityTokens: 0,
    cachedTokens: () => 0,
    admit: () => ADMISSION,
    clear: () => {},
  };
}
