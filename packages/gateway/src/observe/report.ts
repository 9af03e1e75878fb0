import { randomUUID } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { ErrorCode, Warning } from '@warmpath/core';
import { ANONYMOUS_CALLER, type Caller } from '../intake/authenticate.js';
import type { ReceivedBody } from '../intake/request-body.js';
import {
  type ChosenEngine,
  type DecisionSummary,
  type ErrorSource,
  type Fallback,
  NOTHING_DONE,
  type RecordedFallback,
  type RecordedPrefix,
  type RecordedRetrieval,
  type Report,
  type ReportSoFar,
} from '../shapes/shapes.js';
import type { RequestTrace } from './tracing.js';

const NONE: readonly never[] = [];

const SANE_REQUEST_ID = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/;

/** What the steps of one request have told so far. Each step sets its own field; its report is made of them. */
export class ReportBuilder {
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
  /** What is known of the conversation that the request names. `ignored`: the request lacks an end user. */
  conversation: ReportSoFar['conversation'];
  /** What a translation into another API left out. */
  translationWarnings: readonly Warning[] = NONE;
  /** What was decided about the documents; of several tries, the latest. */
  decision: DecisionSummary = NOTHING_DONE;
  errorCode: ErrorCode | undefined;
  errorSource: ErrorSource | undefined;
  /** Set for prompts that are compared with earlier ones. */
  prefix: RecordedPrefix | undefined;
  /** Set for prompts. */
  tenant: string | undefined;
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

  /** What is known by now, as the response header tells it. */
  soFar(): ReportSoFar {
    const { decision, translationWarnings } = this;
    return {
      requestId: this.requestId,
      traceId: this.trace?.traceId,
      arrivedAt: this.arrivedAt,
      tenant: this.tenant,
      receivedMs: this.bodyAt - this.arrivedAt,
      overheadMs: this.overheadMs,
      queuedMs: this.queuedMs,
      retrieval: this.retrieval,
      retrievalWarnings: this.retrievalWarnings,
      failedOpen: this.failedOpen,
      fallback: this.fallback,
      engine: this.engine,
      conversation: this.conversation,
      errorCode: this.errorCode,
      errorSource: this.errorSource,
      ...decision,
      warnings: [...translationWarnings, ...decision.warnings],
      prefix: this.prefix,
      promptTokens: this.promptTokens,
      cachedTokens: this.cachedTokens,
      ttftMs: this.ttftMs,
    };
  }

  /** The request is over. */
  end({ method, route, status, now }: RequestEnd): Report {
    return { ...this.soFar(), method, route, status, durationMs: now - this.arrivedAt };
  }
}

/** How a request ended. */
interface RequestEnd {
  readonly method: string;
  /** The path as the gateway knows it, for instance `/v1/chat/completions`; never the client's own. */
  readonly route: string;
  /** What was sent; 499 for a client that left before. */
  readonly status: number;
  readonly now: number;
}
