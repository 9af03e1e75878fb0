export { Collection } from './collections/collection.js';
export type { Applied, CollectionTotals, DocumentRecord } from './collections/collection-store.js';
export { Collections } from './collections/collections.js';
export type { IngestError } from './ingest/find-files.js';
export type { IngestOptions, IngestProgress, IngestReport } from './ingest/ingest.js';
export type { DocumentText } from './ingest/read-file.js';
export { Bm25Retriever } from './lexical/bm25-retriever.js';
export type { ChunkSettings } from './parse/chunk.js';
export {
  checkSearch,
  MOST_CANDIDATES,
  type Query,
  type ScoredDocument,
  type SearchOptions,
  type Stage,
  type StagedRetriever,
} from './staged-retriever.js';
