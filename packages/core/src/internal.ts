/**
 * What Warmpath's own packages share beyond the public names of `@warmpath/core`. No promise of stability: any release
 * may change or remove a name.
 */

export type { AnswerFailure } from './answer-failure.js';
export { failureOfText, readFailure } from './answer-failure.js';
export type { AnswerStep, CallStep, FinishReason, TextStep } from './answer-steps.js';
export { AnswerStepReader, ObjectEnd } from './answer-steps.js';
export {
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
export {
  DOCUMENT_FIELDS,
  DOCUMENT_ID_FIELDS,
  isBlank,
  isRecord,
  NESTED_DOCUMENT_FIELDS,
  readRawDocument,
  TEXT_PLACES,
} from './document.js';
export type { RouteCandidate } from './engine-router.js';
export { EngineRouter, expectedCachedTokens } from './engine-router.js';
export { ERROR_TABLE, fileErrorReason } from './errors.js';
export type { PrefixBreak, PromptOutline, PromptPiece } from './explain/prefix-break.js';
export { BREAK_CAUSES, findPrefixBreak, outlinePrompt, sharedCharacters } from './explain/prefix-break.js';
export type { AnsweredPrompt, SessionBreak } from './explain/session-break.js';
export {
  findSessionBreak,
  isSameThread,
  lostCost,
  promptCost,
  SESSION_BREAK_CAUSES,
  withHourWrites,
} from './explain/session-break.js';
export { fingerprint } from './fingerprint.js';
export { describeJsonError } from './json-error.js';
export type { CitationMapper } from './kinds/citations.js';
export { LabelMap } from './kinds/label-map.js';
export type { KindDocuments, KindNotice, PromptKind } from './kinds/learned-kind.js';
export { programParts } from './kinds/learned-kind.js';
export type { ProgramText } from './kinds/program-text.js';
export { PromptKinds } from './kinds/prompt-kinds.js';
export { RecurrenceHistory } from './kinds/recurrence.js';
export { nearestName } from './nearest-name.js';
export { placesMoved } from './ordering/placement.js';
export { createPolicy, createStatisticPolicy } from './ordering/policies.js';
export { DEFAULT_POLICY } from './ordering/policy.js';
export type { PathStep } from './preamble.js';
export type { PrepareRequestOptions, WorkSteps } from './prepare-request.js';
export { DEFAULT_DOCUMENT_LIMITS, readPolicyName, requestSteps } from './prepare-request.js';
export { printableJson, printableLine, printableText } from './printable.js';
export { readTokenCounts, readUsage, type TokenCounts } from './read-usage.js';
export type { BlockFormat, FixedReason, FormatName } from './recognise/block.js';
export { JsonTextReader, type JsonValue } from './recognise/json-text.js';
export type { RepeatedDocument } from './recognise/repeats.js';
export { hasRepeatedResult, withResults } from './recognise/repeats.js';
export type { BlockRewrite } from './recognise/rewrite.js';
export { isCounted, type TextMove, textMoves } from './recognise/rewrite.js';
export { canonicalJson, chatEdits, chatTokens, completionPreamble, hintTokens } from './render/layout.js';
export type { ChatEdit, ContentPart } from './render/prompt.js';
export { LAYOUT_NAMES, TEMPLATE_NAMES } from './render/prompt.js';
export { renderDocuments } from './render/template.js';
export type { NodeOwner } from './replacement/eviction-queue.js';
export type { ReplacementPolicy, ReplacementPolicyName, Tier } from './replacement/replacement.js';
export { REPLACEMENT_POLICY_NAMES, Replacement, replacementPolicy } from './replacement/replacement.js';
export type { KvEvent } from './residency/block-index.js';
export type { PromptTokens } from './residency/event-residency.js';
export { EventResidency } from './residency/event-residency.js';
export type { ServedRequest } from './residency/history.js';
export type { HeldPrompt, HeldSpan, PromptSlotsOptions } from './residency/prompt-slots.js';
export { leadingSpans, PromptSlots } from './residency/prompt-slots.js';
export type { PromptReuse, ReuseLookup, Scheduler, SchedulerName } from './schedule/scheduler.js';
export { RequestScheduler, SCHEDULER_NAMES } from './schedule/scheduler.js';
export { ByteBuffer, bodyStart, SseReader } from './server-sent-events.js';
export type { ConversationLogOptions } from './session/conversation-log.js';
export { ConversationLog } from './session/conversation-log.js';
export type {
  ConversationStore,
  ConversationStoreListener,
  PeerNote,
  SharedRecords,
  StoreFailure,
  StoreOperation,
} from './session/conversation-store.js';
export { SeenSegments } from './session/dedup.js';
export { keySorted, messageMeaning, saysTheSame } from './session/message-meaning.js';
export type {
  ByteRange,
  ConversationName,
  MessageSource,
  RecalledConversation,
  SentTurn,
  TurnLookup,
  TurnName,
} from './session/recall.js';
export {
  answerHash,
  byteChain,
  MAX_ANSWERS,
  MAX_RENDERINGS,
  messageChain,
  NOTHING_VISIBLE,
  recallConversation,
} from './session/recall.js';
export type { CacheTerms, ToolResult } from './session/rewrite-results.js';
export { rewriteResults } from './session/rewrite-results.js';
export { matchesFilter, readSessionEntry, type SessionEntry, type SessionFilter } from './session/session-entry.js';
export type { SpeculationAction, SpeculativePipelineOptions } from './speculation.js';
export { SpeculationGate, SpeculativePipeline } from './speculation.js';
export { ANONYMOUS_TENANT, anonymousTenant, isAnonymousTenant, TenantCache } from './tenant-cache.js';
export { costOfBytes, estimateTokensOfBytes } from './token-estimate.js';
export type { KnowledgeTreeView, TreeNode } from './tree/view.js';
