export { type PostprocessorOptions, WarmpathPostprocessor } from './postprocessor.js';
