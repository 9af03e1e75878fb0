import type { OutgoingHttpHeaders } from 'node:http';
import type { Arrangement, ArrangeRequest, DocumentBlock, ErrorCode, Preamble, Warning } from '@warmpath/core';
import type {
  BlockFormat,
  LabelMap,
  PrefixBreak,
  RecalledConversation,
  RepeatedDocument,
  SentTurn,
  SessionBreak,
} from '@warmpath/core/internal';
import type { ScoredDocument } from '@warmpath/retrieval';
import type { FastifyRequest } from 'fastify';
import type { ApiName, PromptApi, PromptView, ViewedMessages } from '../apis/prompt-view.js';
import type { RequestText, TextChange } from '../apis/request-texts.js';
import type { Translation } from '../apis/translate-request.js';
import type { PrefixKeeperName } from '../config/schema.js';
import type { ParsedRequest, RecordedSession } from '../intake/parse-request.js';
import type { BodyView } from '../json/json-body.js';
import type { TenantModel } from '../memory/served-histories.js';

// The shapes that a request takes on its way, in the order of the steps. None changes after it was made.

/** What a relay needs of the response to its client; Node's `ServerResponse` is one. */
export interface ClientResponse {
  readonly destroyed: boolean;
  readonly headersSent: boolean;
  readonly writableFinished: boolean;
  /** Whether nothing reaches the client yet. */
  readonly isHeld?: boolean;
  on(event: 'drain', listener: () => void): unknown;
  once(event: 'close' | 'drain', listener: () => void): unknown;
  prependListener(event: 'close', listener: () => void): unknown;
  removeListener(event: 'close', listener: () => void): unknown;
  getHeader(name: string): number | string | string[] | undefined;
  writeHead(status: number, headers: OutgoingHttpHeaders): unknown;
  flushHeaders(): void;
  write(data: Buffer | string, callback?: (error?: Error | null) => void): boolean;
  end(data?: Buffer | string): unknown;
  destroy(): unknown;
}

/** Where a call is answered; Fastify's `FastifyReply` is one. */
export interface CallReply {
  readonly raw: ClientResponse;
  /** Whether the answer was taken over. */
  readonly sent: boolean;
  /** Whether another answer takes the place of this one. */
  readonly isSuperseded?: boolean;
  hijack(): unknown;
  send(error: unknown): unknown;
}

/** Warnings as the client reads them; left out where there are none. */
export interface ClientWarnings {
  readonly warnings?: readonly Warning[];
}

/** The passages that an answer is made from, best first. A later stage of the search may rank them anew. */
export interface Sources {
  passages: readonly ScoredDocument[];
  /** What the search went without. */
  clientWarnings?: ClientWarnings;
}

/** Step 1, receive: one client call, authenticated, bounded and, where the engine needs it, translated. */
export interface Call {
  readonly request: FastifyRequest;
  readonly reply: CallReply;
  readonly tenant: string;
  /** The API that the client speaks. */
  readonly route: ApiName;
  /** The API in which the body is written. */
  readonly api: PromptApi;
  /** The client's, or its translation. */
  readonly body: Buffer;
  readonly translation?: Translation;
  /** What was retrieved for it. */
  readonly sources?: Sources;
}

/** Step 2, parse: the messages and the slots for documents. Known before an engine has room. */
export interface Prompt {
  /** What goes out if nothing is arranged: the client's bytes, without the gateway's own fields. */
  readonly body: Buffer;
  /** The conversation that the request continues; `undefined` where it names none. */
  readonly history: RecalledConversation | undefined;
  /** `undefined` for a prompt in which nothing is arranged. */
  readonly slots: InsertSlot | PermuteSlots | undefined;
  /** Labels of documents in the prompt that the answer must not show; `undefined` where there are none. */
  readonly labels?: LabelMap | undefined;
}

/**
 * The place for documents that the request brings beside its messages, or the next turn of a conversation to which
 * documents were added.
 */
export interface InsertSlot {
  readonly kind: 'insert';
  readonly parsed: ParsedRequest;
  /** `undefined` for a plain completion. */
  readonly view: PromptView | undefined;
  readonly viewed: ViewedMessages;
  readonly request: ArrangeRequest & { readonly preamble: Preamble };
  /** What earlier turns were rendered to; of a request without a conversation, nothing. */
  readonly history: RecalledConversation;
  /** What is asked (core's `suppliedHash`). */
  readonly supplied: string;
  /** The same turn, where it was sent before: it goes out as it did then. */
  readonly repeated: SentTurn | undefined;
}

/** The blocks of one message, and when the message was said. */
export interface RecognisedMessage {
  /** Which of the messages in the body it is. */
  readonly position: number;
  /** Link of the hash chain over the client's messages up to this one. */
  readonly link: string;
  /** The link before this one; empty for the first message. */
  readonly linkBefore: string;
  /** Which of the texts is its first. */
  readonly firstText: number;
  readonly blocks: readonly DocumentBlock[];
  /** Whether its order may still be decided: a system prompt, or what came since the model last spoke. */
  readonly isNew: boolean;
}

/** A request that names no documents, and has some in its texts. */
export interface RecognisedRequest {
  readonly api: PromptApi;
  /** The body, complete but for the gateway's own fields. */
  readonly view: BodyView;
  readonly model: string;
  /**
   * All texts in the order in which the model reads them, with ids of markers that do not change from request to
   * request.
   */
  readonly texts: readonly RequestText[];
  /** The same as the client wrote them. */
  readonly given: readonly RequestText[];
  /** Those with documents, in their order. */
  readonly messages: readonly RecognisedMessage[];
  /** What decides the prompt's beginning beside the messages: model, tools and the like, as the client wrote them. */
  readonly scope: string;
  /** `undefined` where all labels are the client's. */
  readonly mapped?: MappedLabels | undefined;
}

/** Labels of their own that documents have in `RecognisedRequest.texts`. */
interface MappedLabels {
  readonly map: LabelMap;
  /** The labels of each block that has some, as one key. */
  readonly labels: ReadonlyMap<DocumentBlock, string>;
  /** What changes beside the texts: inputs of tool calls that the model made. */
  readonly changes: readonly TextChange[];
}

/** The places at which documents stand in the texts of the prompt already. */
export interface PermuteSlots {
  readonly kind: 'permute';
  readonly found: RecognisedRequest;
  /** Policy and bounds of the request, or the configured ones. */
  readonly switches: ArrangeRequest;
  /** Whether a document that the prompt shows already is referred to, and parts of one. */
  readonly deduplicate: boolean;
  readonly blocks: boolean;
}

/** What the gateway did instead, when a defect of its own kept it from arranging. */
export type Fallback = 'retrieval' | 'original' | 'conversation';

/** What a request went without, and why. */
export interface RecordedFallback {
  readonly fallback: Fallback;
  /** The name of an error or its code, or the state of the store; never its message, which may quote the request. */
  readonly reason: string;
}

/** What became of the documents of one slot. */
export interface DecidedSlot {
  /** `documents`: those of the request's own field. */
  readonly format: BlockFormat | 'documents';
  readonly documents: number;
  readonly decided: 'arranged' | 'replayed' | 'fixed' | 'history';
  /** `order[place]` is the rank of the document that stood there. */
  readonly order: readonly number[];
  /**
   * `none`: no label counts the documents. `kept`: a label moves with its document. `mapped`: the prompt has other
   * labels, and the answer the client's.
   */
  readonly labels: 'none' | 'kept' | 'mapped';
  /** Ranks of the documents that stand farther up in full, and were referred to. */
  readonly references: readonly number[];
  /** Ranks of the documents of which parts stand farther up, and were referred to. */
  readonly shortened: readonly number[];
}

/** How the documents of one block were sent. */
export interface SentOrder {
  /** `order[place]` is the rank of the document that stood there. */
  readonly order: readonly number[];
  readonly labels: DecidedSlot['labels'];
  /** Ranks of the documents that a reference stood for. */
  readonly references: readonly number[];
  /** Ranks of the documents of which parts were references. */
  readonly shortened: readonly number[];
}

/** A block of a request, and what became of its documents. */
export interface PlacedBlock {
  /** As the client wrote it. */
  readonly block: DocumentBlock;
  readonly sent: SentOrder;
  /** Its documents that stand farther up in full, or in part, and are referred to. */
  readonly references: readonly RepeatedDocument[];
  /**
   * `replayed`: sent before, sent the same. `fixed`: the prompt forbids it, or it is one result. `history`: no longer
   * new, and never seen.
   */
  readonly decided: DecidedSlot['decided'];
  /** For arranged ones. */
  readonly arrangement: Arrangement | undefined;
}

/** The documents of a request in their places. */
export interface InPlace {
  /** Other texts for places of the body. */
  readonly changes: readonly TextChange[];
  /** Results of tools among them, whether anything became of them or not (`isReported`). */
  readonly blocks: readonly PlacedBlock[];
  /** The whole prompt's texts, in estimated tokens. */
  readonly estimatedTokens: number;
}

/** Step 3, decide: the order of each slot and its references, for one engine. A second try makes another one. */
export interface Decision {
  /** `undefined` where nothing was arranged. */
  readonly state: TenantModel | undefined;
  /** In the order of the prompt; the last one goes farthest into it. */
  readonly arrangements: readonly Arrangement[];
  /** What changes in the texts; only of slots to permute. */
  readonly placed: InPlace | undefined;
  readonly summary: DecisionSummary;
}

/** What is told of a decision: in the header, the log, the metrics and the record. */
export interface DecisionSummary {
  /** The ordering policy that decided. */
  readonly policy: string | undefined;
  /** Documents that the request brought, or that stood in its prompt; `undefined` where nothing was arranged. */
  readonly documents: number | undefined;
  /** Of these, found where they stand in the prompt. */
  readonly recognised: number | undefined;
  readonly documentsMoved: number | undefined;
  /**
   * Documents that the conversation shows already, those of which it shows parts, and tokens of both that were not sent
   * again.
   */
  readonly references: number;
  readonly shortened: number;
  readonly deduplicatedTokens: number;
  /** Earlier turns of the conversation that were sent as they had been rendered. */
  readonly replayedTurns: number;
  readonly slots: readonly DecidedSlot[];
  readonly predictedCachedTokens: number | undefined;
  readonly warnings: readonly Warning[];
}

/** Of a prompt in which nothing is arranged. */
export const NOTHING_DONE: DecisionSummary = {
  policy: undefined,
  documents: undefined,
  recognised: undefined,
  documentsMoved: undefined,
  references: 0,
  shortened: 0,
  deduplicatedTokens: 0,
  replayedTurns: 0,
  slots: [],
  predictedCachedTokens: undefined,
  warnings: [],
};

/** Step 4, render: the body for the engine, and what is to be learned when it goes out. */
export interface Sent {
  readonly body: Buffer;
  /** The whole prompt, in estimated tokens. */
  readonly estimatedTokens: number;
  /** Maps labels in the answer back to the client's; `undefined` where the prompt has the client's labels. */
  readonly labels: LabelMap | undefined;
  /** What is to be remembered of the turn, and behind what; only of named conversations. */
  readonly turn: { readonly history: RecalledConversation; readonly sent: SentTurn } | undefined;
}

/** Where a prompt parted from the earlier one that it shares most with. */
export interface RecordedPrefix {
  /** The earlier request's id; `null` if there was none to compare with. */
  readonly comparedWith: string | null;
  readonly break: (PrefixBreak & { readonly remedy: string }) | null;
}

/** What a prompt of a session computed again, why, and what to do about it. */
export interface RecordedBreak extends SessionBreak {
  readonly remedy: string;
  /** What that cost; `null` without a configured price. */
  readonly cost: number | null;
}

/** How the passages of a request were looked for. */
export interface RecordedRetrieval {
  /** Milliseconds until the last stage that came. */
  readonly ms: number;
  readonly stages: number;
  readonly passages: number;
  /** Whether a generation that started before the search was over was the right one; `null` where none did. */
  readonly speculation: 'confirmed' | 'wrong' | null;
  /** Milliseconds by which the generation that was answered began before the end of the search. */
  readonly aheadMs: number;
}

/** Which engine got a request, and why. Tokens are estimates. */
export interface ChosenEngine {
  readonly name: string;
  /** Engines that it could have gone to. */
  readonly candidates: number;
  /** Tokens to compute: of this request, and before it. */
  readonly newTokens: number;
  readonly pendingTokens: number;
  /** How many engines failed to answer it before. */
  readonly tried: number;
}

/** Who failed: the gateway, which refused or broke, or the engine behind it. */
export type ErrorSource = 'gateway' | 'upstream';

/** Why a prompt, or a kind of prompt, gains nothing. Of a prompt, the first reason that holds is told. */
export const NO_GAIN_REASONS = {
  failed: 'The request failed, or the gateway sent it unchanged because of a defect of its own.',
  holdout: 'The prompt is in the group that stays unchanged for comparison (`holdout`).',
  bypass: 'The request asked the gateway to change nothing.',
  'recognise-off': 'The configuration says that documents in prompts stay where they are (`recognise: off`).',
  'nothing-reused':
    'The engine reuses nothing of earlier prompts: its cache is off, or its model allows none. Documents keep their order.',
  'too-short': "The prompt is too short for the blocks of the engine's cache.",
  'kind-refused': 'The operator has refused this kind of prompt.',
  'question-first':
    'The question stands before the documents. The engine can cache nothing behind it. Put the question behind the documents.',
  'changing-text-first':
    'Text that changes stands before the documents. The engine can cache nothing behind it. Put it behind the documents.',
  'labels-by-position':
    'The program labels its documents by position, so a document has other bytes at another place. Mapped labels solve this.',
  'few-documents': 'Fewer than two documents can be told apart. There is nothing to order.',
  'own-order':
    'The documents have an order of their own, such as dates, numbers or versions, or the prompt refers to their places. Allow the kind only if the model does not need this order.',
  'tool-result':
    'The documents are the result of a tool. Allow the kind only if no later call refers to a document by its position.',
  'program-text':
    'The program says something to the model. Read its text: allow the kind only if it states no order of the documents.',
  'kind-not-allowed': 'Documents were found. The operator has not allowed this kind of prompt: see `warmpath prompts`.',
  'no-documents': 'The prompt is of no known kind and marks no documents. A kind is known after 20 of its prompts.',
  'not-counted': 'The gain is not known: the engine reports no counts, or the prompt is too long to compare.',
  'no-better-order': 'No order would have reused more: no document was cached yet, or retrieval order was the best.',
  'not-reused': 'The documents were arranged, and the engine reused no more. Its cache may be too small, or off.',
} as const satisfies Readonly<Record<string, string>>;

export type NoGainReason = keyof typeof NO_GAIN_REASONS;

/** What is told of a request while it is under way. */
export interface ReportSoFar extends DecisionSummary {
  readonly requestId: string;
  readonly traceId: string | undefined;
  /** When its headers had come, in milliseconds of the gateway's clock. */
  readonly arrivedAt: number;
  /** Set for prompts. */
  readonly tenant: string | undefined;
  /** The model that the prompt names; empty where it names none. */
  readonly model: string | undefined;
  /** Milliseconds until its body was complete. */
  readonly receivedMs: number;
  /** Milliseconds of the gateway's own work, until the request went out to the engine. Waiting is not counted. */
  readonly overheadMs: number | undefined;
  readonly queuedMs: number | undefined;
  readonly retrieval: RecordedRetrieval | undefined;
  readonly retrievalWarnings: readonly Warning[];
  readonly failedOpen: readonly RecordedFallback[];
  readonly fallback: Fallback | undefined;
  readonly engine: ChosenEngine | undefined;
  /** `ignored`: the request lacks an end user. */
  readonly conversation: 'new' | 'known' | 'forgotten' | 'ignored' | undefined;
  /** The conversation that it names, and that it belongs to. */
  readonly session: RecordedSession | undefined;
  /** What it lost of the cache, where its session had more of it there. */
  readonly sessionBreak: RecordedBreak | undefined;
  readonly errorCode: ErrorCode | undefined;
  readonly errorSource: ErrorSource | undefined;
  readonly prefix: RecordedPrefix | undefined;
  /** As the engine counted them; `undefined` where it does not say. */
  readonly promptTokens: number | undefined;
  readonly cachedTokens: number | undefined;
  /** Prompt tokens that would be cached without the gateway, as predicted before the engine counted the prompt. */
  readonly predictedBaselineTokens: number | undefined;
  /** The same in the engine's count of the prompt; `undefined` where it counted nothing. */
  readonly baselineTokens: number | undefined;
  /** Cached tokens without those of the baseline; 0 for a prompt that went out as its client wrote it. */
  readonly gainTokens: number | undefined;
  /** Tokens that the engine wrote into its cache for a price of their own; they are no cached tokens. */
  readonly cacheWriteTokens: number | undefined;
  /** What the prompt cost, and would have cost without the gateway; `undefined` without a configured price. */
  readonly cost: number | undefined;
  readonly baselineCost: number | undefined;
  /** Whether the prompt went out as its client wrote it; `undefined` for what is no prompt. */
  readonly isUnchanged: boolean | undefined;
  /** What was changed so that the prompt begins as earlier ones did. */
  readonly keptPrefix: readonly PrefixKeeperName[];
  /** Whether documents have labels of their own in the prompt, and the answer the client's. */
  readonly mapsLabels: boolean;
  /** Whether it is of the group that is left as it is (`holdout`). */
  readonly isHeldOut: boolean;
  /** Why nothing was gained; `undefined` where something was, and for what is no prompt. */
  readonly noGain: NoGainReason | undefined;
  /** Milliseconds from the dispatch to the engine until its first content. */
  readonly ttftMs: number | undefined;
}

/**
 * Step 6, report: what became of one request. Log, metrics, spans, header, records and the dashboard read it. Counts
 * and times; no text.
 */
export interface Report extends ReportSoFar {
  readonly method: string;
  /** The path as the gateway knows it, for instance `/v1/chat/completions`; never the client's own. */
  readonly route: string;
  /** What was sent; 499 for a client that left before. */
  readonly status: number;
  readonly durationMs: number;
}
