import { z } from 'zod';
import type { PrefixCacheStats } from '../cache/prefix-cache-options.js';
import { PATH_ORDERS, type TreeReport } from '../cache/tree-report.js';
import type { PromptTokenCounts } from './metrics.js';

const upTo = (most: number, fallback: number, least = 1) =>
  z.coerce.number().int().min(least).max(most).default(fallback);

/** The query of `GET /kv`. */
export const kvQuerySchema = z.strictObject({
  paths: upTo(100, 10, 0),
  depth: upTo(256, 32),
  sort: z.enum(PATH_ORDERS).default('uses'),
});

/** What `GET /kv` answers: counts and sizes of everything that the cache holds. */
export function kvReport(
  stats: PrefixCacheStats,
  tree: TreeReport,
  { prompts, isReused }: { readonly prompts: PromptTokenCounts; readonly isReused: boolean },
): object {
  const { cells, usedCells, cachedCells, freeSequences, leases, evictedTokens, host, disk } = stats;
  const { tiers, paths, ...shape } = tree;
  return {
    reuse: isReused ? 'prefix' : 'none',
    cells: { total: cells, used: usedCells, cached: cachedCells },
    sequences: { free: freeSequences, running: leases },
    prompt_tokens: prompts,
    tiers: {
      device: { ...tiers.device, evicted_tokens: evictedTokens },
      ...(host !== undefined && {
        host: {
          ...tiers.host,
          bytes: host.usedBytes,
          capacity_bytes: host.capacityBytes,
          saved_tokens: host.savedTokens,
          restored_tokens: host.restoredTokens,
          evicted_tokens: host.evictedTokens,
          failures: host.failures,
        },
      }),
      ...(disk !== undefined && {
        disk: {
          ...tiers.disk,
          files: disk.files,
          bytes: disk.usedBytes,
          capacity_bytes: disk.capacityBytes,
          saved_tokens: disk.savedTokens,
          loaded_tokens: disk.loadedTokens,
          evicted_tokens: disk.evictedTokens,
          failures: disk.failures,
        },
      }),
    },
    tree: shape,
    paths,
  };
}
