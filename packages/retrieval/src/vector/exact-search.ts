import { CandidatePool } from './candidate-pool.js';
import { type DeletedRows, type RankedRows, type RowSearch, rankedRows, scanBatch } from './row-search.js';
import { BATCH, type PreparedVector, type VectorTable } from './vector-table.js';

/** Scores every row: the reference of the other two, and the right choice for some ten thousand rows. One stage. */
export class ExactSearch implements RowSearch {
  readonly #table: VectorTable;

  constructor(table: VectorTable) {
    this.#table = table;
  }

  add(): void {}

  *stages(query: PreparedVector, k: number, deleted: DeletedRows): Generator<RankedRows | undefined, void> {
    const table = this.#table;
    const pool = new CandidatePool(k);
    for (let from = 0; from < table.count; from += BATCH) {
      table.useQuery(query);
      scanBatch(table, pool, deleted, Math.min(BATCH, table.count - from), (position) => from + position);
      yield undefined;
    }
    yield rankedRows(pool, k, deleted, true);
  }
}
