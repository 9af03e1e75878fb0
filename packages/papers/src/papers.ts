import { WarmpathError } from '@warmpath/core';
import { nearestName } from '@warmpath/core/internal';
import { CACHEWEAVER_TABLES, overheadTable, savingTable, throughputTable } from './cacheweaver.js';
import { CP_TREE_TABLES } from './cp-tree.js';
import { RAGBOOST_TABLES } from './ragboost.js';
import { RAGCACHE_TABLES } from './ragcache/tables.js';
import { RAGCACHE_PLUS_PLUS_TABLES } from './ragcache-plus-plus.js';
import { BATCH_TABLES } from './ragcache-plus-plus-batches.js';
import { PIPELINING_TABLES } from './ragcache-plus-plus-pipelining.js';
import { ROBUSTNESS_TABLES } from './ragcache-plus-plus-robustness.js';
import type { PaperTable, ReproducedTable, ReproduceOptions } from './reproduction.js';

const REPRODUCTIONS = {
  ragcache: RAGCACHE_TABLES,
  'ragcache++': [
    ...RAGCACHE_PLUS_PLUS_TABLES,
    { name: 'table-3', reproduce: () => overheadTable('Table 3') },
    { name: 'table-4', reproduce: () => throughputTable('Table 4') },
    ...PIPELINING_TABLES,
    { name: 'table-7', reproduce: () => savingTable('Table 7') },
    ...BATCH_TABLES,
    ...ROBUSTNESS_TABLES,
  ],
  cacheweaver: CACHEWEAVER_TABLES,
  'cp-tree': CP_TREE_TABLES,
  ragboost: RAGBOOST_TABLES,
} as const satisfies Record<string, readonly PaperTable[]>;

/** A paper whose tables can be reproduced. */
export type PaperName = keyof typeof REPRODUCTIONS;

export const PAPERS = Object.keys(REPRODUCTIONS) as readonly PaperName[];

/**
 * Seeds of workloads that are drawn, unless others are asked for: none of them was used to choose anything. Ten for
 * RAGCache, for its differences are small; five for the others.
 */
export function seedsOf(paper: PaperName): readonly number[] {
  return Array.from({ length: paper === 'ragcache' ? 10 : 5 }, (_, place) => 101 + place);
}

/** Names of a paper's tables and figures that have a counterpart, for instance `table-3` or `figure-7`. */
export function tablesOf(paper: PaperName): readonly string[] {
  return REPRODUCTIONS[paper].map(({ name }) => name);
}

/**
 * The tables of a paper beside ours, or the one of that name. Error: `WARMPATH_INVALID_REQUEST` at `table` for a name
 * that the paper does not have. Cost: seconds to a minute a table, by the number of seeds.
 */
export function reproduce(
  paper: PaperName,
  table?: string,
  options: Partial<ReproduceOptions> = {},
): ReproducedTable[] {
  const settings = { seeds: seedsOf(paper), ...options };
  const tables: readonly PaperTable[] = REPRODUCTIONS[paper];
  if (table === undefined) return tables.map(({ reproduce: run }) => run(settings));
  const found = tables.find(({ name }) => name === table);
  if (found !== undefined) return [found.reproduce(settings)];
  const names = tablesOf(paper);
  const nearest = nearestName(table, names);
  const advice = nearest === undefined ? `use one of ${names.join(', ')}` : `did you mean \`${nearest}\`?`;
  const detail = `${paper} has no such table here; ${advice}`;
  throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'table', detail });
}
