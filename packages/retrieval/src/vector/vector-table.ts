import { WarmpathError } from '@warmpath/core';
import {
  createKernelMemory,
  KERNEL_WIDTH,
  type Kernel,
  type KernelMemory,
  kernelOver,
  MAX_PAGES,
  PAGE,
} from './kernel.js';

/** How two vectors are compared. `cosine` keeps rows at length one; `l2` is the squared distance, negated. */
export type Metric = 'cosine' | 'dot' | 'l2';
export const METRICS: readonly Metric[] = ['cosine', 'dot', 'l2'];

/** Longest vector. */
export const MAX_DIMENSIONS = 4096;
/** Most rows that are scored in one call. */
export const BATCH = 1024;

/** One for the thread that owns the table, one for the thread that builds its index. */
const SCRATCH_SLOTS = 2;
const QUERY_BYTES = 4 * MAX_DIMENSIONS;
const SLOT_BYTES = QUERY_BYTES + 4 * BATCH + 4 * BATCH;
const ROWS_AT = Math.ceil((SCRATCH_SLOTS * SLOT_BYTES) / PAGE) * PAGE;
/** A table grows by an eighth of itself, and by this at least. */
const MIN_GROWTH_PAGES = 16;

/** Rows of a table at most: what fits into 4 GiB, none where a vector is too long. */
export function mostRows(dimension: number): number {
  if (dimension > MAX_DIMENSIONS) return 0;
  return Math.floor((MAX_PAGES * PAGE - ROWS_AT) / (4 * paddedLength(dimension)));
}

function paddedLength(dimension: number): number {
  return Math.ceil(dimension / KERNEL_WIDTH) * KERNEL_WIDTH;
}

/** A vector that was checked, normalised where the metric asks for it, and padded. */
export type PreparedVector = Float32Array;

/** What a thread needs to work on another thread's table. */
export interface SharedTable {
  readonly memory: KernelMemory;
  readonly dimension: number;
  readonly metric: Metric;
  readonly count: number;
}

/**
 * Rows of vectors in one WebAssembly memory, scored in batches by the kernel.
 *
 * A query is put in place (`useQuery`, `useRow`), row numbers are written to `ids`, and `score` fills `scores`. These
 * places are shared by all searches of a thread: nothing may be awaited in between. Up to 4 GiB, that is 2.7 million
 * rows of 384 floats.
 */
export class VectorTable {
  readonly dimension: number;
  readonly metric: Metric;
  readonly memory: KernelMemory;
  /** Row numbers of the next `score`. */
  ids!: Int32Array;
  /** What the last `score` found; higher is closer. */
  scores!: Float32Array;
  readonly #padded: number;
  readonly #kernel: Kernel;
  readonly #queryAt: number;
  readonly #idsAt: number;
  readonly #scoresAt: number;
  #floats!: Float32Array;
  #count: number;
  #used: number;

  constructor(dimension: number, metric: Metric, shared?: SharedTable) {
    if (!Number.isInteger(dimension) || dimension < 1 || dimension > MAX_DIMENSIONS) {
      throw new WarmpathError('WARMPATH_INVALID_VECTOR', {
        path: 'dimension',
        detail: `a vector has 1 to ${MAX_DIMENSIONS} dimensions, and not ${dimension}.`,
      });
    }
    this.dimension = dimension;
    this.metric = metric;
    this.#padded = paddedLength(dimension);
    this.memory = shared?.memory ?? createKernelMemory(ROWS_AT / PAGE);
    this.#kernel = kernelOver(this.memory);
    this.#count = shared?.count ?? 0;
    this.#queryAt = shared === undefined ? 0 : SLOT_BYTES;
    this.#idsAt = this.#queryAt + QUERY_BYTES;
    this.#scoresAt = this.#idsAt + 4 * BATCH;
    this.#used = this.#queryAt;
    this.#view();
  }

  /** Rows, deleted ones included. */
  get count(): number {
    return this.#count;
  }

  /** For a thread that scores rows of this table and adds none. */
  get shared(): SharedTable {
    return { memory: this.memory, dimension: this.dimension, metric: this.metric, count: this.#count };
  }

  /** Floats of a row, with its padding. */
  get rowFloats(): number {
    return this.#padded;
  }

  /** Bytes of the memory that hold rows, or will. */
  get bytes(): number {
    return this.memory.buffer.byteLength;
  }

  /**
   * Checks a vector, and normalises it for `cosine`.
   * @throws WARMPATH_INVALID_VECTOR for a wrong dimension, for values that are no numbers, and for a vector without a
   *   direction under `cosine`.
   */
  prepare(vector: ArrayLike<number>, path: string): PreparedVector {
    const prepared = new Float32Array(this.#padded);
    this.#write(vector, path, prepared, 0);
    return prepared;
  }

  /** Adds a row and returns its number. @throws WARMPATH_INVALID_VECTOR as `prepare`, and when the table is full. */
  push(vector: ArrayLike<number>, path: string): number {
    this.reserve(this.#count + 1);
    this.#write(vector, path, this.#floats, this.#rowAt(this.#count));
    return this.#count++;
  }

  /** Makes room. @throws WARMPATH_INVALID_VECTOR where the rows would not fit into 4 GiB. */
  reserve(rows: number): void {
    const needed = Math.ceil((ROWS_AT + 4 * this.#padded * rows) / PAGE);
    const pages = this.memory.buffer.byteLength / PAGE;
    if (needed <= pages) return;
    if (needed > MAX_PAGES) {
      const most = mostRows(this.dimension);
      throw new WarmpathError('WARMPATH_INVALID_VECTOR', {
        detail: `an index holds at most ${most.toLocaleString('en')} vectors of ${this.dimension} dimensions (4 GiB); use a vector database for more.`,
      });
    }
    const wanted = pages + Math.max(MIN_GROWTH_PAGES, pages >> 3);
    this.memory.grow(Math.min(MAX_PAGES, Math.max(needed, wanted)) - pages);
    this.#view();
  }

  /** A row as it is stored: normalised for `cosine`, padded with zeros. A view, valid until the next row is added. */
  row(row: number): Float32Array {
    const at = this.#rowAt(row);
    return this.#floats.subarray(at, at + this.#padded);
  }

  /** Takes `rows` rows as `row` gives them, one behind the other, without a check: they come from a file of ours. */
  append(floats: Float32Array): void {
    const rows = floats.length / this.#padded;
    this.reserve(this.#count + rows);
    this.#floats.set(floats, this.#rowAt(this.#count));
    this.#count += rows;
  }

  useQuery(query: PreparedVector): void {
    this.#floats.set(query, this.#queryAt / 4);
    this.#used = this.#queryAt;
  }

  /** Rows are compared with a row of the table, without a copy. */
  useRow(row: number): void {
    this.#used = 4 * this.#rowAt(row);
  }

  /** Scores the first `count` rows of `ids`. `metric` where it is not the table's own. */
  score(count: number, metric: Metric = this.metric): void {
    const score = metric === 'l2' ? this.#kernel.l2 : this.#kernel.dot;
    score(this.#used, ROWS_AT, 4 * this.#padded, this.#idsAt, count, this.#scoresAt);
  }

  #rowAt(row: number): number {
    return ROWS_AT / 4 + row * this.#padded;
  }

  #view(): void {
    const { buffer } = this.memory;
    this.#floats = new Float32Array(buffer);
    this.ids = new Int32Array(buffer, this.#idsAt, BATCH);
    this.scores = new Float32Array(buffer, this.#scoresAt, BATCH);
  }

  #write(vector: ArrayLike<number>, path: string, into: Float32Array, at: number): void {
    const { dimension } = this;
    if (vector.length !== dimension) {
      throw new WarmpathError('WARMPATH_INVALID_VECTOR', {
        path,
        detail: `the vector has ${vector.length} dimensions where ${dimension} are expected.`,
      });
    }
    let squares = 0;
    for (let i = 0; i < dimension; i++) {
      const value = vector[i]!;
      into[at + i] = value;
      squares += value * value;
    }
    // Squares of numbers that a float holds may not fit one; their sum is what a score is made of.
    if (!Number.isFinite(Math.fround(squares))) {
      throw new WarmpathError('WARMPATH_INVALID_VECTOR', {
        path: `${path}[${firstUnusable(vector)}]`,
        detail: 'a vector has finite numbers only, whose squares can be added.',
      });
    }
    if (this.metric !== 'cosine') return;
    // What is too short for a float's squares has no direction that is worth anything.
    const length = Math.sqrt(squares);
    if (length < 1e-18) {
      throw new WarmpathError('WARMPATH_INVALID_VECTOR', {
        path,
        detail: 'a vector of zeros has no direction, so it has no cosine with any other.',
      });
    }
    const scale = 1 / length;
    for (let i = 0; i < dimension; i++) into[at + i] = vector[i]! * scale;
  }
}

function firstUnusable(vector: ArrayLike<number>): number {
  for (let i = 0; i < vector.length; i++) {
    if (!(Math.abs(vector[i]!) < 1e19)) return i;
  }
  return 0;
}
