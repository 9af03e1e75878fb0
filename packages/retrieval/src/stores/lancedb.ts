import { WarmpathError } from '@warmpath/core';
import { type Embedder, queryVector } from '../embeddings/embedder.js';
import {
  checkSearch,
  type Query,
  type ScoredDocument,
  type SearchOptions,
  type Stage,
  type StagedRetriever,
} from '../staged-retriever.js';
import { conditionsOf, refuseWhere, type Where, type WhereValue } from '../where.js';
import { documentFrom, type Metric, rankedDocuments, type StoredFields } from './stored-fields.js';
import { QUERY_TIMEOUT_MS, withinTime } from './time-limit.js';

/** The part of a `Table` of `@lancedb/lancedb` that is used. */
export interface LanceDbTable {
  readonly name: string;
  vectorSearch(vector: Float32Array): LanceDbVectorQuery;
}

/** The part of its `VectorQuery` that is used. */
export interface LanceDbVectorQuery {
  column(name: string): LanceDbVectorQuery;
  distanceType(metric: Metric): LanceDbVectorQuery;
  select(columns: string[]): LanceDbVectorQuery;
  limit(rows: number): LanceDbVectorQuery;
  where(filter: string): LanceDbVectorQuery;
  nprobes(partitions: number): LanceDbVectorQuery;
  ef(candidates: number): LanceDbVectorQuery;
  refineFactor(factor: number): LanceDbVectorQuery;
  bypassVectorIndex(): LanceDbVectorQuery;
  toArray(options: { timeoutMs: number }): Promise<readonly unknown[]>;
}

export interface LanceDbOptions {
  /** A table of the package `@lancedb/lancedb`; the caller closes it. */
  readonly table: LanceDbTable;
  readonly embedder: Embedder;
  /** The column of the vectors; `vector` by default. */
  readonly vectorColumn?: string;
  /** Columns: `id` and `content` by default, a title and metadata (a struct) only where they are named. */
  readonly fields?: StoredFields;
  /** What the index was made for; `cosine` by default. With another one, LanceDB compares all rows. */
  readonly metric?: Metric;
  /**
   * The kind of the index: `ivf` for `ivfPq`, `ivfFlat` and `ivfRq`, `hnsw` for `hnswPq` and `hnswSq`. `none`, the
   * default, compares all rows in one stage.
   */
  readonly index?: 'ivf' | 'hnsw' | 'none';
  /** `nprobes` or `ef` of each stage, 1 or more; 1, 4, 16 or 16, 64, 256 by default. */
  readonly breadths?: readonly number[];
  /** Milliseconds for one query; 30,000 by default. */
  readonly timeoutMs?: number;
}

const BREADTHS = { ivf: [1, 4, 16], hnsw: [16, 64, 256], none: [0] };
/**
 * Candidates for each row wanted, of which the closest are told by their stored vectors. An index that compresses
 * vectors has approximate distances, and rows that are not in it yet have exact ones.
 */
const REFINE_FACTOR = 4;
const DISTANCE = '_distance';

/**
 * A table in LanceDB, searched once a stage, each time more broadly. LanceDB cannot be told to end a query: one that
 * nobody waits for any more goes on until its time is over.
 */
export class LanceDbRetriever implements StagedRetriever {
  readonly #options: LanceDbOptions;

  constructor(options: LanceDbOptions) {
    this.#options = options;
  }

  async *search(query: Query, options: SearchOptions): AsyncGenerator<Stage, void> {
    checkSearch(options);
    const { k, signal, where } = options;
    const {
      table,
      embedder,
      index: kind = 'none',
      breadths = BREADTHS[kind],
      timeoutMs = QUERY_TIMEOUT_MS,
    } = this.#options;
    const vector = await queryVector(query, embedder, signal);
    if (vector === undefined) {
      yield { candidates: [], index: 0, final: true };
      return;
    }
    for (const [index, breadth] of breadths.entries()) {
      let rows: readonly unknown[];
      try {
        const answer = this.#query(vector, k, breadth, where).toArray({ timeoutMs: Math.ceil(timeoutMs) });
        rows = await withinTime(answer, { path: table.name, timeoutMs, signal });
      } catch (error) {
        if (signal.aborted) throw signal.reason;
        throw storeError(error, table.name);
      }
      const found = rows.map((row) => this.#documentFrom(row));
      yield { candidates: rankedDocuments(found, options), index, final: index === breadths.length - 1 };
      signal.throwIfAborted();
    }
  }

  #query(vector: Float32Array, k: number, breadth: number, where: Where | undefined): LanceDbVectorQuery {
    const { table, vectorColumn = 'vector', fields = {}, metric = 'cosine', index = 'none' } = this.#options;
    const { id = 'id', content = 'content', title, metadata } = fields;
    // LanceDB refuses a column that is named twice. The vectors are not read.
    const columns = new Set([id, content, title, metadata, DISTANCE].filter((name) => name !== undefined));
    const all = table
      .vectorSearch(vector)
      .column(vectorColumn)
      .distanceType(metric)
      .select([...columns])
      .limit(k);
    const query = where === undefined ? all : all.where(sqlOf(where, metadata));
    if (index === 'none') return query.bypassVectorIndex();
    const refined = query.refineFactor(REFINE_FACTOR);
    // LanceDB refuses an `ef` below the number of candidates.
    return index === 'ivf' ? refined.nprobes(breadth) : refined.ef(Math.max(breadth, k * REFINE_FACTOR));
  }

  #documentFrom(row: unknown): ScoredDocument | undefined {
    const { fields = {} } = this.#options;
    const { id = 'id' } = fields;
    const { [DISTANCE]: distance, ...record } = plainValue(row) as Record<string, unknown>;
    if (record[id] === undefined) return undefined;
    return documentFrom(record[id], record, -Number(distance), { ...fields, id });
  }
}

const SQL_OPERATORS: Readonly<Record<string, string>> = { gt: '>', gte: '>=', lt: '<', lte: '<=' };

/** A filter as LanceDB takes it; it filters before it searches. */
function sqlOf(where: Where, metadata: string | undefined): string {
  const tests = conditionsOf(where).flatMap(([field, { in: accepted, prefix, ...bounds }]) => {
    if (metadata === undefined)
      refuseWhere(field, 'the table has no metadata; name their column in `fields.metadata`.');
    const column = [metadata, ...field.split('.')].map((name) => `\`${name.replaceAll('`', '``')}\``).join('.');
    return [
      ...(accepted === undefined ? [] : [`${column} IN (${accepted.map(literal).join(', ')})`]),
      ...(prefix === undefined ? [] : [`starts_with(${column}, ${literal(prefix)})`]),
      ...Object.entries(bounds).flatMap(([name, bound]) =>
        bound === undefined ? [] : [`${column} ${SQL_OPERATORS[name]} ${literal(bound)}`],
      ),
    ];
  });
  return tests.join(' AND ');
}

function literal(value: WhereValue): string {
  return typeof value === 'string' ? `'${value.replaceAll("'", "''")}'` : String(value);
}

/**
 * An Arrow value as JSON has it. Structs are objects without the members that are null, lists are arrays, bytes are
 * base64. 64-bit integers are numbers, or strings of digits where a number would not be exact. Times are the numbers
 * that Arrow gives, of milliseconds for dates and timestamps. Null stands for a number that is not finite, and for a
 * decimal: its value does not say where the point is. O(size).
 */
function plainValue(value: unknown): unknown {
  if (typeof value === 'bigint') return Number.isSafeInteger(Number(value)) ? Number(value) : String(value);
  if (typeof value === 'number') return Number.isFinite(value) ? value : null;
  if (typeof value !== 'object' || value === null) return value;
  if (ArrayBuffer.isView(value)) return value instanceof Uint8Array ? Buffer.from(value).toString('base64') : null;
  const { toJSON } = value as { readonly toJSON?: () => unknown };
  const plain = typeof toJSON === 'function' ? toJSON.call(value) : value;
  if (typeof plain !== 'object' || plain === null) return plain;
  if (Array.isArray(plain)) return plain.map(plainValue);
  const members = Object.entries(plain).map(([name, member]) => [name, plainValue(member)] as const);
  return Object.fromEntries(members.filter(([, member]) => !isAbsent(member)));
}

/** Null, or a struct in which all is null: LanceDB gives a struct that is null so. */
function isAbsent(member: unknown): boolean {
  if (typeof member !== 'object' || member === null) return member === null || member === undefined;
  return !Array.isArray(member) && Object.keys(member).length === 0;
}

/** A message of LanceDB ends with the place in its own source, and with lines that list every column. */
const SOURCE_PLACE = /,? \/\S+\.rs:\d.*$/;
const QUERY_TIMEOUT = /\bquery timeout\b/i;

function storeError(error: unknown, path: string): unknown {
  if (WarmpathError.isInstance(error)) return error;
  const { message = 'the table failed' } = error as { readonly message?: string };
  const detail = `${message.split('\n', 1)[0]!.replace(SOURCE_PLACE, '')}.`;
  const code = QUERY_TIMEOUT.test(message) ? 'WARMPATH_RETRIEVAL_TIMEOUT' : 'WARMPATH_RETRIEVAL_ERROR';
  return new WarmpathError(code, { path, detail, cause: error });
}
