import { HnswGraph, type HnswOptions, type HnswState } from './hnsw-graph.js';
import { type DeletedRows, type RankedRows, type RowSearch, rankedRows } from './row-search.js';
import type { PreparedVector, VectorTable } from './vector-table.js';

export interface HnswSearchOptions extends HnswOptions {
  /** Candidates that a search keeps in view; more finds more and takes longer. 96 by default, at least `k`. */
  readonly breadth?: number;
  /** Stages of a search, 1 to 32; 4 by default. */
  readonly stages?: number;
}

/** Expansions between two places where a search may pause; each scores some 20 rows. */
const UNPAUSED = 64;

/**
 * Searches a graph in slices, with the best rows after each. A slice is a number of expansions and not of milliseconds,
 * so that the same question has the same stages; a search takes about as many as it keeps candidates in view.
 */
export class HnswSearch implements RowSearch {
  readonly #table: VectorTable;
  readonly graph: HnswGraph;
  readonly #breadth: number;
  readonly #stages: number;

  constructor(table: VectorTable, options: HnswSearchOptions = {}, state?: HnswState) {
    this.#table = table;
    this.graph = new HnswGraph(table, options, state);
    this.#breadth = options.breadth ?? 96;
    this.#stages = options.stages ?? 4;
  }

  add(): void {
    this.graph.add();
  }

  *stages(query: PreparedVector, k: number, deleted: DeletedRows): Generator<RankedRows | undefined, void> {
    const live = this.#table.count - deleted.count;
    let breadth = Math.max(this.#breadth, k);
    let stage = 1;
    for (;;) {
      const search = this.graph.search(query, breadth);
      try {
        const slice = Math.ceil(breadth / this.#stages);
        let isOver = false;
        while (!isOver) {
          for (let left = slice; left > 0 && !isOver; left -= UNPAUSED) {
            isOver = search.advance(Math.min(left, UNPAUSED));
            if (!isOver) yield undefined;
          }
          if (!isOver && stage < this.#stages) {
            yield rankedRows(search.pool, k, deleted, false);
            stage++;
          }
        }
        const ranked = rankedRows(search.pool, k, deleted, true);
        // Deleted rows still lead to others, but may fill the view: then it has to be a wider one.
        if (ranked.rows.length >= Math.min(k, live) || search.pool.size < breadth) {
          yield ranked;
          return;
        }
      } finally {
        search.end();
      }
      breadth = Math.min(4 * breadth, this.#table.count);
    }
  }
}
