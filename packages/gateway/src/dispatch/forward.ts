import { estimateTokens } from '@warmpath/core';
import type { LabelMap } from '@warmpath/core/internal';
import type { FastifyRequest } from 'fastify';
import { type RelayOptions, type RelayResult, relay } from '../answer/relay.js';
import { errorShapeOf, type ResponseBody, UntouchedBody } from '../apis/response-body.js';
import { type Engine, engineHeaders, IDENTITY } from '../engines/engine.js';
import type { ClientKey } from '../intake/authenticate.js';
import { type HeaderOverrides, RESPONSE_HEADERS } from '../intake/headers.js';
import type { RateLimits } from '../intake/rate-limits.js';
import { type ReportBuilder, summaryHeader } from '../observe/report.js';
import type { CallReply } from '../shapes/shapes.js';

/** How a request goes to the engine when it is not simply passed through. */
export interface ForwardOptions {
  /** Path and query, in place of the client's. */
  readonly path?: string | undefined;
  readonly requestHeaders?: readonly (HeaderOverrides | undefined)[];
  /** What becomes of the engine's response; it goes to the client as it is without one. */
  readonly body?: ResponseBody | undefined;
  /** Labels of the prompt: the client gets the answer with its own. */
  readonly labels?: LabelMap | undefined;
  /** What is read of the answer on its way: nothing by default. */
  readonly reads?: 'nothing' | 'usage' | 'answer';
  /** Called once, when the engine's answer begins and is no error. Must not throw. */
  readonly onAccepted?: () => void;
  /** See `RelayOptions`. */
  readonly onFirstData?: () => void;
  readonly onFirstContent?: () => void;
  readonly canRetryElsewhere?: RelayOptions['canRetryElsewhere'];
  readonly withoutOwnField?: RelayOptions['withoutOwnField'];
  /** Called once, when the exchange with the engine is over. Must not throw. */
  readonly onSettled?: (result: RelayResult) => void;
}

/** What forwarding works with. */
export interface ForwardParts {
  readonly rateLimits: RateLimits;
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
  readonly lifecycle: Lifecycle;
}

/** Whether the gateway stops. */
export interface Lifecycle {
  /** Not ready any more: connections end with their answers. */
  leaving: boolean;
  /** Requests are refused, `server.drainDelayMs` later. */
  draining: boolean;
}

/** Sends a request to an engine, at the same path if no other is given, and relays the answer. */
export function forward(
  parts: ForwardParts,
  engine: Engine,
  { request, reply }: { readonly request: FastifyRequest; readonly reply: CallReply },
  body: Buffer | null,
  options: ForwardOptions = {},
): void {
  const { report } = request;
  const errors = errorShapeOf(request.url);
  const charged = chargedKey(request);
  reply.hijack();
  report.overheadMs = parts.now() - report.bodyAt - (report.queuedMs ?? 0) - (report.retrieval?.ms ?? 0);
  const sent = {
    method: request.method,
    path: options.path ?? originForm(request.raw.url!),
    headers: engineHeaders(
      engine,
      request,
      report.trace?.headers,
      charged && IDENTITY,
      ...(options.requestHeaders ?? NONE),
    ),
    body,
  };
  const relayed: RelayOptions = {
    // Decided when the head is written: an answer that begins while the gateway stops must say that its connection
    // closes.
    headers: ownHeaders(parts.lifecycle, report),
    body: options.body ?? new UntouchedBody(errors),
    errors,
    now: parts.now,
    reads: readsOf(options, charged),
    labels: options.labels,
    onAccepted: options.onAccepted ?? ignored,
    onFirstData: options.onFirstData,
    onFirstContent: options.onFirstContent,
    canRetryElsewhere: options.canRetryElsewhere,
    withoutOwnField: options.withoutOwnField,
    onSettled:
      charged === undefined
        ? (options.onSettled ?? ignored)
        : (result) => {
            if (!result.isRetriedElsewhere && reply.isSuperseded !== true)
              parts.rateLimits.charge(charged, usedTokens(report, body, result));
            options.onSettled?.(result);
          },
  };
  relay(engine.upstream, sent, { raw: reply.raw, report }, relayed);
}

/** What the gateway adds to an answer that is not Fastify's, asked for when its head is written. */
export function ownHeaders(lifecycle: Lifecycle, report: ReportBuilder): RelayOptions['headers'] {
  return () => {
    const own = {
      [RESPONSE_HEADERS.requestId]: report.requestId,
      [RESPONSE_HEADERS.summary]: summaryHeader(report.soFar()),
    };
    return lifecycle.leaving ? { ...own, connection: 'close' } : own;
  };
}

const NONE: readonly never[] = [];

function ignored(): void {}

function readsOf({ reads = 'nothing' }: ForwardOptions, charged: ClientKey | undefined): RelayOptions['reads'] {
  return reads === 'nothing' && charged !== undefined ? 'usage' : reads;
}

/** The key whose tokens a request uses up, if they are limited. */
function chargedKey({ method, report: { caller } }: FastifyRequest): ClientKey | undefined {
  return method === 'POST' && caller.key?.tokensPerMinute !== undefined ? caller.key : undefined;
}

/**
 * What the engine counted, or an estimate where it counted nothing: every prompt and every answer has at least one
 * token, so a 0 is no count. Nothing for what it refused or never saw. Cost of an estimate: O(body).
 */
function usedTokens(
  { errorSource, tenant }: ReportBuilder,
  body: Buffer | string | null,
  { status, sniffer }: RelayResult,
): number {
  if (status === undefined ? errorSource !== undefined : status >= 300) return 0;
  const promptTokens = sniffer.usage?.promptTokens || estimateTokens(body?.toString() ?? '');
  // Only prompts have an answer of tokens; what is passed through may be numbers, or a file.
  return promptTokens + (sniffer.completionTokens || (tenant === undefined ? 0 : sniffer.estimatedTokens));
}

/**
 * Path and query. A request line may name a whole URL (RFC 9112, section 3.2.2); whose host that is must not matter.
 */
function originForm(url: string): string {
  return url.startsWith('/') ? url : url.replace(/^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i, '');
}
