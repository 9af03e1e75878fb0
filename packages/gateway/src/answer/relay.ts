import type { IncomingHttpHeaders } from 'node:http';
import { type ErrorCode, WarmpathError } from '@warmpath/core';
import type { ErrorShape } from '../apis/error-shape.js';
import type { ResponseBody, ResponseHead } from '../apis/response-body.js';
import type { Upstream, UpstreamCall, UpstreamListener, UpstreamRequest } from '../engines/upstream.js';
import { RESPONSE_HEADERS, responseHeaders, retryAfter } from '../intake/headers.js';
import type { ClientResponse } from '../shapes/shapes.js';
import { ResponseSniffer, type SniffedAnswer } from './response-sniffer.js';

/**
 * After the error event of a cut stream, milliseconds that a slow client gets to take it before the connection is cut.
 */
const CUT_GRACE_MS = 1_000;

/** Whoever failed otherwise, it was the engine. */
const OWN_ERRORS: ReadonlySet<ErrorCode> = new Set<ErrorCode>(['WARMPATH_INVALID_REQUEST', 'WARMPATH_INTERNAL']);

/** How a relayed exchange ended, and what the engine said on the way. */
export interface RelayResult {
  /** The engine's status; `undefined` if no response came. */
  readonly status: number | undefined;
  /** Whether the response came to its end. */
  readonly complete: boolean;
  readonly sniffer: SniffedAnswer;
  /** Whether the request went on to another engine, before the client got anything of this one. */
  readonly isRetriedElsewhere: boolean;
}

/** How an engine failed before it answered: by an error, which may have come before anything was sent, or a status. */
export type EngineFailure = { readonly error: WarmpathError } | { readonly status: number };

/** Statuses of engines that may be well elsewhere. */
const ELSEWHERE_WELL = new Set([500, 502, 503, 504]);

/** What is known of an answer that was not read. */
const NOTHING_READ: SniffedAnswer = new ResponseSniffer(() => 0);

/** Where a relay records who failed. */
export interface RelayedExchange {
  errorCode: ErrorCode | undefined;
  errorSource: 'gateway' | 'upstream' | undefined;
  failed(code: ErrorCode, source: 'gateway' | 'upstream'): void;
}

/** What a relay needs beside the request. */
export interface RelayOptions {
  /** What is added to the engine's response headers, asked for when they are written. */
  readonly headers: () => Readonly<Record<string, string>>;
  /** What becomes of the engine's response. */
  readonly body: ResponseBody;
  readonly errors: ErrorShape;
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
  /**
   * What is read on the way through: the engine's counts, and what the model says, to be recognised later
   * (`ResponseSniffer.answers`).
   */
  readonly reads: 'nothing' | 'usage' | 'answer';
  /** Called once, when the engine's answer begins and is no error. Must not throw. */
  readonly onAccepted: () => void;
  /**
   * Asked once, where the engine failed before its client got anything: whether another engine gets the request. If so,
   * the client hears nothing of this one.
   */
  readonly canRetryElsewhere?: ((failure: EngineFailure) => boolean) | undefined;
  /** Called once, when the first part of the answer's body has come. Must not throw. */
  readonly onFirstData?: (() => void) | undefined;
  /**
   * Called once, when the first content of a stream has come; where the stream is not read, with its first data. Must
   * not throw.
   */
  readonly onFirstContent?: (() => void) | undefined;
  /** Called exactly once, when the exchange with the engine is over. Must not throw. */
  readonly onSettled: (result: RelayResult) => void;
}

/**
 * Sends the request to the engine and its response to the client, as it comes and with backpressure. When the client
 * goes away, in any state, the engine's connection is closed. When the engine goes away in the middle of a stream, the
 * client gets an SSE `error` event and a broken connection, never a clean end.
 */
export function relay(
  upstream: Pick<Upstream, 'start'>,
  request: UpstreamRequest,
  client: { readonly raw: ClientResponse; readonly exchange: RelayedExchange },
  options: RelayOptions,
): void {
  new Relay(client.raw, client.exchange, options).start(upstream, request);
}

/** Ends an exchange that no engine takes up any more; nothing of an answer has gone to the client. */
export function refuse(
  client: { readonly raw: ClientResponse; readonly exchange: RelayedExchange },
  error: WarmpathError,
  options: Pick<RelayOptions, 'headers' | 'errors'>,
): void {
  client.exchange.failed(error.code, 'gateway');
  if (!client.raw.destroyed && !client.raw.headersSent) sendError(client.raw, error, options);
}

class Relay implements UpstreamListener {
  readonly #client: ClientResponse;
  readonly #exchange: RelayedExchange;
  readonly #options: RelayOptions;
  readonly #sniffer: ResponseSniffer | undefined;
  #call: UpstreamCall | undefined;
  #status: number | undefined;
  #isEventStream = false;
  #hasData = false;
  #hasContent = false;
  #isRetriedElsewhere = false;
  /** Whether the client has to take what was written before more is. */
  #isWaiting = false;

  constructor(client: ClientResponse, exchange: RelayedExchange, options: RelayOptions) {
    this.#client = client;
    this.#exchange = exchange;
    this.#options = options;
    const { now, reads } = options;
    this.#sniffer = reads === 'nothing' ? undefined : new ResponseSniffer(now, reads === 'answer');
  }

  start(upstream: Pick<Upstream, 'start'>, request: UpstreamRequest): void {
    // First among the listeners: the others look at what the end of the exchange has left.
    this.#client.prependListener('close', () => {
      if (!this.#client.writableFinished) this.#call?.abort(new WarmpathError('WARMPATH_CLIENT_CLOSED'));
    });
    // Where another engine may take it, that is tried before this one is tried again.
    this.#call = upstream.start(request, this, { retries: this.#options.canRetryElsewhere === undefined });
    if (this.#client.destroyed) this.#call.abort(new WarmpathError('WARMPATH_CLIENT_CLOSED'));
  }

  onHead(status: number, headers: IncomingHttpHeaders): void {
    this.#status = status;
    const { canRetryElsewhere } = this.#options;
    if (ELSEWHERE_WELL.has(status) && canRetryElsewhere?.({ status }) === true) {
      this.#isRetriedElsewhere = true;
      this.#call!.abort(new WarmpathError('WARMPATH_UPSTREAM_ERROR', { detail: `status ${status}` }));
      return;
    }
    if (status < 300) this.#options.onAccepted();
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
    if (!this.#hasData) {
      this.#hasData = true;
      this.#options.onFirstData?.();
    }
    try {
      const data = this.#options.body.data(chunk);
      if (data.length > 0) ready = this.#client.write(data);
    } catch (error) {
      // A response that cannot be made the client's ends the exchange.
      this.#call!.abort(asTableError(error));
    }
    if (!ready) this.#resumeWhenTaken();
    this.#sniffer?.data(chunk);
    if (!this.#hasContent && this.#isEventStream && this.#hasBegun) {
      this.#hasContent = true;
      this.#options.onFirstContent?.();
    }
    return ready;
  }

  onEnd(): void {
    try {
      const { head, rest } = this.#options.body.end();
      if (head !== undefined) this.#writeHead(head);
      this.#client.end(rest);
    } catch (error) {
      this.onError(asTableError(error));
      return;
    }
    this.#sniffer?.end();
    this.#settle(true);
  }

  onError(error: WarmpathError): void {
    if (
      this.#status === undefined &&
      this.#isEngineFailure(error) &&
      this.#options.canRetryElsewhere?.({ error }) === true
    ) {
      this.#isRetriedElsewhere = true;
    }
    if (this.#isRetriedElsewhere) {
      this.#settle(false);
      return;
    }
    const source = OWN_ERRORS.has(error.code) ? 'gateway' : 'upstream';
    if (error.code === 'WARMPATH_CLIENT_CLOSED') this.#exchange.errorCode = error.code;
    else this.#exchange.failed(error.code, source);
    if (!this.#client.destroyed) {
      if (this.#client.headersSent) this.#cut(error);
      else sendError(this.#client, error, this.#options);
    }
    this.#settle(false);
  }

  get #hasBegun(): boolean {
    return this.#sniffer?.isReading !== true || this.#sniffer.firstContentAt !== undefined;
  }

  #isEngineFailure({ code }: WarmpathError): boolean {
    return !OWN_ERRORS.has(code) && code !== 'WARMPATH_CLIENT_CLOSED' && code !== 'WARMPATH_SHUTTING_DOWN';
  }

  #writeHead({ status, headers }: ResponseHead): void {
    this.#isEventStream = headers['content-type']?.startsWith('text/event-stream') ?? false;
    if (status >= 400) this.#exchange.errorSource = 'upstream';
    const written = responseHeaders(headers, this.#options.headers());
    this.#client.writeHead(status, written);
    // A stream's client sees that it was accepted before the first token; other headers travel with their body.
    if (this.#isEventStream) this.#client.flushHeaders();
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
    const sniffer = this.#sniffer ?? NOTHING_READ;
    this.#options.onSettled({ status: this.#status, complete, sniffer, isRetriedElsewhere: this.#isRetriedElsewhere });
  }
}

/** A defect of the gateway in the middle of an answer is reported like the engine's: the answer is incomplete. */
function asTableError(error: unknown): WarmpathError {
  return WarmpathError.isInstance(error) ? error : new WarmpathError('WARMPATH_INTERNAL', { cause: error });
}

/** Answers with the table's error, on a response that nothing has been written to. */
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
