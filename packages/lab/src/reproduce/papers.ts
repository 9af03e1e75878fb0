import { nearestName, WarmpathError } from '@warmpath/core';
import { CACHEWEAVER_TABLES } from './cacheweaver.js';
import { CP_TREE_TABLES } from './cp-tree.js';
import { RAGBOOST_TABLES } from './ragboost.js';
import { RAGCACHE_PLUS_PLUS_TABLES } from './ragcache-plus-plus.js';
import { BATCH_TABLES } from './ragcache-plus-plus-batches.js';
import type { PaperTable, ReproducedTable } from './reproduction.js';

const REPRODUCTIONS = {
  'ragcache++': [...RAGCACHE_PLUS_PLUS_TABLES, ...BATCH_TABLES],
  cacheweaver: CACHEWEAVER_TABLES,
  'cp-tree': CP_TREE_TABLES,
  ragboost: RAGBOOST_TABLES,
} as const satisfies Record<string, readonly PaperTable[]>;

/** A paper whose tables can be reproduced. */
export type PaperName = keyof typeof REPRODUCTIONS;

export const PAPERS = Object.keys(REPRODUCTIONS) as readonly PaperName[];

/** Names of a paper's tables and figures that have a counterpart, for instance `table-3` or `figure-7`. */
export function tablesOf(paper: PaperName): readonly string[] {
  return REPRODUCTIONS[paper].map(({ name }) => name);
}

/**
 * The tables of a paper beside ours, or the one of that name. Error: `WARMPATH_INVALID_REQUEST` at `table` for a name that the paper
 * does not have. Cost: seconds.
 */
export function reproduce(paper: PaperName, table?: string): ReproducedTable[] {
  const tables: readonly PaperTable[] = REPRODUCTIONS[paper];
  if (table === undefined) return tables.map(({ reproduce: run }) => run());
  const found = tables.find(({ name }) => name === table);
  if (found !== undefined) return [found.reproduce()];
  const names = tablesOf(paper);
  const nearest = nearestName(table, names);
  const advice = nearest === undefined ? `use one of ${names.join(', ')}` : `did you mean \`${nearest}\`?`;
  const detail = `${paper} has no such table here; ${advice}`;
  throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'table', detail });
}
