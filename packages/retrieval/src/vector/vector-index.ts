import { Turn } from '../event-loop-turn.js';
import { checkSearch, type SearchOptions } from '../staged-retriever.js';
import { RowLists } from './row-lists.js';
import { BATCH, VectorTable } from './vector-table.js';

/** A vector and what it is found as. */
export interface VectorEntry {
  readonly id: string;
  readonly vector: ArrayLike<number>;
}

export interface VectorIndexOptions {
  readonly dimension: number;
  /** The name of the embedder that the vectors come from; a retriever refuses to search with another one. */
  readonly embedder?: string;
  /** Vectors from which a search has stages; 10,000 by default. */
  readonly stagesFrom?: number;
}

/** One step of a search: the ids of the best vectors so far, best first. */
export interface VectorStage {
  readonly ids: readonly string[];
  /** Cosines: higher is closer. */
  readonly scores: readonly number[];
  readonly index: number;
  readonly final: boolean;
}

/** Up to here, all are read in some milliseconds. */
const STAGES_FROM = 10_000;
/** Shares of the lists after which a search in stages says what it has found. */
const STAGES = [1 / 16, 1 / 4, 1];

/**
 * Vectors by id, searched exactly by cosine. A search among many has stages: it reads vectors close to the question
 * first, and all of them for its final stage. One process writes it.
 *
 * Vectors that were deleted or replaced stay in memory; `deletedCount` says how many.
 */
export class VectorIndex {
  readonly options: VectorIndexOptions;
  readonly #table: VectorTable;
  readonly #lists: RowLists;
  /** The id of each row, deleted ones included. */
  readonly #ids: string[] = [];
  readonly #rowOf = new Map<string, number>();
  readonly #deleted = new Set<number>();

  /** @throws WARMPATH_INVALID_VECTOR for a dimension that cannot be. */
  constructor(options: VectorIndexOptions) {
    this.options = options;
    this.#table = new VectorTable(options.dimension);
    this.#lists = new RowLists(this.#table, options.stagesFrom ?? STAGES_FROM);
  }

  /** Vectors that can be found. */
  get size(): number {
    return this.#rowOf.size;
  }

  get deletedCount(): number {
    return this.#deleted.size;
  }

  has(id: string): boolean {
    return this.#rowOf.has(id);
  }

  /**
   * Adds vectors; one whose id is there already takes its place. The event loop goes on meanwhile.
   * @throws WARMPATH_INVALID_VECTOR at the first vector that cannot be stored; those before it are in.
   */
  async add(entries: Iterable<VectorEntry> | AsyncIterable<VectorEntry>, signal?: AbortSignal): Promise<void> {
    const turn = new Turn();
    let position = 0;
    for await (const { id, vector } of entries) {
      const row = this.#table.push(vector, `vectors[${position++}]`);
      this.#ids.push(id);
      this.delete([id]);
      this.#rowOf.set(id, row);
      this.#lists.add(row);
      if (turn.isOver) await turn.next();
      signal?.throwIfAborted();
    }
    await this.#lists.divide();
  }

  /** Deletes what is there of these ids; returns how many that were. */
  delete(ids: Iterable<string>): number {
    let count = 0;
    for (const id of ids) {
      const row = this.#rowOf.get(id);
      if (row === undefined) continue;
      this.#rowOf.delete(id);
      this.#deleted.add(row);
      count++;
    }
    return count;
  }

  /**
   * The closest vectors, after each stage. Other work has its turn within and between stages.
   * @param accepts Which vectors may be found.
   * @throws WARMPATH_INVALID_VECTOR, WARMPATH_INVALID_REQUEST for `k`, the signal's reason.
   */
  async *search(
    vector: ArrayLike<number>,
    options: SearchOptions,
    accepts?: (id: string) => boolean,
  ): AsyncGenerator<VectorStage, void> {
    checkSearch(options);
    const { k, signal } = options;
    const table = this.#table;
    const query = table.prepare(vector, 'query.vector');
    const best = new BestRows(k);
    const mayBeFound = accepts && ((row: number) => accepts(this.#ids[row]!));
    const turn = new Turn();
    const lists = this.#lists.closest(query);
    const ends = lists.length === 1 ? [1] : STAGES.map((share) => Math.ceil(share * lists.length));
    let read = 0;
    for (const [index, end] of ends.entries()) {
      for (; read < end; read++) {
        const list = lists[read]!;
        for (let from = 0; from < list.length; from += BATCH) {
          this.#scoreBatch(query, list.slice(from, from + BATCH), best, mayBeFound);
          if (!turn.isOver) continue;
          await turn.next();
          signal.throwIfAborted();
        }
      }
      // Rows that were deleted while the search went on are left out.
      const isFound = (row: number | undefined) => !this.#deleted.has(row!);
      const ids = best.rows.filter(isFound).map((row) => this.#ids[row]!);
      const scores = best.scores.filter((_, i) => isFound(best.rows[i]));
      yield { ids, scores, index, final: index === ends.length - 1 };
      signal.throwIfAborted();
    }
  }

  #scoreBatch(
    query: Float32Array,
    rows: readonly number[],
    best: BestRows,
    mayBeFound: ((row: number) => boolean) | undefined,
  ): void {
    const { ids, scores } = this.#table;
    let count = 0;
    for (const row of rows) {
      if (!this.#deleted.has(row) && mayBeFound?.(row) !== false) ids[count++] = row;
    }
    this.#table.score(query, count);
    for (let i = 0; i < count; i++) if (scores[i]! >= best.threshold) best.add(ids[i]!, scores[i]!);
  }
}

/** The best `k` rows that a search has seen, best first; of equal scores the earlier row. */
class BestRows {
  readonly rows: number[] = [];
  readonly scores: number[] = [];
  /** The score below which nothing is taken. */
  threshold = Number.NEGATIVE_INFINITY;
  readonly #k: number;

  constructor(k: number) {
    this.#k = k;
  }

  /** O(log k + places moved). */
  add(row: number, score: number): void {
    const { rows, scores } = this;
    let [low, high] = [0, rows.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      const isBefore = scores[middle]! > score || (scores[middle] === score && rows[middle]! < row);
      if (isBefore) low = middle + 1;
      else high = middle;
    }
    rows.splice(low, 0, row);
    scores.splice(low, 0, score);
    if (rows.length > this.#k) {
      rows.pop();
      scores.pop();
    }
    if (rows.length === this.#k) this.threshold = scores[this.#k - 1]!;
  }
}
