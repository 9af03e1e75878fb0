export { TranslateError, type TranslateErrorCode } from './errors.js';
export { messagesErrorType } from './messages-writer.js';
export {
  type ClientResponse,
  type EngineResponse,
  type TranslatedAnswer,
  type TranslatedApi,
  type TranslateRequest,
  type TranslateWarning,
  type Translation,
  translate,
} from './translate.js';
