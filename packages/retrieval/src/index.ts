export { Collection, checkExport } from './collections/collection.js';
export {
  Collections,
  type CollectionsOptions,
  type ListedCollection,
  type SearchableCollection,
} from './collections/collections.js';
export type { Applied, CollectionTotals, DocumentRecord } from './collections/records.js';
export type { Embedder, EmbeddingPurpose } from './embeddings/embedder.js';
export type { EmbeddingSettings } from './embeddings/embedding-endpoint.js';
export { HashedTfIdf, type TfIdfState } from './embeddings/hashed-tf-idf.js';
export { type EmbeddingCache, OpenAiEmbedder, type OpenAiEmbedderOptions } from './embeddings/openai-embedder.js';
export { type HybridOptions, HybridRetriever, reciprocalRankFusion } from './fusion/hybrid-retriever.js';
export { RerankEndpoint, type RerankSettings } from './fusion/rerank-endpoint.js';
export { type RerankOptions, RerankRetriever } from './fusion/rerank-retriever.js';
export type { EmbeddingReport } from './ingest/embed-passages.js';
export type { FoundLink, IngestError, SkippedFile } from './ingest/find-files.js';
export type { IngestOptions, IngestProgress, IngestReport } from './ingest/ingest.js';
export type { CutDocument, DocumentFile, DocumentText, FileDocument } from './ingest/read-file.js';
export { Bm25Retriever } from './lexical/bm25-retriever.js';
export type { ChunkSettings } from './parse/chunk.js';
export { MEDIA_TYPES } from './parse/formats.js';
export {
  checkSearch,
  MAX_CANDIDATES,
  type Query,
  type ScoredDocument,
  type SearchOptions,
  type Stage,
  type StagedRetriever,
} from './staged-retriever.js';
export type { StoreSettings } from './stores/open-store.js';
export type { Metric } from './stores/stored-fields.js';
export { type VectorEntry, VectorIndex, type VectorIndexOptions, type VectorStage } from './vector/vector-index.js';
export {
  type Passage,
  type PassageLookup,
  VectorRetriever,
  type VectorRetrieverOptions,
} from './vector/vector-retriever.js';
export type { Where, WhereCondition, WhereValue } from './where.js';
