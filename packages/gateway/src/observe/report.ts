import { randomUUID } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { ErrorCode, Warning } from '@warmpath/core';
import { promptCost } from '@warmpath/core/internal';
import type { PrefixKeeperName, TokenPrice } from '../config/schema.js';
import { ANONYMOUS_CALLER, type Caller } from '../intake/authenticate.js';
import type { ReceivedBody } from '../intake/request-body.js';
import {
  type ChosenEngine,
  type DecisionSummary,
  type ErrorSource,
  type Fallback,
  NOTHING_DONE,
  type NoGainReason,
  type RecordedFallback,
  type RecordedPrefix,
  type RecordedRetrieval,
  type Report,
  type ReportSoFar,
} from '../shapes/shapes.js';
import type { RequestTrace } from './tracing.js';

const NONE: readonly never[] = [];

const ACCEPTED_REQUEST_ID = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/;

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
  session: ReportSoFar['session'];
  sessionBreak: ReportSoFar['sessionBreak'];
  /** What a translation into another API left out. */
  translationWarnings: readonly Warning[] = NONE;
  /** What was changed so that the prompt begins as earlier ones did. */
  keptPrefix: readonly PrefixKeeperName[] = NONE;
  /** Tokens by which results of tools were shortened, estimated. */
  rewrittenTokens = 0;
  /** What was decided about the documents; of several tries, the latest. */
  decision: DecisionSummary = NOTHING_DONE;
  errorCode: ErrorCode | undefined;
  errorSource: ErrorSource | undefined;
  /** Set for prompts that are compared with earlier ones. */
  prefix: RecordedPrefix | undefined;
  /** Set for prompts. */
  tenant: string | undefined;
  model: string | undefined;
  promptTokens: number | undefined;
  cachedTokens: number | undefined;
  predictedBaselineTokens: number | undefined;
  baselineTokens: number | undefined;
  /** Tokens that were written into the cache for a price, and those that would have been without the gateway. */
  cacheWriteTokens: number | undefined;
  baselineWriteTokens = 0;
  /** What tokens of its model cost, where that is configured. */
  price: TokenPrice | undefined;
  /** Whether the prompt went out as its client wrote it; `undefined` for what is no prompt. */
  isUnchanged: boolean | undefined;
  /** Whether documents have labels of their own in the prompt, and the answer the client's. */
  mapsLabels = false;
  /** Whether it is left as it is, to compare others with. */
  isHeldOut = false;
  /** Why documents stay where they are, or can gain nothing there, where that does not follow from the decision. */
  unmoved: NoGainReason | undefined;
  /** Milliseconds from the dispatch to the engine until its first content. */
  ttftMs: number | undefined;
  /** Only where spans are recorded. */
  trace: RequestTrace | undefined;
  #isOver = false;
  #body: ReceivedBody | undefined;

  constructor(headers: IncomingHttpHeaders, now: number) {
    const given = headers['x-request-id'];
    this.requestId = typeof given === 'string' && ACCEPTED_REQUEST_ID.test(given) ? given : randomUUID();
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
  release(): void {
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
      model: this.model,
      receivedMs: this.bodyAt - this.arrivedAt,
      overheadMs: this.overheadMs,
      queuedMs: this.queuedMs,
      retrieval: this.retrieval,
      retrievalWarnings: this.retrievalWarnings,
      failedOpen: this.failedOpen,
      fallback: this.fallback,
      engine: this.engine,
      conversation: this.conversation,
      session: this.session,
      sessionBreak: this.sessionBreak,
      errorCode: this.errorCode,
      errorSource: this.errorSource,
      ...decision,
      deduplicatedTokens: decision.deduplicatedTokens + this.rewrittenTokens,
      warnings: [...translationWarnings, ...decision.warnings],
      keptPrefix: this.keptPrefix,
      prefix: this.prefix,
      promptTokens: this.promptTokens,
      cachedTokens: this.cachedTokens,
      predictedBaselineTokens: this.predictedBaselineTokens,
      baselineTokens: this.baselineTokens,
      gainTokens: gainOf(this),
      cacheWriteTokens: this.cacheWriteTokens,
      ...costsOf(this),
      isUnchanged: this.isUnchanged,
      mapsLabels: this.mapsLabels,
      isHeldOut: this.isHeldOut,
      noGain: noGainOf(this),
      ttftMs: this.ttftMs,
    };
  }

  /** The request is over. */
  end({ method, route, status, now }: RequestEnd): Report {
    return { ...this.soFar(), method, route, status, durationMs: Math.round((now - this.arrivedAt) * 1_000) / 1_000 };
  }
}

type CountedPrompt = Pick<ReportBuilder, 'promptTokens' | 'cachedTokens' | 'baselineTokens' | 'isUnchanged'>;

/** Tokens that were cached, and would not have been without the gateway. Negative where an order cost some. */
function gainOf({ cachedTokens, baselineTokens, isUnchanged }: CountedPrompt): number | undefined {
  if (cachedTokens === undefined || baselineTokens === undefined) return undefined;
  return isUnchanged === true ? 0 : cachedTokens - baselineTokens;
}

type PricedPrompt = CountedPrompt & Pick<ReportBuilder, 'price' | 'cacheWriteTokens' | 'baselineWriteTokens'>;

/** What a prompt cost, and would have cost without the gateway. */
function costsOf(prompt: PricedPrompt): Pick<ReportSoFar, 'cost' | 'baselineCost'> {
  const { price, promptTokens, cachedTokens, cacheWriteTokens = 0, baselineTokens, baselineWriteTokens } = prompt;
  if (price === undefined || promptTokens === undefined || cachedTokens === undefined) return UNPRICED;
  const costOf = (cached: number, written: number) =>
    promptCost({ promptTokens, cachedTokens: cached, cacheWriteTokens: written }, price);
  const cost = costOf(cachedTokens, cacheWriteTokens);
  if (prompt.isUnchanged === true) return { cost, baselineCost: cost };
  const isKnown = baselineTokens !== undefined;
  return { cost, baselineCost: isKnown ? costOf(baselineTokens, baselineWriteTokens) : undefined };
}

const UNPRICED = { cost: undefined, baselineCost: undefined } as const;

/** Why a prompt gained nothing: the first reason that holds. */
function noGainOf(report: ReportBuilder): NoGainReason | undefined {
  const { isUnchanged, decision, errorCode, errorSource, fallback, unmoved } = report;
  if (isUnchanged === undefined) return undefined;
  const gain = gainOf(report);
  if (gain !== undefined && gain > 0) return undefined;
  if (errorCode !== undefined || errorSource !== undefined || fallback !== undefined) return 'failed';
  if (unmoved !== undefined) return unmoved;
  const { documents = 0, slots, documentsMoved, predictedCachedTokens } = decision;
  if (documents === 0) return 'no-documents';
  if (documents === 1) return 'few-documents';
  if (slots.length > 0 && slots.every(({ decided }) => decided === 'fixed')) return 'own-order';
  if (gain === undefined) return 'not-counted';
  return predictedCachedTokens === 0 || documentsMoved === 0 ? 'no-better-order' : 'not-reused';
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

/** Every key of the `x-warmpath` header, in the order in which they are written: on which answers, and what it says. */
export const SUMMARY_FIELDS = {
  error: ['errors', 'Who failed: `gateway` (it refused the request, or broke) or `upstream` (the engine failed).'],
  overhead: ['forwarded requests', "The gateway's own milliseconds, from the complete body to the dispatch."],
  retrieval: ['requests with retrieval', 'Milliseconds in which passages were looked for.'],
  speculation: [
    'requests with retrieval',
    'Whether generation started before the search was over: `confirmed` (its answer is this one) or `wrong` (it was ended).',
  ],
  engine: ['several engines', 'The name of the engine that the request went to.'],
  policy: ['arranged requests', 'The ordering policy that decided.'],
  documents: ['arranged requests', 'Documents of the request, those that are referred to included.'],
  recognised: [
    'prompts that hold documents',
    'Each group of documents found in the prompt: format, number of documents, and `arranged`, `replayed`, `fixed` or `history`.',
  ],
  labels: [
    'prompts that hold documents',
    '`mapped`: documents have labels of their own in the prompt. Labels in the answer were replaced by those of the request.',
  ],
  moved: ['arranged requests', 'Documents that do not stand at their retrieval rank.'],
  predicted: ['arranged requests', 'Prompt tokens that the engine is believed to have cached.'],
  baseline: [
    'prompts',
    'Prompt tokens that the engine would have cached of the prompt as the client wrote it: a prediction. `GET /v1/requests/{id}` tells the figure in the count of the engine.',
  ],
  conversation: [
    'named conversations',
    '`new`, `known`, `forgotten` (earlier turns are not known any more), or `ignored` (the request lacks an end user, where the operator configured where end users come from: it is not remembered).',
  ],
  session: [
    'named conversations',
    'A digest of tenant, end user and name, by which logs, `GET /v1/sessions` and the dashboard name the conversation.',
  ],
  replayed: ['named conversations', 'Earlier turns that went out as they had been rendered before.'],
  references: ['named conversations', 'Documents that the conversation still shows and that were not sent again.'],
  shortened: ['named conversations', 'Documents of which only parts were sent again.'],
  saved: ['named conversations', 'Estimated tokens that references and shortened documents saved.'],
  fallback: [
    'internal failures',
    'What was sent instead: `retrieval` (documents in retrieval order), `original` (the body as it came), `conversation` (without earlier turns: the shared store did not answer).',
  ],
  kept: [
    'prompts',
    'What was changed so that the prompt begins as earlier ones did: [`unchanged`](configuration.md) has the names.',
  ],
  warnings: ['repaired requests', 'What was repaired or left out: up to eight, as `("CODE path" "CODE path")`.'],
  hidden: ['repaired requests', 'How many more warnings there are.'],
} as const satisfies Readonly<Record<string, readonly [on: string, meaning: string]>>;

/** Warnings that the summary names; the others are only counted. */
const WARNINGS_SHOWN = 8;

/**
 * What became of a request, in one header: for instance `overhead=0.412, policy=foresight, documents=20, moved=7,
 * predicted=3012`. Keys without anything to say are left out. `GET /v1/requests/{id}` tells the rest.
 */
export function summaryHeader(report: ReportSoFar): string {
  const { retrieval, engine, recognised, slots } = report;
  let fields = '';
  const add = (key: keyof typeof SUMMARY_FIELDS, value: number | string | undefined): void => {
    if (value !== undefined) fields += fields === '' ? `${key}=${value}` : `, ${key}=${value}`;
  };
  add('overhead', report.overheadMs?.toFixed(3));
  add('retrieval', retrieval?.ms.toFixed(3));
  add('speculation', retrieval?.speculation ?? undefined);
  add('engine', engine && quoted(engine.name));
  add('policy', report.policy);
  add('documents', report.documents);
  if (recognised !== undefined) add('recognised', quoted(recognisedSlots(slots)));
  if (report.mapsLabels) add('labels', 'mapped');
  add('moved', report.documentsMoved);
  add('predicted', report.predictedCachedTokens);
  add('baseline', report.predictedBaselineTokens);
  add('conversation', report.conversation);
  add('session', report.session && quoted(report.session.id));
  add('replayed', report.replayedTurns || undefined);
  add('references', report.references || undefined);
  add('shortened', report.shortened || undefined);
  add('saved', report.deduplicatedTokens || undefined);
  add('fallback', report.fallback);
  if (report.keptPrefix.length > 0) add('kept', quoted(report.keptPrefix.join(', ')));
  const warnings = [...report.retrievalWarnings, ...report.warnings];
  if (warnings.length > 0) {
    add('warnings', `(${warningsShown(warnings)})`);
    if (warnings.length > WARNINGS_SHOWN) add('hidden', warnings.length - WARNINGS_SHOWN);
  }
  return withError(report.errorSource, fields);
}

/** The summary behind the source of the error; the very same without one. */
function withError(source: ErrorSource | undefined, summary: string): string {
  if (source === undefined) return summary;
  return summary === '' ? `error=${source}` : `error=${source}, ${summary}`;
}

function recognisedSlots(slots: ReportSoFar['slots']): string {
  return slots.map(({ format, documents, decided }) => `${format} ${documents} ${decided}`).join(', ');
}

function warningsShown(warnings: ReportSoFar['warnings']): string {
  return warnings
    .slice(0, WARNINGS_SHOWN)
    .map(({ code, path }) => quoted(`${code} ${path}`))
    .join(' ');
}

/** A string of structured fields: printable ASCII. */
function quoted(text: string): string {
  return `"${text.replace(/[^\x20-\x7e]/g, '?').replace(/["\\]/g, '\\$&')}"`;
}
