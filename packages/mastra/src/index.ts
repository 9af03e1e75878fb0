export { type WarmpathContext, type WarmpathProcessor, warmpathProcessor } from './processor.js';
