import { WarmpathError } from '@warmpath/core';
import { type Embedder, queryVector } from '../embeddings/embedder.js';
import {
  checkSearch,
  type Query,
  type SearchOptions,
  type Stage,
  type StagedRetriever,
  untilAborted,
} from '../staged-retriever.js';
import { conditionsOf, refuseWhere, type Where } from '../where.js';
import { documentFrom, type Metric, rankedDocuments, type StoredFields } from './stored-fields.js';
import { QUERY_TIMEOUT_MS, withinTime } from './time-limit.js';

/** The part of `pg`'s `Pool` that is used. */
export interface PostgresPool {
  connect(): Promise<PostgresClient>;
}

export interface PostgresClient {
  query(text: string, values?: unknown[]): Promise<{ readonly rows: readonly Record<string, unknown>[] }>;
  release(error?: Error): void;
}

export interface PgVectorOptions {
  /** A pool of the package `pg`; the caller ends it. */
  readonly pool: PostgresPool;
  /** A table, also with its schema: `kb.passages`. */
  readonly table: string;
  readonly embedder: Embedder;
  /** The column of the vectors; `embedding` by default. */
  readonly vectorColumn?: string;
  /** Columns: `id` and `content` by default, a title and metadata (`jsonb`) only where they are named. */
  readonly fields?: StoredFields;
  /** What the index was made for; `cosine` by default. */
  readonly metric?: Metric;
  /** The kind of the index. `none`, the default, compares all rows in one stage. */
  readonly index?: 'hnsw' | 'ivfflat' | 'none';
  /** `hnsw.ef_search` or `ivfflat.probes` of each stage; 16, 64, 256 or 1, 4, 16 by default. */
  readonly breadths?: readonly number[];
  /** Milliseconds for one query; 30,000 by default. */
  readonly timeoutMs?: number;
}

const OPERATORS: Readonly<Record<Metric, string>> = { cosine: '<=>', dot: '<#>', l2: '<->' };
const JSON_PATH_OPERATORS: Readonly<Record<string, string>> = {
  gt: '>',
  gte: '>=',
  lt: '<',
  lte: '<=',
  prefix: 'starts with',
};
const SETTINGS = { hnsw: 'hnsw.ef_search', ivfflat: 'ivfflat.probes' };
const BREADTHS = { hnsw: [16, 64, 256], ivfflat: [1, 4, 16], none: [0] };
/** What pgvector accepts. */
const MAX_BREADTH = { hnsw: 1000, ivfflat: 32_768, none: 0 };

/**
 * A table in PostgreSQL with pgvector, searched once a stage, each time more broadly, in one read-only transaction: all
 * stages see the same rows. A search that ends early gives its connection up.
 */
export class PgVectorRetriever implements StagedRetriever {
  readonly #options: PgVectorOptions;

  constructor(options: PgVectorOptions) {
    this.#options = options;
  }

  async *search(query: Query, options: SearchOptions): AsyncGenerator<Stage, void> {
    checkSearch(options);
    const { k, signal, where } = options;
    const { pool, table, embedder, fields = {} } = this.#options;
    // An index finds the closest rows before they are filtered, and of a rare value none: all rows are compared.
    const kind = where === undefined ? (this.#options.index ?? 'none') : 'none';
    const breadths = where === undefined ? (this.#options.breadths ?? BREADTHS[kind]) : BREADTHS.none;
    const { id = 'id' } = fields;
    const { timeoutMs = QUERY_TIMEOUT_MS } = this.#options;
    const vector = await queryVector(query, embedder, signal);
    if (vector === undefined) {
      yield { candidates: [], index: 0, final: true };
      return;
    }
    const values: unknown[] = [`[${vector.join(',')}]`, k];
    const sql = this.#sql(this.#filter(where, values));
    const client = await this.#connect(pool, signal);
    const limit = { path: table, timeoutMs, signal };
    const run = (text: string, parameters?: unknown[]) => withinTime(client.query(text, parameters), limit);
    let isOpen = true;
    try {
      // A server that waits for a lock does not see that its client has gone: it has the same limit.
      await run(
        `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = ${Math.ceil(timeoutMs)}`,
      );
      for (const [index, breadth] of breadths.entries()) {
        if (where !== undefined) await run('SET LOCAL enable_indexscan = off');
        if (kind !== 'none') {
          const value = Math.min(MAX_BREADTH[kind], kind === 'hnsw' ? Math.max(breadth, k) : breadth);
          await run('SELECT set_config($1, $2, true)', [SETTINGS[kind], String(value)]);
        }
        const { rows } = await run(sql, values);
        const found = rows.map(({ warmpath_score, ...record }) =>
          documentFrom(record[id], record, Number(warmpath_score), { ...fields, id }),
        );
        const final = index === breadths.length - 1;
        if (final) {
          await run('COMMIT');
          isOpen = false;
        }
        yield { candidates: rankedDocuments(found, options), index, final };
        signal.throwIfAborted();
      }
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      throw storeError(error, table);
    } finally {
      // A transaction that is still open goes with its connection, and so does a query that still runs.
      client.release(isOpen ? new Error('the search ended early') : undefined);
    }
  }

  async #connect(pool: PostgresPool, signal: AbortSignal): Promise<PostgresClient> {
    const connecting = pool.connect();
    try {
      return await untilAborted(connecting, signal);
    } catch (error) {
      if (!signal.aborted) throw storeError(error, this.#options.table);
      // It may still come, and would be missing from the pool.
      connecting.then((late) => late.release()).catch(() => undefined);
      throw error;
    }
  }

  /** SQL of a filter over the metadata, whose values it adds: in a path of JSON other types are no match. */
  #filter(where: Where | undefined, values: unknown[]): string {
    const { metadata } = this.#options.fields ?? {};
    const tests = conditionsOf(where ?? {}).map(([field, { in: accepted = [], ...bounds }]) => {
      if (metadata === undefined)
        refuseWhere(field, 'the table has no metadata; name their column in `fields.metadata`.');
      const given = Object.entries(bounds).filter(([, bound]) => bound !== undefined);
      const isOneOf = accepted.map((_, i) => `@ == $in${i}`).join(' || ');
      const holds = [
        ...(accepted.length > 0 ? [`(${isOneOf})`] : []),
        ...given.map(([name]) => `@ ${JSON_PATH_OPERATORS[name]} $${name}`),
      ];
      const names = field.split('.').map((name) => `.${JSON.stringify(name)}`);
      const path = `$${names.join('')} ? (${holds.join(' && ')})`;
      const variables = Object.fromEntries([...accepted.map((value, i) => [`in${i}`, value]), ...given]);
      values.push(path, JSON.stringify(variables));
      return `jsonb_path_exists(${identifier(metadata)}, $${values.length - 1}::jsonpath, $${values.length}::jsonb)`;
    });
    return tests.length === 0 ? '' : ` WHERE ${tests.join(' AND ')}`;
  }

  #sql(filter: string): string {
    const { table, vectorColumn = 'embedding', fields = {}, metric = 'cosine' } = this.#options;
    const { id = 'id', content = 'content', title, metadata } = fields;
    const columns = [id, content, title, metadata].filter((name) => name !== undefined).map(identifier);
    const distance = `${identifier(vectorColumn)} ${OPERATORS[metric]} $1::vector`;
    return `SELECT ${columns.join(', ')}, -(${distance}) AS warmpath_score
      FROM ${table.split('.').map(identifier).join('.')}${filter} ORDER BY ${distance} LIMIT $2`;
  }
}

function identifier(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

/** SQLSTATE of a query that the server ended, for its time was over. */
const QUERY_CANCELED = '57014';

function storeError(error: unknown, table: string): unknown {
  if (WarmpathError.isInstance(error)) return error;
  const { code, message } = error as { readonly code?: string; readonly message?: string };
  // Errors of the server have five characters of SQLSTATE; all others are those of the connection.
  const isAnswer = /^[0-9A-Z]{5}$/.test(code ?? '');
  const answerCode = code === QUERY_CANCELED ? 'WARMPATH_RETRIEVAL_TIMEOUT' : 'WARMPATH_RETRIEVAL_ERROR';
  return new WarmpathError(isAnswer ? answerCode : 'WARMPATH_RETRIEVAL_UNREACHABLE', {
    path: table,
    detail: `${message ?? 'the database failed'} (${code ?? 'no code'}).`,
    cause: error,
  });
}
