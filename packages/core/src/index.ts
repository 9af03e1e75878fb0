export { arrange, observe } from './arrange.js';
export type {
  Arrangement,
  ArrangementTrace,
  ArrangeRequest,
  OrderHint,
  Outcome,
  RawArrangeRequest,
} from './arrangement.js';
export type { ConversationTurn, RenderedTurn } from './conversation.js';
export {
  editsOf,
  plainTurn,
  recordTurn,
  renderTurn,
  repeatedOrder,
  repeatedTurn,
  shownBlocks,
  suppliedHash,
  turnEdits,
  turnPreamble,
} from './conversation.js';
export type { CostModel, PrefillProfile } from './cost-model.js';
export { profiledCost } from './cost-model.js';
export type {
  Document,
  DocumentInput,
  DocumentLimits,
  DocumentReference,
  PreparedDocuments,
  TokenCounter,
} from './document.js';
export { contentHash } from './document.js';
export type { ErrorCode, ErrorEntry, WarmpathErrorOptions, Warning } from './errors.js';
export { ERROR_TABLE, fileErrorReason, WarmpathError } from './errors.js';
export type { OutlinedPiece, PieceKind, PromptOutline, PromptPiece } from './explain/outline.js';
export { outlinePrompt } from './explain/outline.js';
export type { BreakCause, PrefixBreak } from './explain/prefix-break.js';
export { BREAK_CAUSES, findPrefixBreak, sharedLength } from './explain/prefix-break.js';
export { fingerprint } from './fingerprint.js';
export { describeJsonError } from './json-error.js';
export { nearestName } from './nearest-name.js';
export { placesMoved } from './ordering/placement.js';
export type { PolicyOptions } from './ordering/policies.js';
export { createPolicy, createStatisticPolicy } from './ordering/policies.js';
export type { Context, CutShort, Ordering, OrderingPolicy, PolicyName } from './ordering/policy.js';
export { DEFAULT_POLICY, POLICY_NAMES } from './ordering/policy.js';
export type { PrewarmOptions, PrewarmPath } from './ordering/prewarm.js';
export { PREWARM_WINDOW, planPrewarm } from './ordering/prewarm.js';
export { limitShift, withCachedPrefix } from './ordering/retrieval-order.js';
export type { BatchPlan, PlanOptions, PlanStep } from './plan/plan.js';
export { planBatch } from './plan/plan.js';
export type { PathStep, Preamble } from './preamble.js';
export type { DocumentList, DocumentMemo, PrepareDocumentsOptions } from './prepare-documents.js';
export { DEFAULT_DOCUMENT_LIMITS, prepareDocuments } from './prepare-documents.js';
export type { PrepareRequestOptions } from './prepare-request.js';
export { prepareRequest, readPolicyName, requestSteps } from './prepare-request.js';
export { type RecencyLinks, RecencyList } from './recency-list.js';
export type {
  BlockFormat,
  DocumentBlock,
  DocumentSpan,
  FixedReason,
  FormatName,
  LabelRule,
  LabelSpan,
  PromptRole,
  PromptText,
} from './recognise/block.js';
export { FORMAT_NAMES } from './recognise/block.js';
export { type JsonTextOptions, JsonTextReader, type JsonValue } from './recognise/json-text.js';
export type { PromptFindings, Recognised, RecogniseOptions, RecognitionMode } from './recognise/recognise.js';
export { RECOGNITION_MODES, recognise, recogniseAll, recogniseBehind } from './recognise/recognise.js';
export type { References } from './recognise/references.js';
export type { RepeatedDocument, SeenMark, WithReferences } from './recognise/repeats.js';
export { hasRepeatedResult, SeenDocuments, withReferences, withResults } from './recognise/repeats.js';
export type { BlockRewrite } from './recognise/rewrite.js';
export { blockDocuments, rewriteText, type TextMove, textMoves } from './recognise/rewrite.js';
export type { SuggestedTemplate } from './recognise/suggest-template.js';
export { suggestTemplate } from './recognise/suggest-template.js';
export type { DocumentTemplate } from './recognise/template-regions.js';
export { hintTokens, renderHint } from './render/hints.js';
export type { PreambleOptions, RenderChatOptions } from './render/layout.js';
export {
  applyEdits,
  canonicalJson,
  chatEdits,
  chatPreamble,
  chatTokens,
  completionPreamble,
  messageSteps,
  renderChat,
  renderCompletion,
} from './render/layout.js';
export type {
  ChatEdit,
  ChatMessage,
  ContentPart,
  HintWording,
  LayoutName,
  RenderOptions,
  TemplateName,
} from './render/prompt.js';
export { DEFAULT_HINT_WORDING, HINT_PLACE, LAYOUT_NAMES, TEMPLATE_NAMES } from './render/prompt.js';
export type { RenderedFields } from './render/template.js';
export { documentName, renderDocument, renderDocuments } from './render/template.js';
export type { NodeOwner } from './replacement/eviction-queue.js';
export type { NodeUse, ReplacementPolicy, ReplacementPolicyName, Tier } from './replacement/policy.js';
export { REPLACEMENT_POLICY_NAMES, replacementPolicy, USE_HALF_LIFE } from './replacement/policy.js';
export type { PathUse, ReplacementOptions } from './replacement/replacement.js';
export { DEFAULT_USE_WINDOW, Replacement } from './replacement/replacement.js';
export type { BlockAnomalies, BlockIndexOptions, KvEvent, KvTier } from './residency/block-index.js';
export { BlockIndex, chainsOf, KV_TIERS } from './residency/block-index.js';
export type { DocumentStatisticsOptions } from './residency/document-statistics.js';
export type { EventResidencyOptions, PromptTokens } from './residency/event-residency.js';
export { EventResidency } from './residency/event-residency.js';
export type { IndexedTokens, ServedHistoryOptions, ServedRequest } from './residency/history.js';
export { ServedHistory } from './residency/history.js';
export type { EngineReport } from './residency/prediction-record.js';
export type {
  HeldPrompt,
  HeldSpan,
  OperationBudget,
  PromptSlotsOptions,
  SlotReuse,
  SlotUse,
} from './residency/prompt-slots.js';
export { PromptSlots, takeSpans } from './residency/prompt-slots.js';
export type { HotnessView, RecentRequestsView, ResidencyState, ResidencyView, SlotsView } from './residency/view.js';
export type { Route, RouteCandidate } from './route/cache-pressure.js';
export { CachePressure, expectedReuse } from './route/cache-pressure.js';
export type { CacheAwareSchedulerOptions } from './schedule/cache-aware.js';
export { CacheAwareScheduler } from './schedule/cache-aware.js';
export type { SentRequest } from './schedule/concurrency-limiter.js';
export { ConcurrencyLimiter } from './schedule/concurrency-limiter.js';
export type { FifoSchedulerOptions, PromptReuse, ReuseLookup, Scheduler, SchedulerName } from './schedule/scheduler.js';
export { FifoScheduler, SCHEDULER_NAMES } from './schedule/scheduler.js';
export type { SseHandler } from './server-sent-events.js';
export { ByteBuffer, SseReader } from './server-sent-events.js';
export type { ShortenedText } from './session/blocks.js';
export { SeenBlocks } from './session/blocks.js';
export type { ConversationLogOptions } from './session/conversation-log.js';
export { ConversationLog } from './session/conversation-log.js';
export type {
  ConversationStore,
  ConversationStoreListener,
  PeerNote,
  StoreFailure,
  StoreOperation,
} from './session/conversation-store.js';
export type { MessageBytes } from './session/message-chain.js';
export { answerHash, byteChain, messageChain } from './session/message-chain.js';
export type {
  ConversationName,
  MessagesByPlace,
  RecalledHistory,
  RecallRequest,
  TurnLookup,
} from './session/recall.js';
export { recallHistory } from './session/recall.js';
export type { SentDocument, SentTurn, TurnName, VisibleDocuments } from './session/sent-turn.js';
export { MAX_ANSWERS, MAX_RENDERINGS, NOTHING_VISIBLE } from './session/sent-turn.js';
export { isAmong, readSessionEntry, type SessionEntry, type SessionFilter } from './session/session-entry.js';
export { ANONYMOUS_TENANT, anonymousTenant, isAnonymousTenant } from './session/tenant.js';
export type { SearchStage, SpeculationAction, SpeculativePipelineOptions } from './speculation/pipeline.js';
export { SpeculativePipeline } from './speculation/pipeline.js';
export type { FinishedSearch, SpeculationGateOptions } from './speculation/speculation-gate.js';
export { SpeculationGate } from './speculation/speculation-gate.js';
export { estimateTokens, estimateTokensOfBytes } from './token-estimate.js';
export type { KnowledgeTreeOptions, ServedPath } from './tree/knowledge-tree.js';
export type { CachedPath, KnowledgeTreeView, PlacementRule, TreeNode } from './tree/view.js';
export type { WorkSteps } from './work-steps.js';
