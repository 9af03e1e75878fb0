import { CandidatePool } from './candidate-pool.js';
import { type DeletedRows, type RankedRows, type RowSearch, rankedRows, scanBatch } from './row-search.js';
import { BATCH, type PreparedVector, VectorTable } from './vector-table.js';

export interface IvfOptions {
  /** Lists that the rows are divided into; the square root of their number by default. */
  readonly lists?: number;
  /** Lists that a search reads; a sixteenth of them by default, 16 at least. */
  readonly probes?: number;
  /** Decides which rows the lists begin with. */
  readonly seed?: number;
}

/** Lists as they are stored and as they travel between threads. */
export interface IvfState {
  /** Padded rows, one behind the other. */
  readonly centroids: Float32Array<ArrayBuffer>;
  /** The list of each row. */
  readonly listOf: Int32Array<ArrayBuffer>;
}

/** Rows per list from which its centre is learned; more changes it little. */
const SAMPLE = 64;
const ROUNDS = 10;
const MAX_LISTS = 65_536;
/** Probes where the options name none. */
const MIN_PROBES = 16;
const PROBED_SHARE = 1 / 16;

/**
 * An inverted file: rows in lists around the centres of k-means, lists read in the order of their centres' distance.
 * The lists of a search are read in groups of 1, 1, 2, 4 … and each group is a stage.
 */
export class IvfSearch implements RowSearch {
  readonly #table: VectorTable;
  readonly #centroids: VectorTable;
  readonly #lists: number[][];
  readonly #listOf: number[] = [];
  readonly #probes: number;

  constructor(table: VectorTable, { probes }: IvfOptions, state: IvfState) {
    this.#table = table;
    this.#centroids = new VectorTable(table.dimension, centroidMetric(table));
    this.#centroids.append(state.centroids);
    this.#lists = Array.from({ length: this.#centroids.count }, () => []);
    this.#probes = probes ?? Math.max(MIN_PROBES, Math.ceil(this.#lists.length * PROBED_SHARE));
    for (const list of state.listOf) {
      this.#lists[list]!.push(this.#listOf.length);
      this.#listOf.push(list);
    }
  }

  get state(): IvfState {
    const centroids = new Float32Array(this.#centroids.count * this.#centroids.rowFloats);
    for (let list = 0; list < this.#centroids.count; list++) {
      centroids.set(this.#centroids.row(list), list * this.#centroids.rowFloats);
    }
    return { centroids, listOf: Int32Array.from(this.#listOf) };
  }

  add(): void {
    const row = this.#listOf.length;
    const list = nearestCentroid(this.#centroids, this.#table.row(row));
    this.#lists[list]!.push(row);
    this.#listOf.push(list);
  }

  *stages(query: PreparedVector, k: number, deleted: DeletedRows): Generator<RankedRows | undefined, void> {
    const table = this.#table;
    const lists = this.#centroids.count;
    const wanted = Math.min(k, table.count - deleted.count);
    const pool = new CandidatePool(k);
    let order = this.#closestLists(query, Math.min(this.#probes, lists));
    let stageEnd = 1;
    for (let probe = 0; probe < order.size; ) {
      const list = this.#lists[order.row(probe)]!;
      for (let from = 0; from < list.length; from += BATCH) {
        table.useQuery(query);
        const count = Math.min(BATCH, list.length - from);
        scanBatch(table, pool, deleted, count, (position) => list[from + position]!);
        yield undefined;
      }
      probe++;
      // Where the lists hold less than is asked for, more of them are read.
      if (probe === order.size && pool.size < wanted && probe < lists) {
        order = this.#closestLists(query, Math.min(4 * probe, lists));
      } else if (probe === stageEnd && probe < order.size) {
        yield rankedRows(pool, k, deleted, false);
      }
      if (probe === stageEnd) stageEnd *= 2;
    }
    yield rankedRows(pool, k, deleted, true);
  }

  #closestLists(query: PreparedVector, count: number): CandidatePool {
    const centroids = this.#centroids;
    const order = new CandidatePool(count);
    for (let from = 0; from < centroids.count; from += BATCH) {
      centroids.useQuery(query);
      const scored = Math.min(BATCH, centroids.count - from);
      for (let i = 0; i < scored; i++) centroids.ids[i] = from + i;
      centroids.score(scored, this.#table.metric === 'l2' ? 'l2' : 'dot');
      for (let i = 0; i < scored; i++) order.add(from + i, centroids.scores[i]!);
    }
    return order;
  }
}

/**
 * Divides the rows of a table into lists: k-means++ and Lloyd's rounds over a sample, then every row to its nearest
 * centre. O(rows * lists * dimension). Deterministic. Calls `progress` with a share from 0 to 1.
 */
export function divideIntoLists(table: VectorTable, options: IvfOptions, progress: (share: number) => void): IvfState {
  const rows = table.count;
  const lists = Math.max(1, Math.min(options.lists ?? Math.round(Math.sqrt(rows)), rows, MAX_LISTS));
  const random = randomSource(options.seed ?? 1);
  const sample = drawSample(rows, Math.min(rows, SAMPLE * lists), random);
  const centroids = new VectorTable(table.dimension, centroidMetric(table));
  if (rows === 0) {
    centroids.append(new Float32Array(centroids.rowFloats));
    return { centroids: centroids.row(0).slice(), listOf: new Int32Array(0) };
  }
  seedCentroids(table, centroids, sample, lists, random);
  const nearest = new Int32Array(sample.length);
  for (let round = 0; round < ROUNDS; round++) {
    let moved = 0;
    for (let i = 0; i < sample.length; i++) {
      const list = nearestCentroid(centroids, table.row(sample[i]!));
      if (list !== nearest[i] || round === 0) moved++;
      nearest[i] = list;
    }
    progress((0.5 * (round + 1)) / ROUNDS);
    if (moved === 0) break;
    moveCentroids(table, centroids, sample, nearest);
  }
  const listOf = new Int32Array(rows);
  for (let row = 0; row < rows; row++) {
    listOf[row] = nearestCentroid(centroids, table.row(row));
    if (row % 4096 === 0) progress(0.5 + (0.5 * row) / rows);
  }
  const state = new Float32Array(lists * centroids.rowFloats);
  for (let list = 0; list < lists; list++) state.set(centroids.row(list), list * centroids.rowFloats);
  return { centroids: state, listOf };
}

/** Centres are compared as rows are, but by distance where rows are by dot product: long rows would get all others. */
function centroidMetric(table: VectorTable): 'l2' | 'dot' {
  return table.metric === 'cosine' ? 'dot' : 'l2';
}

function nearestCentroid(centroids: VectorTable, row: Float32Array): number {
  const { ids, scores } = centroids;
  let [nearest, best] = [0, Number.NEGATIVE_INFINITY];
  for (let from = 0; from < centroids.count; from += BATCH) {
    centroids.useQuery(row);
    const count = Math.min(BATCH, centroids.count - from);
    for (let i = 0; i < count; i++) ids[i] = from + i;
    centroids.score(count);
    for (let i = 0; i < count; i++) {
      if (scores[i]! > best) [nearest, best] = [from + i, scores[i]!];
    }
  }
  return nearest;
}

/** k-means++: each next centre is drawn from the sample, the likelier the farther it is from all before. */
function seedCentroids(
  table: VectorTable,
  centroids: VectorTable,
  sample: Int32Array,
  lists: number,
  random: () => number,
): void {
  const distances = new Float64Array(sample.length).fill(Number.POSITIVE_INFINITY);
  let next = Math.floor(random() * sample.length);
  for (;;) {
    centroids.append(table.row(sample[next]!));
    if (centroids.count === lists) return;
    table.useRow(sample[next]!);
    let sum = 0;
    for (let from = 0; from < sample.length; from += BATCH) {
      const count = Math.min(BATCH, sample.length - from);
      for (let i = 0; i < count; i++) table.ids[i] = sample[from + i]!;
      table.score(count, 'l2');
      for (let i = 0; i < count; i++) {
        const distance = Math.min(distances[from + i]!, -table.scores[i]!);
        distances[from + i] = distance;
        sum += distance;
      }
    }
    let drawn = random() * sum;
    next = 0;
    while (next < sample.length - 1 && drawn >= distances[next]!) drawn -= distances[next++]!;
  }
}

/** Moves each centre to the mean of its rows; one without rows to a row of the largest list, which is divided so. */
function moveCentroids(table: VectorTable, centroids: VectorTable, sample: Int32Array, nearest: Int32Array): void {
  const { rowFloats } = table;
  const sums = new Float64Array(centroids.count * rowFloats);
  const counts = new Int32Array(centroids.count);
  for (let i = 0; i < sample.length; i++) {
    const row = table.row(sample[i]!);
    const at = nearest[i]! * rowFloats;
    counts[nearest[i]!]!++;
    for (let j = 0; j < rowFloats; j++) sums[at + j]! += row[j]!;
  }
  for (let list = 0; list < centroids.count; list++) {
    const centroid = centroids.row(list);
    if (counts[list] === 0) {
      const largest = counts.reduce((best, count, other) => (count > counts[best]! ? other : best), 0);
      const member = nearest.indexOf(largest);
      const row = table.row(sample[member]!);
      centroid.set(row);
      for (let j = 0; j < rowFloats; j++) sums[largest * rowFloats + j]! -= row[j]!;
      nearest[member] = list;
      counts[largest]!--;
      counts[list] = 1;
      continue;
    }
    let squares = 0;
    for (let j = 0; j < rowFloats; j++) {
      const mean = sums[list * rowFloats + j]! / counts[list]!;
      centroid[j] = mean;
      squares += mean * mean;
    }
    // Under `cosine` only the direction of a centre counts.
    if (table.metric === 'cosine' && squares > 0) {
      const scale = 1 / Math.sqrt(squares);
      for (let j = 0; j < rowFloats; j++) centroid[j]! *= scale;
    }
  }
}

function drawSample(rows: number, size: number, random: () => number): Int32Array {
  const order = Int32Array.from({ length: rows }, (_, row) => row);
  for (let i = 0; i < size; i++) {
    const other = i + Math.floor(random() * (rows - i));
    [order[i], order[other]] = [order[other]!, order[i]!];
  }
  return order.slice(0, size);
}

/** Numbers from 0 to 1 that follow from the seed (mulberry32). */
function randomSource(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let hash = Math.imul(state ^ (state >>> 15), 1 | state);
    hash = (hash + Math.imul(hash ^ (hash >>> 7), 61 | hash)) ^ hash;
    return ((hash ^ (hash >>> 14)) >>> 0) / 0x1_0000_0000;
  };
}
