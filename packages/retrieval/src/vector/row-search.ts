import type { CandidatePool } from './candidate-pool.js';
import type { PreparedVector, VectorTable } from './vector-table.js';

/** The best rows so far, best first, deleted ones left out. */
export interface RankedRows {
  readonly rows: readonly number[];
  readonly scores: readonly number[];
  readonly final: boolean;
}

/** Which rows of a table are deleted. */
export interface DeletedRows {
  readonly count: number;
  has(row: number): boolean;
}

/**
 * A way to search the rows of a table. `stages` yields the best rows after each stage, and `undefined` where it may
 * pause; between two yields lie microseconds. The last yield, and only it, is final.
 */
export interface RowSearch {
  stages(query: PreparedVector, k: number, deleted: DeletedRows): Generator<RankedRows | undefined, void>;
  /** Takes the table's next row in. */
  add(): void;
}

/** The best `k` of a pool that are not deleted. */
export function rankedRows(pool: CandidatePool, k: number, deleted: DeletedRows, final: boolean): RankedRows {
  const rows: number[] = [];
  const scores: number[] = [];
  for (let position = 0; position < pool.size && rows.length < k; position++) {
    const row = pool.row(position);
    if (deleted.count > 0 && deleted.has(row)) continue;
    rows.push(row);
    scores.push(pool.scores[position]!);
  }
  return { rows, scores, final };
}

/** Scores up to 1,024 rows, `rowAt(0)` to `rowAt(count - 1)`, and puts the best that are not deleted into a pool. */
export function scanBatch(
  table: VectorTable,
  pool: CandidatePool,
  deleted: DeletedRows,
  count: number,
  rowAt: (position: number) => number,
): void {
  const { ids, scores } = table;
  let live = 0;
  for (let i = 0; i < count; i++) {
    const row = rowAt(i);
    if (deleted.count === 0 || !deleted.has(row)) ids[live++] = row;
  }
  table.score(live);
  let { threshold } = pool;
  for (let i = 0; i < live; i++) {
    const score = scores[i]!;
    if (score <= threshold) continue;
    pool.add(ids[i]!, score);
    threshold = pool.threshold;
  }
}
