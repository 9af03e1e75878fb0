import { WarmpathError } from '@warmpath/core';
import { checkSearch, type SearchOptions } from '../staged-retriever.js';
import { ExactSearch } from './exact-search.js';
import type { HnswState } from './hnsw-graph.js';
import { HnswSearch, type HnswSearchOptions } from './hnsw-search.js';
import { type IvfOptions, IvfSearch, type IvfState } from './ivf-search.js';
import type { RowSearch } from './row-search.js';
import type { StoredRows, VectorEntry } from './stored-rows.js';
import { METRICS, type Metric, type VectorTable } from './vector-table.js';

export type VectorIndexKind = 'exact' | 'ivf' | 'hnsw';
const VECTOR_INDEX_KINDS: readonly VectorIndexKind[] = ['exact', 'ivf', 'hnsw'];

export interface VectorIndexOptions {
  readonly dimension: number;
  /** `cosine` by default. */
  readonly metric?: Metric;
  /** `exact` up to 10,000 vectors and `hnsw` above by default. */
  readonly kind?: VectorIndexKind;
  /** The name of the embedder that the vectors come from; a retriever refuses to search with another one. */
  readonly embedder?: string;
  readonly hnsw?: HnswSearchOptions;
  readonly ivf?: IvfOptions;
}

/** One step of a search: the ids of the best vectors so far, best first. */
export interface VectorStage {
  readonly ids: readonly string[];
  /** Cosine, dot product or negative squared distance: higher is closer. */
  readonly scores: readonly number[];
  readonly index: number;
  readonly final: boolean;
}

/** What makes an index besides its rows and ids. */
export interface VectorIndexState {
  readonly kind: VectorIndexKind;
  readonly hnsw?: HnswState;
  readonly ivf?: IvfState;
}

/** Milliseconds that a search or an addition may keep the event loop from everything else. */
const TURN_MS = 2;
/** Steps between two looks at the clock. */
const STEPS = 4;
/** Vectors up to which scanning them all is right. */
const EXACT_UP_TO = 10_000;

/** The kind that suits a number of vectors. */
export function vectorIndexKind(count: number): VectorIndexKind {
  return count <= EXACT_UP_TO ? 'exact' : 'hnsw';
}

/**
 * Vectors by id, searched exactly or through an index, in stages. Build it with `buildVectorIndex`, which computes in a
 * thread of its own; a few vectors are then added and deleted in place. One process writes it.
 *
 * Deleted vectors stay in memory and on the way of searches until the index is built anew; `deletedCount` says when
 * that pays.
 */
export class VectorIndex {
  readonly kind: VectorIndexKind;
  readonly options: VectorIndexOptions;
  readonly #rows: StoredRows;
  readonly #table: VectorTable;
  readonly #search: RowSearch;

  /** For `buildVectorIndex` and `readVectorIndex`. */
  constructor(options: VectorIndexOptions, rows: StoredRows, state: VectorIndexState) {
    this.kind = state.kind;
    this.options = options;
    this.#rows = rows;
    this.#table = rows.table;
    this.#search = rowSearch(rows.table, options, state);
  }

  get dimension(): number {
    return this.#table.dimension;
  }

  get metric(): Metric {
    return this.#table.metric;
  }

  /** Vectors that can be found. */
  get size(): number {
    return this.#rows.size;
  }

  /** Vectors that were deleted or replaced and still take room. */
  get deletedCount(): number {
    return this.#rows.count;
  }

  has(id: string): boolean {
    return this.#rows.rowOf(id) !== undefined;
  }

  /** The vector of an id as it is stored: of length one under `cosine`. */
  vector(id: string): Float32Array | undefined {
    const row = this.#rows.rowOf(id);
    return row === undefined ? undefined : this.#table.row(row).slice(0, this.dimension);
  }

  /**
   * Adds vectors; one whose id is there already takes its place. The event loop goes on meanwhile.
   * @throws WARMPATH_INVALID_VECTOR at the first vector that cannot be stored; those before it are in.
   */
  async add(entries: Iterable<VectorEntry>, signal?: AbortSignal): Promise<void> {
    const turn = new Turn();
    let position = 0;
    for (const entry of entries) {
      this.#rows.push(entry, `vectors[${position++}]`);
      this.#search.add();
      if (turn.isOver) {
        await turn.next();
        signal?.throwIfAborted();
      }
    }
  }

  /** Deletes what is there of these ids; returns how many that were. */
  delete(ids: Iterable<string>): number {
    let count = 0;
    for (const id of ids) if (this.#rows.delete(id)) count++;
    return count;
  }

  /**
   * The closest vectors, after each stage. Stages are the same for the same vector; between them, and within long ones,
   * other work has its turn.
   * @throws WARMPATH_INVALID_VECTOR, WARMPATH_INVALID_REQUEST for `k`, the signal's reason.
   */
  async *search(vector: ArrayLike<number>, options: SearchOptions): AsyncGenerator<VectorStage, void> {
    checkSearch(options);
    const { k, signal } = options;
    const query = this.#table.prepare(vector, 'query.vector');
    if (this.size === 0) {
      yield { ids: [], scores: [], index: 0, final: true };
      return;
    }
    const turn = new Turn();
    let index = 0;
    for (const ranked of this.#search.stages(query, k, this.#rows)) {
      if (ranked !== undefined) {
        const ids = ranked.rows.map((row) => this.#rows.ids[row]!);
        yield { ids, scores: ranked.scores, index: index++, final: ranked.final };
        if (ranked.final) return;
        signal.throwIfAborted();
      }
      if (turn.isOver) {
        await turn.next();
        signal.throwIfAborted();
      }
    }
  }

  /** What can be found, as stored, in the order in which it came; for building anew. */
  entries(): Generator<VectorEntry, void> {
    return this.#rows.entries();
  }

  /** All that a file of this index holds, as it is now: views and no copies. */
  get contents(): { readonly rows: StoredRows; readonly state: VectorIndexState } {
    const { kind } = this;
    let state: VectorIndexState = { kind };
    if (this.#search instanceof HnswSearch) state = { kind, hnsw: this.#search.graph.state };
    else if (this.#search instanceof IvfSearch) state = { kind, ivf: this.#search.state };
    return { rows: this.#rows, state };
  }
}

/** Checks what a caller asks of an index. @throws WARMPATH_INVALID_REQUEST with the path of the option. */
export function checkVectorIndexOptions({ metric, kind, hnsw, ivf }: VectorIndexOptions): void {
  const isOneOf = (path: string, value: string | undefined, values: readonly string[]) => {
    if (value !== undefined && !values.includes(value)) throw invalidOption(path, value, `one of ${values.join(', ')}`);
  };
  const isWithin = (path: string, value: number | undefined, least: number, most: number) => {
    if (value !== undefined && !(Number.isInteger(value) && value >= least && value <= most)) {
      throw invalidOption(path, value, `a whole number from ${least} to ${most}`);
    }
  };
  isOneOf('metric', metric, METRICS);
  isOneOf('kind', kind, VECTOR_INDEX_KINDS);
  isWithin('hnsw.links', hnsw?.links, 2, 64);
  isWithin('hnsw.buildBreadth', hnsw?.buildBreadth, 1, 4096);
  isWithin('hnsw.breadth', hnsw?.breadth, 1, 65_536);
  isWithin('hnsw.stages', hnsw?.stages, 1, 32);
  isWithin('hnsw.seed', hnsw?.seed, 0, 0xffff_ffff);
  isWithin('ivf.lists', ivf?.lists, 1, 65_536);
  isWithin('ivf.probes', ivf?.probes, 1, 65_536);
  isWithin('ivf.seed', ivf?.seed, 0, 0xffff_ffff);
}

function invalidOption(path: string, value: unknown, wanted: string): WarmpathError {
  return new WarmpathError('WARMPATH_INVALID_REQUEST', { path, detail: `${path} is ${wanted}, and not ${value}.` });
}

function rowSearch(table: VectorTable, options: VectorIndexOptions, { kind, hnsw, ivf }: VectorIndexState): RowSearch {
  if (kind === 'hnsw') return new HnswSearch(table, options.hnsw, hnsw);
  if (kind === 'ivf' && ivf !== undefined) return new IvfSearch(table, options.ivf ?? {}, ivf);
  return new ExactSearch(table);
}

/** The share of the event loop that one piece of work takes before others have their turn. */
export class Turn {
  #began = performance.now();
  #steps = 0;

  /** Whether it is time to `await next()`. Looks at the clock at every fourth call. */
  get isOver(): boolean {
    return ++this.#steps % STEPS === 0 && performance.now() - this.#began >= TURN_MS;
  }

  async next(): Promise<void> {
    await new Promise<void>((resolve) => setImmediate(resolve));
    this.#began = performance.now();
  }
}
