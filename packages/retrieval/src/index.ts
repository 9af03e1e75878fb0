export { Bm25Retriever } from './lexical/bm25-retriever.js';
export {
  checkSearch,
  MOST_CANDIDATES,
  type Query,
  type ScoredDocument,
  type SearchOptions,
  type Stage,
  type StagedRetriever,
} from './staged-retriever.js';
