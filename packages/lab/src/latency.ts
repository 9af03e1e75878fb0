import type { CostModel } from '@warmpath/core/internal';

/**
 * `20 + 0.092 ms × uncached tokens`: two parameters that reproduce the medians and means that RAGCache++ measured on an
 * RTX 4090 (headline p50 in retrieval order 59.4 against 59.6, in greedy order 41.7 against 40.1).
 */
export const RTX_4090: CostModel = { prefillMs: (_cachedTokens, newTokens) => 20 + 0.092 * newTokens };

/**
 * `39.1 + 0.1076 ms × uncached tokens`: least squares through the 14 medians that RAGCache++ measured on an RTX 4060 Ti
 * (Tables 1 and 12). Rougher than the other: single medians are up to 13 ms off.
 */
export const RTX_4060_TI: CostModel = { prefillMs: (_cachedTokens, newTokens) => 39.1 + 0.1076 * newTokens };
