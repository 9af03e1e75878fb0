export { readGgufHeader } from './gguf/reader.js';
export type { ModelProgress, ModelProgressListener } from './models/progress.js';
export { type ResolvedModel, type ResolveModelOptions, resolveModel } from './models/resolve.js';
export { type EngineOptions, engineOptionsSchema, parseEngineOptions, type ResolvedEngineOptions } from './options.js';
export { type EngineHooks, type EngineServer, type ServedModel, startEngineServer } from './server.js';
