export { arrange, observe } from './arrange.js';
export type { Arrangement, ArrangeRequest, Outcome } from './arrangement.js';
export {
  editsOf,
  plainTurn,
  recordTurn,
  renderTurn,
  repeatedOrder,
  repeatedTurn,
  shownSegments,
  suppliedHash,
  turnEdits,
  turnPreamble,
} from './conversation.js';
export type { CostModel, PrefillProfile } from './cost-model.js';
export { profiledCost } from './cost-model.js';
export type { Document, DocumentInput, TokenCounter } from './document.js';
export type { ErrorCode, Warning } from './errors.js';
export { ERROR_TABLE, fileErrorReason, WarmpathError } from './errors.js';
export type { PromptOutline, PromptPiece } from './explain/outline.js';
export { outlinePrompt } from './explain/outline.js';
export type { PrefixBreak } from './explain/prefix-break.js';
export { BREAK_CAUSES, findPrefixBreak, sharedLength } from './explain/prefix-break.js';
export { fingerprint } from './fingerprint.js';
export { describeJsonError } from './json-error.js';
export { nearestName } from './nearest-name.js';
export { placesMoved } from './ordering/placement.js';
export { createPolicy, createStatisticPolicy } from './ordering/policies.js';
export type { Context, Ordering, OrderingPolicy, PolicyName } from './ordering/policy.js';
export { DEFAULT_POLICY, POLICY_NAMES } from './ordering/policy.js';
export type { PrewarmOptions, PrewarmPath } from './ordering/prewarm.js';
export { PREWARM_WINDOW, planPrewarm } from './ordering/prewarm.js';
export { limitShift, withCachedPrefix } from './ordering/retrieval-order.js';
export type { BatchPlan, PlanOptions } from './plan/plan.js';
export { planBatch } from './plan/plan.js';
export type { PathStep, Preamble } from './preamble.js';
export { DEFAULT_DOCUMENT_LIMITS, prepareDocuments } from './prepare-documents.js';
export type { PrepareRequestOptions } from './prepare-request.js';
export { prepareRequest, readPolicyName, requestSteps } from './prepare-request.js';
export { printableJson, printableLine, printableText } from './printable.js';
export { type RecencyLinks, RecencyList } from './recency-list.js';
export type { BlockFormat, DocumentBlock, FixedReason, FormatName, LabelRule, PromptText } from './recognise/block.js';
export { JsonTextReader, type JsonValue } from './recognise/json-text.js';
export type { RecogniseOptions, RecognitionMode } from './recognise/recognise.js';
export { RECOGNITION_MODES, recognise } from './recognise/recognise.js';
export type { References } from './recognise/references.js';
export type { RepeatedDocument } from './recognise/repeats.js';
export { hasRepeatedResult, SeenDocuments, withReferences, withResults } from './recognise/repeats.js';
export type { BlockRewrite } from './recognise/rewrite.js';
export { blockDocuments, rewriteText, type TextMove, textMoves } from './recognise/rewrite.js';
export { suggestTemplate } from './recognise/suggest-template.js';
export type { DocumentTemplate } from './recognise/template-regions.js';
export { hintTokens, renderHint } from './render/hints.js';
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
export { renderDocument, renderDocuments } from './render/template.js';
export type { NodeOwner } from './replacement/eviction-queue.js';
export type { ReplacementPolicy, ReplacementPolicyName, Tier } from './replacement/policy.js';
export { REPLACEMENT_POLICY_NAMES, replacementPolicy, USE_HALF_LIFE } from './replacement/policy.js';
export { Replacement } from './replacement/replacement.js';
export type { KvEvent, KvTier } from './residency/block-index.js';
export type { PromptTokens } from './residency/event-residency.js';
export { EventResidency } from './residency/event-residency.js';
export type { ServedHistoryOptions, ServedRequest } from './residency/history.js';
export { ServedHistory } from './residency/history.js';
export type { EngineReport } from './residency/prediction-record.js';
export type { HeldPrompt, PromptSlotsOptions } from './residency/prompt-slots.js';
export { PromptSlots, takeSpans } from './residency/prompt-slots.js';
export type { ResidencyView } from './residency/view.js';
export type { RouteCandidate } from './route/cache-pressure.js';
export { CachePressure, expectedReuse } from './route/cache-pressure.js';
export { CacheAwareScheduler } from './schedule/cache-aware.js';
export type { PromptReuse, ReuseLookup, Scheduler, SchedulerName } from './schedule/scheduler.js';
export { FifoScheduler, SCHEDULER_NAMES } from './schedule/scheduler.js';
export { ByteBuffer, SseReader } from './server-sent-events.js';
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
export type { ConversationName, MessagesByPlace, RecalledHistory, TurnLookup } from './session/recall.js';
export { recallHistory } from './session/recall.js';
export { SeenSegments } from './session/segments.js';
export type { SentTurn, TurnName } from './session/sent-turn.js';
export { MAX_ANSWERS, MAX_RENDERINGS, NOTHING_VISIBLE } from './session/sent-turn.js';
export { isAmong, readSessionEntry, type SessionEntry, type SessionFilter } from './session/session-entry.js';
export { ANONYMOUS_TENANT, anonymousTenant, isAnonymousTenant } from './session/tenant.js';
export type { SpeculationAction, SpeculativePipelineOptions } from './speculation/pipeline.js';
export { SpeculativePipeline } from './speculation/pipeline.js';
export { SpeculationGate } from './speculation/speculation-gate.js';
export { estimateTokens, estimateTokensOfBytes } from './token-estimate.js';
export type { KnowledgeTreeView, TreeNode } from './tree/view.js';
export type { WorkSteps } from './work-steps.js';
