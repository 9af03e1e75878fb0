export { type EngineCommandHooks, runEngineCommand } from './command.js';
export { readGgufHeader } from './gguf/reader.js';
export { type EndEvent, endChannel, type StepEvent, stepChannel } from './loop/events.js';
export type { FinishReason, GenerationResult, GenerationTimings } from './loop/generation.js';
export type { ModelProgress, ModelProgressListener } from './models/progress.js';
export { type ResolvedModel, type ResolveModelOptions, resolveModel } from './models/resolve.js';
export { type EngineOptions, engineOptionsSchema, parseEngineOptions, type ResolvedEngineOptions } from './options.js';
export { type EngineExit, type EngineProcess, spawnEngine } from './process.js';
export { type EngineHooks, type EngineServer, type ServedModel, startEngineServer } from './server.js';
