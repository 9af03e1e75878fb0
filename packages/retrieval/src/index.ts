export type { Query, ScoredDocument, SearchOptions, Stage, StagedRetriever } from './staged-retriever.js';
