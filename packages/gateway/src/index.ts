export type { RefusedEntry, SessionImport } from './admin/session-transfer.js';
export { API_NAMES, type ApiName } from './apis/prompt-api.js';
export {
  type GatewayConfig,
  type GatewayConfigInput,
  gatewayConfigSchema,
} from './config.js';
export { type ConfigKey, configJsonSchema, describeConfig } from './config-keys.js';
export {
  type ConfigCheck,
  type ConfigProblem,
  checkConfig,
  type Environment,
  loadConfig,
  resolveConfig,
} from './config-load.js';
export {
  type ExplainedBlock,
  type ExplainedBreak,
  type ExplainOptions,
  type Explanation,
  explainRequest,
} from './explain/explain-request.js';
export { InPlacePrompts, type PlacedPrompt } from './recognised/in-place-prompts.js';
export { type GatewayParts, type RunningGateway, startGateway } from './server.js';
export {
  MemorySessionStore,
  type SessionStore,
  type SessionStoreListener,
  type StoreFailure,
  type StoreOperation,
} from './session-store.js';
export { probeSessionStore, type SessionStoreProbe } from './shared-sessions/open-sessions.js';
export { tenantOf } from './tenant.js';
