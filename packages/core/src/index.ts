export {
  ERROR_TABLE,
  type ErrorCode,
  type ErrorEntry,
  WarmpathError,
  type WarmpathErrorOptions,
  type Warning,
} from './errors.js';
