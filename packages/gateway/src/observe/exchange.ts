import { randomUUID } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { ErrorCode, Warning } from '@warmpath/core';
import type { BlockFormat, LabelRule, PrefixBreak } from '@warmpath/core/internal';
import type { ChosenEngine } from '../engines/engines.js';
import { ANONYMOUS_CALLER, type Caller } from '../intake/authenticate.js';
import type { ReceivedBody } from '../intake/request-body.js';
import type { RequestTrace } from './tracing.js';

/** What the gateway did instead, when a defect of its own kept it from arranging. */
export type Fallback = 'retrieval' | 'original' | 'conversation';

/** What became of documents that stand side by side. */
export interface RecordedBlock {
  /** `documents`: those of the request's own field. */
  readonly format: BlockFormat | 'documents';
  readonly documents: number;
  readonly decided: 'arranged' | 'replayed' | 'fixed' | 'history';
  /** `order[place]` is the rank of the document that stood there. */
  readonly order: readonly number[];
  readonly labels: LabelRule;
  /** Ranks of the documents that stand farther up in full, and were referred to. */
  readonly references: readonly number[];
  /** Ranks of the documents of which parts stand farther up, and were referred to. */
  readonly shortened: readonly number[];
}

/** Where a prompt parted from the earlier one that it shares most with. */
export interface RecordedPrefix {
  /** The earlier request's id; `null` if there was none to compare with. */
  readonly comparedWith: string | null;
  readonly break: (PrefixBreak & { readonly remedy: string }) | null;
}

/** What a request went without, and why. */
export interface RecordedFallback {
  readonly fallback: Fallback;
  /**
   * The name of an error or its code, or what became of the store of conversations; never its message, which may quote
   * the request.
   */
  readonly reason: string;
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

/** Who failed: the gateway, which refused or broke, or the engine behind it. */
export type ErrorSource = 'gateway' | 'upstream';

const NONE: readonly never[] = [];

const SANE_REQUEST_ID = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/;

/** One client request on its way through the gateway: what the access log and the metrics say about it in the end. */
export class Exchange {
  /** The client's `x-request-id` if it is a plain token of at most 128 characters, else a new UUID. */
  readonly requestId: string;
  /** When the request's headers had come, in milliseconds of the monotonic clock. */
  readonly arrivedAt: number;
  /** Who sent it; set before the body is read. */
  caller: Caller = ANONYMOUS_CALLER;
  /** When the request's body was complete and the gateway's own work began. */
  bodyAt: number;
  /**
   * Milliseconds of the gateway's own work, from the complete body until the request went out to the engine, waiting
   * not counted.
   */
  overheadMs: number | undefined;
  /** Milliseconds in the queue; `undefined` for a request that did not wait. */
  queuedMs: number | undefined;
  /** How passages were looked for; `undefined` for a request that asked for none. */
  retrieval: RecordedRetrieval | undefined;
  /** What a search went without. */
  retrievalWarnings: readonly Warning[] = NONE;
  /** What a defect, or a store that did not answer, cost this request. */
  failedOpen: readonly RecordedFallback[] = NONE;
  /** What was sent in place of the arranged prompt, where something was. */
  fallback: Fallback | undefined;
  /** Which of several engines got it, and what was weighed. */
  engine: ChosenEngine | undefined;
  /** The ordering policy that decided. */
  policy: string | undefined;
  /** What is known of the conversation that the request names. `ignored`: the request lacks an end user. */
  conversation: 'new' | 'known' | 'forgotten' | 'ignored' | undefined;
  /** What was left out or mended. */
  warnings: readonly Warning[] = NONE;
  errorCode: ErrorCode | undefined;
  errorSource: ErrorSource | undefined;
  documents: number | undefined;
  /** Of these, found where they stand in the prompt. */
  recognised: number | undefined;
  documentsMoved: number | undefined;
  /**
   * Documents that the conversation shows already, those of which it shows parts, and tokens of both that were not sent
   * again.
   */
  references = 0;
  shortened = 0;
  deduplicatedTokens = 0;
  /** Earlier turns of the conversation that were sent as they had been rendered. */
  replayedTurns = 0;
  /** What became of documents that stand side by side. */
  blocks: readonly RecordedBlock[] = NONE;
  /** Set for prompts that are compared with earlier ones. */
  prefix: RecordedPrefix | undefined;
  /** Set for prompts. */
  tenant: string | undefined;
  predictedCachedTokens: number | undefined;
  promptTokens: number | undefined;
  cachedTokens: number | undefined;
  /** Milliseconds from the dispatch to the engine until its first content. */
  ttftMs: number | undefined;
  /** Only where somebody records spans. */
  trace: RequestTrace | undefined;
  #isOver = false;
  #body: ReceivedBody | undefined;

  constructor(headers: IncomingHttpHeaders, now: number) {
    const given = headers['x-request-id'];
    this.requestId = typeof given === 'string' && SANE_REQUEST_ID.test(given) ? given : randomUUID();
    this.arrivedAt = now;
    this.bodyAt = now;
  }

  /** Whether its answer has ended, or its client has left. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** The request has a body, whose memory is given back when it is over. */
  holds(body: ReceivedBody): void {
    this.#body = body;
  }

  /** The request is over. */
  letGo(): void {
    this.#isOver = true;
    this.#body?.release();
    this.#body = undefined;
  }

  wentWithout(fallback: RecordedFallback): void {
    this.failedOpen = [...this.failedOpen, fallback];
    this.fallback ??= fallback.fallback;
  }

  failed(code: ErrorCode, source: ErrorSource): void {
    this.errorCode = code;
    this.errorSource = source;
  }
}
