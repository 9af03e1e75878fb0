export type { ListedPromptKind, ListedSession, PromptKindList, SessionList } from '@warmpath/dashboard';
export { API_NAMES, type ApiName } from './apis/prompt-view.js';
export type { GatewayParts } from './assemble-gateway.js';
export { type ConfigKey, configJsonSchema, describeConfig } from './config/describe.js';
export {
  type ConfigCheck,
  type ConfigProblem,
  checkConfig,
  type Environment,
  loadConfig,
  resolveConfig,
} from './config/load.js';
export {
  type EngineSettings,
  engineSettings,
  type GatewayConfig,
  type GatewayConfigInput,
  gatewayConfigSchema,
} from './config/schema.js';
export {
  type ConversationStoreProbe,
  MemoryConversationStore,
  probeConversationStore,
} from './conversation/conversation-memory.js';
export { type CacheFacts, type EventSource, reachableSource, readCacheFacts } from './dialects/cache-facts.js';
export {
  configuredDialect,
  type Dialect,
  dialectOf,
  dialectOfOwner,
  type ReuseModel,
  withCheckpoints,
} from './dialects/dialects.js';
export type { EngineReport, EngineState } from './engines/engine-probe.js';
export { canHearKvEvents } from './engines/kv-events/zmq-subscriber.js';
export { readPromptTokens, TOKENS_WITH_TEXTS } from './engines/prompt-tokens.js';
export { AGENT_HEADERS } from './intake/headers.js';
export { describeMetrics, type MetricDescription } from './observe/metrics.js';
export { SUMMARY_FIELDS } from './observe/report.js';
export type { RefusedEntry, SessionImport } from './operate/admin/session-transfer.js';
export {
  type ExplainedBlock,
  type ExplainedBreak,
  type ExplainOptions,
  type Explanation,
  explainRequest,
} from './operate/explain/explain-request.js';
export { InPlacePrompts, type PlacedPrompt } from './prompt/in-place-prompts.js';
export { type OpenApiDocument, openApiDocument } from './routes/openapi.js';
export type { Report } from './shapes/shapes.js';
export { type RunningGateway, startGateway } from './start-gateway.js';
