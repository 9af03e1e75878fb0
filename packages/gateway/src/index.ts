export {
  type ConfigKey,
  configJsonSchema,
  describeConfig,
  type GatewayConfig,
  type GatewayConfigInput,
  gatewayConfigSchema,
} from './config.js';
export {
  type ConfigCheck,
  type ConfigProblem,
  checkConfig,
  type Environment,
  loadConfig,
  resolveConfig,
} from './config-load.js';
export { type GatewayParts, type RunningGateway, startGateway } from './server.js';
export { MemorySessionStore, type SessionStore } from './session-store.js';
