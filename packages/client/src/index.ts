export type { OrderSwitches } from '@warmpath/core';
export type {
  ArrangedContext,
  ArrangedDocument,
  Arranger,
  CallOptions,
  ContextHint,
  ContextRequest,
  EngineUsage,
  Feedback,
} from './arranger.js';
export type { ChatAnswer, ChatPiece, ChatRequest, ChatStream, ChatSwitches, GatewayReport } from './chat.js';
export type { ArrangedChat, LocalChatRequest } from './local-warmpath.js';
export { LocalWarmpath } from './local-warmpath.js';
export { readSummary } from './summary.js';
export type { Fetch, TransportOptions } from './transport.js';
export type { Plan, PlannedRequest, PlanRequest, WarmpathOptions, WarmupRequest } from './warmpath.js';
export { Warmpath } from './warmpath.js';
