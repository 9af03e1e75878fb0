import type { IncomingHttpHeaders } from 'node:http';
import { type ErrorCode, estimateTokens, WarmpathError } from '@warmpath/core';
import type { LabelMap } from '@warmpath/core/internal';
import type { FastifyRequest } from 'fastify';
import {
  type ErrorShape,
  errorShapeOf,
  isStreamHead,
  keepAliveOf,
  type ResponseBody,
  type ResponseHead,
  UntouchedBody,
} from '../apis/prompt-apis.js';
import { type Engine, engineHeaders, IDENTITY } from '../engines/engine.js';
import type { Upstream, UpstreamCall, UpstreamListener, UpstreamRequest } from '../engines/upstream.js';
import type { ClientKey } from '../intake/authenticate.js';
import { type HeaderOverrides, RESPONSE_HEADERS, responseHeaders, retryAfter, withVary } from '../intake/headers.js';
import type { RateLimits } from '../intake/rate-limits.js';
import { type ReportBuilder, summaryHeader } from '../observe/report.js';
import type { CallReply, ClientResponse } from '../shapes/shapes.js';
import { ResponseSniffer, type SniffedAnswer } from './read-answer.js';

/** Milliseconds in which a client may read the error event of a broken stream before its connection is closed. */
const CUT_GRACE_MS = 1_000;

/** Milliseconds without a byte of a stream after which its client gets some: proxies and clients give up on silence. */
const KEEP_ALIVE_MS = 10_000;
/** A blank line behind an event, in any of the line ends. */
const EVENT_END = /(?:\n|\r)(?:\r?\n|\r)$/;
/** Bytes in which the end of an event is seen. */
const EVENT_END_BYTES = 4;

/** Errors of the gateway or the client; all others are the engine's. */
const OWN_ERRORS: ReadonlySet<ErrorCode> = new Set<ErrorCode>(['WARMPATH_INVALID_REQUEST', 'WARMPATH_INTERNAL']);

/** The end of a relayed exchange. */
export interface RelayResult {
  /** The engine's status; `undefined` if no response came. */
  readonly status: number | undefined;
  /** Whether the response came to its end. */
  readonly complete: boolean;
  readonly sniffer: SniffedAnswer;
  /** The failure after which another engine gets the request; the client has received nothing. */
  readonly retriedAfter: EngineFailure | undefined;
}

/** How an engine failed before it answered: by an error, perhaps before anything was sent, or by a status. */
export type EngineFailure = { readonly error: WarmpathError } | { readonly status: number };

/** Statuses after which another engine may succeed. */
const RETRYABLE_STATUSES = new Set([500, 502, 503, 504]);

/** The result of an answer that was not read. */
const NOTHING_READ: SniffedAnswer = new ResponseSniffer(() => 0);

/** Where a relay records who failed. */
type RelayedReport = Pick<ReportBuilder, 'errorCode' | 'errorSource' | 'failed'>;

/** A field that the gateway added to a request. */
export interface OwnField {
  /** The request without it. */
  readonly body: Buffer;
  /** The engine has refused the request with the field, and now gets it without. */
  withdrawn(): void;
  /** The engine has accepted the request, with the field or without. */
  accepted(): void;
}

/** Statuses with which engines refuse a field that they do not know. */
const REFUSED_STATUSES = new Set([400, 422]);

export interface RelayOptions {
  /** Headers added to the engine's; called when they are written. */
  readonly headers: () => Readonly<Record<string, string>>;
  /** Turns the engine's response into the client's. */
  readonly body: ResponseBody;
  readonly errors: ErrorShape;
  /** Whether the engine is at the prompt until the first token, whatever it sends before. */
  readonly waitsForToken: boolean;
  /** Whole events, written into a stream that is silent. */
  readonly keepAlive: string;
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
  /** What is read on the way: the engine's counts, or the model's words, too (`ResponseSniffer.answers`). */
  readonly reads: 'nothing' | 'usage' | 'answer';
  /** Labels in the engine's answer that the client gets as its own. */
  readonly labels?: LabelMap | undefined;
  /** Called once, when an answer below status 300 begins. Must not throw. */
  readonly onAccepted?: (() => void) | undefined;
  /** Called once, when the engine failed before the client received anything: whether another engine tries. */
  readonly canRetryElsewhere?: ((failure: EngineFailure) => boolean) | undefined;
  /** Sent in place of the request that an engine refuses because of a field of the gateway's own, once. */
  readonly withoutOwnField?: OwnField | undefined;
  /** Called once, when the first part of the answer's body has come. Must not throw. */
  readonly onFirstData?: (() => void) | undefined;
  /** Called once, at the first content of a stream, or at its first data if it is not read. Must not throw. */
  readonly onFirstContent?: (() => void) | undefined;
  /** Called exactly once, when the exchange with the engine is over. Must not throw. */
  readonly onSettled: (result: RelayResult) => void;
}

/**
 * Sends the request to the engine and streams its response to the client, with backpressure. When the client closes its
 * connection, in any state, the engine's connection is closed. When the engine breaks off a stream, the client gets an
 * SSE `error` event and a broken connection, never a clean end.
 */
function relay(
  upstream: Pick<Upstream, 'start'>,
  request: UpstreamRequest,
  client: { readonly raw: ClientResponse; readonly report: RelayedReport },
  options: RelayOptions,
): void {
  new Relay(client.raw, client.report, options).start(upstream, request);
}

/** Answers a request that no engine will serve with an error, if nothing was answered. */
export function refuse(
  client: { readonly raw: ClientResponse; readonly report: RelayedReport },
  error: WarmpathError,
  options: Pick<RelayOptions, 'headers' | 'errors'>,
): void {
  client.report.failed(error.code, 'gateway');
  if (!client.raw.destroyed && !client.raw.headersSent) sendError(client.raw, error, options);
}

class Relay implements UpstreamListener {
  readonly #client: ClientResponse;
  readonly #report: RelayedReport;
  readonly #options: RelayOptions;
  readonly #sniffer: ResponseSniffer | undefined;
  #call: UpstreamCall | undefined;
  #status: number | undefined;
  #isEventStream = false;
  #hasData = false;
  #hasContent = false;
  #retriedAfter: EngineFailure | undefined;
  /** Sends the request again without the gateway's own field, once its refusal has ended. */
  #sendAgain: (() => void) | undefined;
  #wasSentAgain = false;
  /** Whether the engine is paused until the client has read. */
  #isWaiting = false;
  /** Runs while the client gets a stream. */
  #silence: NodeJS.Timeout | undefined;
  /** The last bytes that the client got. */
  #tail = '\n\n';

  constructor(client: ClientResponse, report: RelayedReport, options: RelayOptions) {
    this.#client = client;
    this.#report = report;
    this.#options = options;
    const { now, reads, labels } = options;
    this.#sniffer = reads === 'nothing' ? undefined : new ResponseSniffer(now, reads === 'answer', labels);
  }

  start(upstream: Pick<Upstream, 'start'>, request: UpstreamRequest): void {
    // First among the listeners: the others read what the end of the exchange has recorded.
    this.#client.prependListener('close', () => {
      if (!this.#client.writableFinished) this.#call?.abort(new WarmpathError('WARMPATH_CLIENT_CLOSED'));
    });
    // Another engine, if there is one, is tried before this one is tried again.
    const send = (sent: UpstreamRequest): void => {
      this.#call = upstream.start(sent, this, {
        retries: this.#options.canRetryElsewhere === undefined,
        waitsForContent: this.#options.waitsForToken,
      });
    };
    const { withoutOwnField } = this.#options;
    if (withoutOwnField !== undefined) this.#sendAgain = () => send({ ...request, body: withoutOwnField.body });
    send(request);
    if (this.#client.destroyed) this.#call!.abort(new WarmpathError('WARMPATH_CLIENT_CLOSED'));
  }

  onHead(status: number, headers: IncomingHttpHeaders): void {
    this.#status = status;
    if (this.#isRefused) return;
    if (status < 300) this.#options.withoutOwnField?.accepted();
    const { canRetryElsewhere } = this.#options;
    if (RETRYABLE_STATUSES.has(status) && canRetryElsewhere?.({ status }) === true) {
      this.#retriedAfter = { status };
      this.#call!.abort(new WarmpathError('WARMPATH_UPSTREAM_ERROR', { detail: `status ${status}` }));
      return;
    }
    if (status < 300) this.#options.onAccepted?.();
    try {
      const head = this.#options.body.head({ status, headers });
      if (head !== undefined) this.#writeHead(head);
    } catch (error) {
      this.#call!.abort(asTableError(error));
    }
    this.#sniffer?.head(status, headers);
  }

  onData(chunk: Buffer): boolean {
    let ready = true;
    if (this.#isRefused) return ready;
    if (!this.#hasData) {
      this.#hasData = true;
      this.#options.onFirstData?.();
    }
    try {
      const data = this.#options.body.data(chunk);
      if (data.length > 0) ready = this.#write(data);
    } catch (error) {
      // A response that cannot be converted ends the exchange.
      this.#call!.abort(asTableError(error));
    }
    if (!ready) this.#resumeWhenTaken();
    this.#sniffer?.data(chunk);
    if (!this.#hasContent && this.#sniffer?.hasBegun !== false) {
      this.#hasContent = true;
      this.#call!.began();
      if (this.#isEventStream) this.#options.onFirstContent?.();
    }
    return ready;
  }

  #write(data: Buffer | string): boolean {
    const last =
      typeof data === 'string' ? data.slice(-EVENT_END_BYTES) : data.subarray(-EVENT_END_BYTES).toString('latin1');
    this.#tail = (this.#tail + last).slice(-EVENT_END_BYTES);
    this.#silence?.refresh();
    return this.#client.write(data);
  }

  /** Never in the middle of an event. */
  #keepAlive(): void {
    const { destroyed, isHeld } = this.#client;
    if (!destroyed && isHeld !== true && !this.#isWaiting && EVENT_END.test(this.#tail))
      this.#client.write(this.#options.keepAlive);
    this.#silence!.refresh();
  }

  onEnd(): void {
    if (this.#isRefused) {
      this.#wasSentAgain = true;
      this.#options.withoutOwnField!.withdrawn();
      this.#sendAgain!();
      return;
    }
    try {
      const { head, rest } = this.#options.body.end();
      if (head !== undefined) this.#writeHead(head);
      this.#client.end(rest);
    } catch (error) {
      this.onError(asTableError(error));
      return;
    }
    this.#sniffer?.end();
    const failure = this.#sniffer?.failure;
    if (failure !== undefined) this.#report.failed(failure, 'upstream');
    this.#settle(failure === undefined);
  }

  onError(error: WarmpathError): void {
    if (this.#status === undefined && this.#isEngineFailure(error) && this.#options.canRetryElsewhere?.({ error })) {
      this.#retriedAfter = { error };
    }
    if (this.#retriedAfter !== undefined) {
      this.#settle(false);
      return;
    }
    const source = OWN_ERRORS.has(error.code) ? 'gateway' : 'upstream';
    if (error.code === 'WARMPATH_CLIENT_CLOSED') this.#report.errorCode = error.code;
    else this.#report.failed(error.code, source);
    if (!this.#client.destroyed) {
      if (this.#client.headersSent) this.#cut(error);
      else sendError(this.#client, error, this.#options);
    }
    this.#settle(false);
  }

  /** Whether the engine has refused the request as it has the gateway's own field. */
  get #isRefused(): boolean {
    return this.#sendAgain !== undefined && !this.#wasSentAgain && REFUSED_STATUSES.has(this.#status ?? 0);
  }

  #isEngineFailure({ code }: WarmpathError): boolean {
    return !OWN_ERRORS.has(code) && code !== 'WARMPATH_CLIENT_CLOSED' && code !== 'WARMPATH_SHUTTING_DOWN';
  }

  #writeHead({ status, headers }: ResponseHead): void {
    this.#isEventStream = isStreamHead({ status, headers });
    if (status >= 400) this.#report.errorSource = 'upstream';
    const written = responseHeaders(headers, this.#options.headers());
    this.#client.writeHead(status, withVary(this.#client, written));
    if (!this.#isEventStream) return;
    // A stream's client sees the status before the first token; other headers are sent with their body.
    this.#client.flushHeaders();
    this.#silence = setTimeout(() => this.#keepAlive(), KEEP_ALIVE_MS);
  }

  #resumeWhenTaken(): void {
    if (this.#isWaiting) return;
    this.#isWaiting = true;
    this.#client.once('drain', () => {
      this.#isWaiting = false;
      this.#call!.resume();
    });
  }

  #cut(error: WarmpathError): void {
    const client = this.#client;
    if (!this.#isEventStream) {
      client.destroy();
      return;
    }
    const grace = setTimeout(() => client.destroy(), CUT_GRACE_MS);
    client.write(this.#options.body.broken(error), () => {
      clearTimeout(grace);
      client.destroy();
    });
  }

  #settle(complete: boolean): void {
    clearTimeout(this.#silence);
    const sniffer = this.#sniffer ?? NOTHING_READ;
    this.#options.onSettled({ status: this.#status, complete, sniffer, retriedAfter: this.#retriedAfter });
  }
}

function asTableError(error: unknown): WarmpathError {
  return WarmpathError.isInstance(error) ? error : new WarmpathError('WARMPATH_INTERNAL', { cause: error });
}

/** Answers with the table's error; nothing may have been written. */
function sendError(
  client: ClientResponse,
  error: WarmpathError,
  { headers, errors }: Pick<RelayOptions, 'headers' | 'errors'>,
): void {
  const own = headers();
  const body = JSON.stringify(errors.body(error, own[RESPONSE_HEADERS.requestId] ?? ''));
  client.writeHead(error.status, {
    ...own,
    'content-type': 'application/json; charset=utf-8',
    'content-length': Buffer.byteLength(body),
    ...retryAfter(error),
  });
  client.end(body);
}

/** How a request goes to the engine when it is not simply passed through. */
export interface ForwardOptions
  extends Partial<Omit<RelayOptions, 'headers' | 'errors' | 'waitsForToken' | 'keepAlive' | 'now'>> {
  /** Path and query, in place of the client's. */
  readonly path?: string | undefined;
  readonly requestHeaders?: readonly (HeaderOverrides | undefined)[];
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
  { path, requestHeaders = NONE, reads = 'nothing', onSettled = ignored, ...options }: ForwardOptions = {},
): void {
  const { report } = request;
  const errors = errorShapeOf(request.url);
  const charged = chargedKey(request);
  reply.hijack();
  report.overheadMs = parts.now() - report.bodyAt - (report.queuedMs ?? 0) - (report.retrieval?.ms ?? 0);
  const headers = engineHeaders(engine, request, report.trace?.headers, charged && IDENTITY, ...requestHeaders);
  const sent = { method: request.method, path: path ?? originForm(request.raw.url!), headers, body };
  const charge = (result: RelayResult): void => {
    if (charged !== undefined && result.retriedAfter === undefined && reply.isSuperseded !== true)
      parts.rateLimits.charge(charged, usedTokens(report, body, result));
    onSettled(result);
  };
  relay(
    engine.upstream,
    sent,
    { raw: reply.raw, report },
    {
      ...options,
      // Decided when the head is written: an answer that begins while the gateway stops must say that its connection
      // closes.
      headers: ownHeaders(parts.lifecycle, report),
      body: options.body ?? new UntouchedBody(errors),
      errors,
      // Only prompts are read in any case.
      waitsForToken: reads !== 'nothing',
      keepAlive: keepAliveOf(request.url),
      now: parts.now,
      reads: reads === 'nothing' && charged !== undefined ? 'usage' : reads,
      onSettled: charge,
    },
  );
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
