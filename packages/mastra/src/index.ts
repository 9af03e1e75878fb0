export {
  type LLMRequest,
  type LLMResponse,
  type WarmpathContext,
  type WarmpathProcessor,
  warmpathProcessor,
} from './processor.js';
