import { readFileSync } from 'node:fs';
import type { LanceDbTable, LanceDbVectorQuery } from '../../src/stores/lancedb.js';
import type { Metric } from '../../src/stores/stored-fields.js';
import type { CaseDocument } from '../staged-retriever.cases.js';
import type { Exchange, RecordedRow, RecordedValue, Recording } from './recording.js';

export const RECORDING = JSON.parse(
  readFileSync(new URL('fixtures/lancedb-0.37.json', import.meta.url), 'utf8'),
) as Recording;

/** A query that the fake has no answer to. */
const UNRECORDED = 'is not recorded: see record.js';

/** How a fake table is searched: all rows, some of `partitions`, or with a bound on `ef`. */
export interface FakeIndex {
  readonly kind: 'ivf' | 'hnsw' | 'none';
  readonly partitions: number;
}

/**
 * A fake of a LanceDB table: rows and messages are recorded ones of a real LanceDB, distances are computed here.
 * `lancedb.test.ts` holds it against the recorded answers.
 */
export class FakeLanceDbTable implements LanceDbTable {
  readonly name = 'fake';
  readonly rows: readonly Record<string, unknown>[];
  readonly index: FakeIndex;
  /** The builder's calls, of every query. */
  readonly queries: [method: string, ...parameters: unknown[]][][] = [];

  constructor(rows: readonly RecordedRow[], index: FakeIndex = { kind: 'none', partitions: 1 }) {
    this.rows = rows.map((row) => revived({ type: 'StructRow', members: row }) as Record<string, unknown>);
    this.index = index;
  }

  /** The recorded rows of documents. */
  static passages(documents: readonly CaseDocument[], kind: FakeIndex['kind']): FakeLanceDbTable {
    const byId = new Map(RECORDING.rows.passages.map((row) => [row['id'], row]));
    const rows = documents.map(({ id }) => {
      const row = byId.get(id);
      if (row === undefined) throw new Error(`The document ${id} ${UNRECORDED}`);
      return row;
    });
    return new FakeLanceDbTable(rows, { kind, partitions: 2 });
  }

  vectorSearch(vector: Float32Array): LanceDbVectorQuery {
    return new FakeQuery(this, vector);
  }
}

class FakeQuery implements LanceDbVectorQuery {
  readonly #table: FakeLanceDbTable;
  readonly #vector: Float32Array;
  readonly #calls: [method: string, ...parameters: unknown[]][] = [];
  #column = 'embedding';
  #metric: Metric = 'l2';
  #columns: readonly string[] | undefined;
  #limit = 10;
  #nprobes = 20;
  #ef: number | undefined;
  #refineFactor = 1;
  #bypasses = false;

  constructor(table: FakeLanceDbTable, vector: Float32Array) {
    this.#table = table;
    this.#vector = vector;
    table.queries.push(this.#calls);
  }

  column(name: string): this {
    this.#calls.push(['column', name]);
    this.#column = name;
    return this;
  }

  distanceType(metric: Metric): this {
    this.#calls.push(['distanceType', metric]);
    this.#metric = metric;
    return this;
  }

  select(columns: string[]): this {
    this.#calls.push(['select', columns]);
    this.#columns = columns;
    return this;
  }

  where(): never {
    throw new Error('nothing was recorded with a filter');
  }

  limit(rows: number): this {
    this.#calls.push(['limit', rows]);
    this.#limit = rows;
    return this;
  }

  nprobes(partitions: number): this {
    this.#calls.push(['nprobes', partitions]);
    this.#nprobes = partitions;
    return this;
  }

  ef(candidates: number): this {
    this.#calls.push(['ef', candidates]);
    this.#ef = candidates;
    return this;
  }

  refineFactor(factor: number): this {
    this.#calls.push(['refineFactor', factor]);
    this.#refineFactor = factor;
    return this;
  }

  bypassVectorIndex(): this {
    this.#calls.push(['bypassVectorIndex']);
    this.#bypasses = true;
    return this;
  }

  async toArray({ timeoutMs }: { timeoutMs: number }): Promise<object[]> {
    const { rows, index } = this.#table;
    if (timeoutMs === 0) throw recordedError('no time');
    const vectors = rows.map((row) => Float32Array.from((row[this.#column] ?? []) as Iterable<number>));
    if (rows.length > 0 && !(this.#column in rows[0]!)) throw recordedError('no such vector column');
    if (vectors.some(({ length }) => length !== this.#vector.length)) throw recordedError('a vector of another length');
    if (rows.length > 0 && this.#columns?.some((name) => name !== '_distance' && !(name in rows[0]!))) {
      throw recordedError('no such column');
    }
    const isApproximate = index.kind !== 'none' && !this.#bypasses;
    if (isApproximate && index.kind === 'hnsw' && this.#ef !== undefined) {
      if (this.#ef < this.#limit * this.#refineFactor) throw recordedError('too few candidates');
    }
    const isSearched = isApproximate && index.kind === 'ivf' ? this.#inPartitions(vectors) : () => true;
    const found = rows
      .map((row, i) => ({ row, vector: vectors[i]!, distance: this.#distance(vectors[i]!) }))
      .filter(({ vector, distance }) => isSearched(vector) && !Number.isNaN(distance))
      .sort((a, b) => a.distance - b.distance)
      .slice(0, this.#limit);
    return found.map(({ row, distance }) => {
      const whole: Record<string, unknown> = { ...row, _distance: Math.fround(distance) };
      return structRow((this.#columns ?? Object.keys(whole)).map((name) => [name, whole[name]]));
    });
  }

  /** Partitions around the first rows, of which the closest `nprobes` are searched. */
  #inPartitions(vectors: readonly Float32Array[]): (vector: Float32Array) => boolean {
    const centres = vectors.slice(0, this.#table.index.partitions);
    const distances = (to: Float32Array) => centres.map((centre) => squaredDistance(centre, to));
    const own = distances(this.#vector);
    const byDistance = [...own.keys()].sort((a, b) => own[a]! - own[b]!);
    const probed = new Set(byDistance.slice(0, this.#nprobes));
    return (vector) => {
      const others = distances(vector);
      return probed.has(others.indexOf(Math.min(...others)));
    };
  }

  #distance(vector: Float32Array): number {
    if (this.#metric === 'l2') return squaredDistance(vector, this.#vector);
    const product = dot(vector, this.#vector);
    if (this.#metric === 'dot') return 1 - product;
    return 1 - product / Math.sqrt(dot(vector, vector) * dot(this.#vector, this.#vector));
  }
}

function dot(a: Float32Array, b: Float32Array): number {
  return a.reduce((sum, value, i) => sum + value * b[i]!, 0);
}

function squaredDistance(a: Float32Array, b: Float32Array): number {
  return a.reduce((sum, value, i) => sum + (value - b[i]!) ** 2, 0);
}

export function recordedError(name: string): Error {
  const exchange: Exchange | undefined = RECORDING.exchanges.find((candidate) => candidate.name === name);
  if (exchange?.error === undefined) throw new Error(`The error ${name} ${UNRECORDED}`);
  return Object.assign(new Error(exchange.error), { code: 'GenericFailure' });
}

/** A value of the type that was recorded. */
function revived(value: RecordedValue): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (value.type === 'bigint') return BigInt(value.value);
  if (value.type === 'number') return Number(value.value);
  if (value.type === 'Uint8Array') return Uint8Array.from(value.values);
  if (value.type === 'Uint32Array') return Uint32Array.from(value.values);
  if (value.type === 'Vector') return new Vector(value.values.map(revived));
  return structRow(Object.entries(value.members).map(([name, member]) => [name, revived(member)]));
}

/** As Arrow's `Vector`: to be iterated, and with members of its own that are no values. */
class Vector {
  readonly data: readonly unknown[];
  readonly length: number;
  readonly stride = 1;

  constructor(values: readonly unknown[]) {
    this.data = [{ values }];
    this.length = values.length;
    Object.defineProperty(this, 'values', { value: values });
  }

  *[Symbol.iterator](): Iterator<unknown> {
    yield* (this as unknown as { values: unknown[] }).values;
  }

  toJSON(): unknown[] {
    return [...this];
  }
}

/** As Arrow's `StructRow`: members that can be listed, and `toJSON` on its prototype. */
class StructRow {
  toJSON(): object {
    return Object.fromEntries(Object.entries(this));
  }
}

function structRow(members: readonly (readonly [string, unknown])[]): StructRow {
  return Object.assign(new StructRow(), Object.fromEntries(members));
}
