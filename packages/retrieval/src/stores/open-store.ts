import { WarmpathError } from '@warmpath/core';
import type { Embedder } from '../embeddings/embedder.js';
import { HybridRetriever } from '../fusion/hybrid-retriever.js';
import type { StagedRetriever } from '../staged-retriever.js';
import { OpenSearchRetriever } from './opensearch.js';
import { PgVectorRetriever } from './pgvector.js';
import { QdrantRetriever } from './qdrant.js';
import type { Metric, StoredFields } from './stored-fields.js';

/** Where a collection lives that is in a database of its own. */
export type StoreSettings = QdrantSettings | PgVectorSettings | OpenSearchSettings;

interface QdrantSettings {
  readonly kind: 'qdrant';
  readonly url: string;
  readonly apiKey?: string | undefined;
  /** What Qdrant calls the collection. */
  readonly collection: string;
  readonly vectorName?: string | undefined;
  readonly fields?: Fields | undefined;
}

interface PgVectorSettings {
  readonly kind: 'pgvector';
  /** `postgres://…` */
  readonly url: string;
  readonly table: string;
  readonly vectorColumn?: string | undefined;
  readonly index?: 'hnsw' | 'ivfflat' | 'none' | undefined;
  readonly metric?: Metric | undefined;
  readonly fields?: Fields | undefined;
}

interface OpenSearchSettings {
  readonly kind: 'opensearch' | 'elasticsearch';
  readonly url: string;
  readonly apiKey?: string | undefined;
  readonly index: string;
  /** Searched by words alone without. */
  readonly vectorField?: string | undefined;
  readonly fields?: Fields | undefined;
}

type Fields = { readonly [Name in keyof StoredFields]: string | undefined };

/** A collection in a database of its own: searched as any other, filled and listed by the database's own tools. */
export interface StoredCollection {
  readonly name: string;
  readonly retriever: StagedRetriever;
  close(): Promise<void>;
}

/** Connections to a PostgreSQL, of one collection. */
const CONNECTIONS = 4;
/** Milliseconds that a search waits for one of them. */
const CONNECT_MS = 5_000;

/**
 * Opens a collection that lives in Qdrant, PostgreSQL with pgvector, OpenSearch or Elasticsearch. Nothing is asked of
 * the database before the first search.
 *
 * @param embedder What its vectors were made with.
 * @throws WARMPATH_CONFIG_INVALID where the store needs vectors of questions and there is no embedder, where the
 *   package `pg` is not installed, and where the URL is none.
 */
export async function openStore(
  name: string,
  settings: StoreSettings,
  embedder: Embedder | undefined,
): Promise<StoredCollection> {
  const needed = (): Embedder => {
    if (embedder !== undefined) return embedder;
    const detail = `The collection ${name} is searched by vectors, and there is nothing to embed questions with.`;
    throw new WarmpathError('WARMPATH_CONFIG_INVALID', { path: 'collections.embeddings', detail });
  };
  if (settings.kind === 'qdrant') {
    const { kind: _, fields, ...given } = settings;
    const retriever = new QdrantRetriever({ ...present(given), ...fieldsOf(fields), embedder: needed() });
    return { name, retriever, close: () => retriever.close() };
  }
  if (settings.kind === 'pgvector') {
    const { kind: _, url, fields, ...given } = settings;
    const questions = needed();
    const pool = await postgresPool(url);
    const retriever = new PgVectorRetriever({ ...present(given), ...fieldsOf(fields), pool, embedder: questions });
    return { name, retriever, close: () => pool.end() };
  }
  const { kind: dialect, vectorField, fields, ...given } = settings;
  const options = { ...present(given), ...fieldsOf(fields), dialect };
  const lexical = new OpenSearchRetriever(options);
  if (vectorField === undefined) return { name, retriever: lexical, close: () => lexical.close() };
  const dense = new OpenSearchRetriever({ ...options, vectorField, embedder: needed() });
  return {
    name,
    retriever: new HybridRetriever({ lexical, dense }),
    close: async () => {
      await lexical.close();
      await dense.close();
    },
  };
}

/** What is given, without members that are `undefined`. */
type Present<Given> = { [Name in keyof Given]: Exclude<Given[Name], undefined> };

function present<Given extends object>(given: Given): Present<Given> {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as Present<Given>;
}

function fieldsOf(fields: Fields | undefined): { readonly fields?: StoredFields } {
  return fields === undefined ? {} : { fields: present(fields) };
}

async function postgresPool(url: string) {
  let pg: typeof import('pg');
  try {
    pg = await import('pg');
  } catch (cause) {
    throw new WarmpathError('WARMPATH_CONFIG_INVALID', {
      path: 'collections.stores',
      detail: 'The package pg cannot be loaded, which talks to PostgreSQL. Run: npm install pg',
      cause,
    });
  }
  const pool = new pg.default.Pool({
    connectionString: url,
    max: CONNECTIONS,
    connectionTimeoutMillis: CONNECT_MS,
    allowExitOnIdle: true,
  });
  // A connection that breaks while nobody uses it; the next search takes another one, or fails with a reason.
  pool.on('error', () => {});
  return pool;
}
