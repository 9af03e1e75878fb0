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

/** Longest vector. */
export const MAX_DIMENSIONS = 4096;
/** Most rows that are scored in one call. */
export const BATCH = 1024;

const QUERY_BYTES = 4 * MAX_DIMENSIONS;
const IDS_AT = QUERY_BYTES;
const SCORES_AT = IDS_AT + 4 * BATCH;
const ROWS_AT = Math.ceil((SCORES_AT + 4 * BATCH) / PAGE) * PAGE;
/** A table grows by an eighth of itself, and by this at least. */
const MIN_GROWTH_PAGES = 16;
/** A vector that is shorter has no direction: its squares vanish in a float. */
const MIN_LENGTH = 1e-18;

/** Rows of a table at most: what fits into 4 GiB, none where a vector is too long. */
export function mostRows(dimension: number): number {
  if (dimension > MAX_DIMENSIONS) return 0;
  return Math.floor((MAX_PAGES * PAGE - ROWS_AT) / (4 * paddedLength(dimension)));
}

function paddedLength(dimension: number): number {
  return Math.ceil(dimension / KERNEL_WIDTH) * KERNEL_WIDTH;
}

/** Whether a vector has no direction, so that nothing can be compared with it. */
export function isZero(vector: ArrayLike<number>): boolean {
  return Math.sqrt(sumOfSquares(vector)) < MIN_LENGTH;
}

function sumOfSquares(vector: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < vector.length; i++) sum += vector[i]! * vector[i]!;
  return sum;
}

/** A vector of length one, padded for the kernel. */
export type PreparedVector = Float32Array;

/**
 * Rows of vectors in one WebAssembly memory, compared by cosine in batches. Row numbers are written to `ids`, then
 * `score` fills `scores`: all searches share these, so nothing may be awaited in between. At most 4 GiB.
 */
export class VectorTable {
  readonly dimension: number;
  /** Row numbers of the next `score`. */
  ids!: Int32Array;
  /** What the last `score` found. */
  scores!: Float32Array;
  readonly #padded: number;
  readonly #memory: KernelMemory = createKernelMemory(ROWS_AT / PAGE);
  readonly #kernel: Kernel = kernelOver(this.#memory);
  #floats!: Float32Array;
  #count = 0;

  constructor(dimension: number) {
    if (!Number.isInteger(dimension) || dimension < 1 || dimension > MAX_DIMENSIONS) {
      const detail = `a vector has 1 to ${MAX_DIMENSIONS} dimensions, and not ${dimension}.`;
      throw new WarmpathError('WARMPATH_INVALID_VECTOR', { path: 'dimension', detail });
    }
    this.dimension = dimension;
    this.#padded = paddedLength(dimension);
    this.#view();
  }

  /** Rows, deleted ones included. */
  get count(): number {
    return this.#count;
  }

  /**
   * Scales a vector to length one.
   * @throws WARMPATH_INVALID_VECTOR for a wrong dimension, for values that are no numbers, and for a vector of zeros.
   */
  prepare(vector: ArrayLike<number>, path: string): PreparedVector {
    const prepared = new Float32Array(this.#padded);
    this.#write(vector, path, prepared);
    return prepared;
  }

  /** Adds a row and returns its number. @throws WARMPATH_INVALID_VECTOR as `prepare`, and when the table is full. */
  push(vector: ArrayLike<number>, path: string): number {
    this.reserve(this.#count + 1);
    this.#write(vector, path, this.row(this.#count));
    return this.#count++;
  }

  /** Makes room. @throws WARMPATH_INVALID_VECTOR where the rows would not fit into 4 GiB. */
  reserve(rows: number): void {
    const needed = Math.ceil((ROWS_AT + 4 * this.#padded * rows) / PAGE);
    const pages = this.#memory.buffer.byteLength / PAGE;
    if (needed <= pages) return;
    if (needed > MAX_PAGES) {
      const most = mostRows(this.dimension).toLocaleString('en');
      const detail = `an index holds at most ${most} vectors of ${this.dimension} dimensions (4 GiB); use a vector database for more.`;
      throw new WarmpathError('WARMPATH_INVALID_VECTOR', { detail });
    }
    const wanted = pages + Math.max(MIN_GROWTH_PAGES, pages >> 3);
    this.#memory.grow(Math.min(MAX_PAGES, Math.max(needed, wanted)) - pages);
    this.#view();
  }

  /** A row as it is stored: of length one, padded with zeros. A view, valid until the next row is added. */
  row(row: number): PreparedVector {
    const at = ROWS_AT / 4 + row * this.#padded;
    return this.#floats.subarray(at, at + this.#padded);
  }

  /** Scores the first `count` rows of `ids`: their cosine with the query. */
  score(query: PreparedVector, count: number): void {
    this.#floats.set(query, 0);
    this.#kernel.dot(0, ROWS_AT, 4 * this.#padded, IDS_AT, count, SCORES_AT);
  }

  #view(): void {
    const { buffer } = this.#memory;
    this.#floats = new Float32Array(buffer);
    this.ids = new Int32Array(buffer, IDS_AT, BATCH);
    this.scores = new Float32Array(buffer, SCORES_AT, BATCH);
  }

  #write(vector: ArrayLike<number>, path: string, into: Float32Array): void {
    const refuse = (detail: string, place = '') =>
      new WarmpathError('WARMPATH_INVALID_VECTOR', { path: `${path}${place}`, detail });
    const { dimension } = this;
    if (vector.length !== dimension) {
      throw refuse(`the vector has ${vector.length} dimensions where ${dimension} are expected.`);
    }
    const squares = sumOfSquares(vector);
    // Squares of numbers that a float holds may not fit one; their sum is what a score is made of.
    if (!Number.isFinite(Math.fround(squares))) {
      const at = Math.max(
        0,
        Array.from(vector).findIndex((value) => !(Math.abs(value) < 1e19)),
      );
      throw refuse('a vector has finite numbers only, whose squares can be added.', `[${at}]`);
    }
    if (isZero(vector)) throw refuse('a vector of zeros has no direction, so it has no cosine with any other.');
    for (let i = 0; i < dimension; i++) into[i] = vector[i]! / Math.sqrt(squares);
  }
}
