export type { CallDocuments, CallParams } from './call.js';
export type { SpecificationVersion, StreamPart, WarmpathMiddleware } from './middleware.js';
export { warmpathMiddleware, warmpathMiddlewareV4 } from './middleware.js';
export type { RerankedDocuments, RerankingOptions, WarmpathRerankingModel } from './reranking.js';
export { warmpathReranking, warmpathRerankingV4 } from './reranking.js';
