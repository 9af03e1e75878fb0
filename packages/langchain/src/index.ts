export type { ArrangeOptions, WarmpathMetadata } from './arranged-documents.js';
export { formatDocuments } from './arranged-documents.js';
export { WarmpathCompressor } from './compressor.js';
export { WarmpathFeedback } from './feedback.js';
