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
    const { k, signal } = options;
    const { pool, table, embedder, index: kind = 'none', breadths = BREADTHS[kind], fields = {} } = this.#options;
    const { id = 'id' } = fields;
    const { timeoutMs = QUERY_TIMEOUT_MS } = this.#options;
    const vector = await queryVector(query, embedder, signal);
    if (vector === undefined) {
      yield { candidates: [], index: 0, final: true };
      return;
    }
    const sql = this.#sql();
    const values = [`[${vector.join(',')}]`, k];
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
        yield { candidates: rankedDocuments(found, k), index, final };
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

  #sql(): string {
    const { table, vectorColumn = 'embedding', fields = {}, metric = 'cosine' } = this.#options;
    const { id = 'id', content = 'content', title, metadata } = fields;
    const columns = [id, content, title, metadata].filter((name) => name !== undefined).map(identifier);
    const distance = `${identifier(vectorColumn)} ${OPERATORS[metric]} $1::vector`;
    return `SELECT ${columns.join(', ')}, -(${distance}) AS warmpath_score
      FROM ${table.split('.').map(identifier).join('.')} ORDER BY ${distance} LIMIT $2`;
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
