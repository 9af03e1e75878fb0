export {
  type CallbackSource,
  type CallEvents,
  type PostprocessorOptions,
  type ScoredNode,
  WarmpathPostprocessor,
} from './postprocessor.js';
