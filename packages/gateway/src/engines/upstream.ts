import type { IncomingHttpHeaders } from 'node:http';
import { WarmpathError } from '@warmpath/core';
import { buildConnector, type Dispatcher, Pool } from 'undici';
import type { GatewayConfig } from '../config/schema.js';
import { type Timeouts, timeoutsOf } from '../config/schema-server.js';

/** One request to the engine. */
export interface UpstreamRequest {
  readonly method: string;
  /** Path and query of the client: starts with `/v1/`. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string | string[]>>;
  readonly body: Buffer | string | null;
}

/** Receives one exchange: `onHead`, then any number of `onData`, then exactly one of `onEnd` and `onError`. */
export interface UpstreamListener {
  /** Response status and headers, names in lower case. */
  onHead(status: number, headers: IncomingHttpHeaders): void;
  /** One chunk from the socket. Returns false to pause; `UpstreamCall.resume` continues. */
  onData(chunk: Buffer): boolean;
  onEnd(): void;
  /** A WarmpathError of type `upstream_error`, or the reason given to `abort`. */
  onError(error: WarmpathError): void;
}

/** The end of a client's exchange, as far as it says something about the engine. */
export type ExchangeEnd =
  /** A request ended, or was refused with a status below 500. */
  | { readonly kind: 'served' }
  /** No connection, a timeout, a broken answer, or a status of 500 or more. `answered`: it sent a status. */
  | { readonly kind: 'failed'; readonly reason: string; readonly answered: boolean };

export interface StartOptions {
  /** Milliseconds for the whole exchange. Default: the configuration's. */
  readonly totalMs?: number;
  /** No client waits for it: it does not count as activity, and not for the engine's health. */
  readonly isBackground?: boolean;
  /** Whether a failed connection is retried once. Default true. */
  readonly retries?: boolean;
  /** Whether the answer begins with `UpstreamCall.began`. Default: with its first data. */
  readonly waitsForContent?: boolean;
  /** Called with the end of the exchange, before its listener. */
  readonly ended?: (end: ExchangeEnd) => void;
}

/** Receives what happens between the gateway and an engine. */
export interface UpstreamObserver {
  ended(end: ExchangeEnd): void;
  /** The last exchange has ended. */
  isQuiet(): void;
}

const SERVED: ExchangeEnd = { kind: 'served' };

const NOBODY: UpstreamObserver = { ended: () => {}, isQuiet: () => {} };

/** Errors that the gateway or its client caused. */
const NOT_THE_ENGINE = new Set(['WARMPATH_CLIENT_CLOSED', 'WARMPATH_SHUTTING_DOWN', 'WARMPATH_INVALID_REQUEST']);

/** From this status on, the engine has failed. 501 only means that it lacks a route. */
function failsAt(status: number): boolean {
  return status >= 500 && status !== 501;
}

/** A retry waits between half and all of this, at random, so that clients do not retry in step. */
const RETRY_DELAY_MS = 100;

const CONNECTION_FAILURES = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOTFOUND',
  'EAI_AGAIN',
  'ETIMEDOUT',
  'UND_ERR_CONNECT_TIMEOUT',
]);

/** Connections to the engine, one request each, for prompts and for requests that are only passed through. */
const MIN_CONNECTIONS = 1_024;
/** Milliseconds to open a connection, at most. */
const CONNECT_MS = 5_000;

/** Bytes of the headers of one response. */
const MAX_HEADER_BYTES = 65_536;

/** The engine's HTTP side: a pool of keep-alive connections to one base URL. */
export class Upstream {
  /** The engine's address without credentials; part of the identity of cached data. */
  readonly url: string;
  readonly #pool: Dispatcher;
  readonly #basePath: string;
  readonly #config: Pick<GatewayConfig['upstream'], 'timeoutMs'>;
  readonly #activity: Activity;
  #connect: { readonly ms: number; readonly open: buildConnector.connector } | undefined;

  /** @param address Base URL of the engine. */
  constructor(
    address: string,
    config: Pick<GatewayConfig['upstream'], 'timeoutMs' | 'maxConcurrent'>,
    observer: UpstreamObserver = NOBODY,
  ) {
    const url = new URL(address);
    this.#activity = { observer, retries: 0, exchanges: 0 };
    this.#config = config;
    this.#basePath = url.pathname.replace(/\/+$/, '').replace(/\/v1$/, '');
    this.url = `${url.origin}${this.#basePath}`;
    this.#pool = new Pool(url.origin, {
      connections: Math.max(MIN_CONNECTIONS, config.maxConcurrent),
      maxHeaderSize: MAX_HEADER_BYTES,
      connect: (options, done) => this.#connector()(options, done),
    });
  }

  /** Timeouts may change while requests are under way. */
  get #timeouts(): Timeouts {
    return timeoutsOf(this.#config);
  }

  /** Milliseconds to open a connection, or to answer a request about the engine. */
  get connectMs(): number {
    return Math.min(CONNECT_MS, this.#timeouts.headersMs);
  }

  /** Second tries after a failed connection, since the start. */
  get retries(): number {
    return this.#activity.retries;
  }

  /** Exchanges of all kinds that are under way. */
  get exchanges(): number {
    return this.#activity.exchanges;
  }

  /** Starts an exchange. All results go to the listener, a refused connection included. */
  start(request: UpstreamRequest, listener: UpstreamListener, options: StartOptions = {}): UpstreamCall {
    const timeouts = { ...this.#timeouts, ...(options.totalMs !== undefined && { totalMs: options.totalMs }) };
    const sent = {
      method: request.method as Dispatcher.HttpMethod,
      path: this.#basePath + request.path,
      headers: request.headers,
      body: request.body,
      // The call knows better what it waits for.
      headersTimeout: 0,
      bodyTimeout: 0,
    };
    const transport = { pool: this.#pool, sent, activity: this.#activity, options };
    return new UpstreamCall(listener, timeouts, transport);
  }

  /** Opens connections within the configured time. */
  #connector(): buildConnector.connector {
    const { connectMs } = this;
    if (this.#connect?.ms !== connectMs)
      this.#connect = { ms: connectMs, open: buildConnector({ timeout: connectMs }) };
    return this.#connect.open;
  }

  /** Closes all connections. Exchanges under way end with `onError`. */
  async destroy(): Promise<void> {
    await this.#pool.destroy();
  }
}

/** Counts the exchanges between the gateway and an engine. */
interface Activity {
  readonly observer: UpstreamObserver;
  /** Second tries after a failed connection, since the start. */
  retries: number;
  /** Exchanges under way. */
  exchanges: number;
}

/** How an exchange reaches the engine. */
interface Transport {
  readonly pool: Dispatcher;
  readonly sent: Dispatcher.DispatchOptions;
  readonly activity: Activity;
  readonly options: StartOptions;
}

/**
 * One exchange. It can be aborted in every state: waiting for a connection, connecting, between two tries, waiting for
 * headers, in the middle of the body.
 */
export class UpstreamCall implements Dispatcher.DispatchHandler {
  readonly #listener: UpstreamListener;
  readonly #transport: Transport;
  readonly #timeouts: Timeouts;
  readonly #total: NodeJS.Timeout;
  /** Until the answer begins, then from chunk to chunk. */
  #silence: NodeJS.Timeout;
  #hasBegun = false;
  #isPaused = false;
  #chunks = 0;
  #controller: Dispatcher.DispatchController | undefined;
  #retry: NodeJS.Timeout | undefined;
  #attempt = 0;
  #headSeen = false;
  #status = 0;
  #settled = false;

  constructor(listener: UpstreamListener, timeouts: Timeouts, transport: Transport) {
    this.#listener = listener;
    this.#transport = transport;
    this.#timeouts = timeouts;
    transport.activity.exchanges++;
    const { totalMs, headersMs } = timeouts;
    this.#total = setTimeout(
      () => this.abort(timeout(`the exchange took longer than ${totalMs} ms (\`upstream.timeoutMs\`)`)),
      totalMs,
    );
    this.#silence = setTimeout(() => this.#endIfSilent(), headersMs);
    this.#dispatch();
  }

  /** Ends the exchange and closes the engine's connection. Calls `onError(reason)` at once. */
  abort(reason: WarmpathError): void {
    if (this.#settled) return;
    this.#report(reason);
    this.#settle();
    this.#controller?.abort(reason);
    this.#listener.onError(reason);
  }

  /** Continues after `onData` returned false. */
  resume(): void {
    this.#isPaused = false;
    if (this.#hasBegun) this.#silence.refresh();
    this.#controller?.resume();
  }

  /** The first token has come: whatever came before, the engine was still at the prompt. */
  began(): void {
    if (this.#hasBegun || this.#settled) return;
    this.#hasBegun = true;
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => this.#endIfSilent(), this.#timeouts.idleMs);
  }

  /** Where this process was busy, what the engine sent meanwhile is read first. */
  #endIfSilent(): void {
    const [hasBegun, chunks] = [this.#hasBegun, this.#chunks];
    setImmediate(() => {
      if (this.#settled || this.#hasBegun !== hasBegun) return;
      // A client that does not read is no silence of the engine.
      if (hasBegun && (this.#isPaused || this.#chunks > chunks)) this.#silence.refresh();
      else this.abort(timeout(`${this.#missing} (\`upstream.timeoutMs\`)`));
    });
  }

  get #missing(): string {
    if (this.#hasBegun) return 'the response stalled';
    return this.#headSeen ? 'no token in time' : 'no response headers in time';
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    // Aborted while it waited for a connection: nothing was written.
    if (this.#settled) controller.abort(new WarmpathError('WARMPATH_CLIENT_CLOSED'));
  }

  onResponseStart(_: Dispatcher.DispatchController, status: number, headers: IncomingHttpHeaders): void {
    if (this.#settled || status < 200) return;
    this.#headSeen = true;
    this.#status = status;
    this.#listener.onHead(status, headers);
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#settled) return;
    this.#chunks++;
    if (this.#hasBegun) this.#silence.refresh();
    else if (this.#transport.options.waitsForContent !== true) this.began();
    if (this.#listener.onData(chunk)) return;
    this.#isPaused = true;
    controller.pause();
  }

  onResponseEnd(): void {
    if (this.#settled) return;
    this.#report();
    this.#settle();
    this.#listener.onEnd();
  }

  onResponseError(_: Dispatcher.DispatchController | undefined, error: Error): void {
    if (this.#settled) return;
    if (this.#mayRetry(error)) {
      this.#attempt++;
      this.#retry = setTimeout(() => this.#dispatch(), RETRY_DELAY_MS * (0.5 + Math.random() / 2));
      return;
    }
    const failure = this.#translate(error);
    this.#report(failure);
    this.#settle();
    this.#listener.onError(failure);
  }

  /** Reports what the end says about the engine. */
  #report(failure?: WarmpathError): void {
    const answered = this.#headSeen;
    if (answered && failsAt(this.#status)) {
      this.#ended({ kind: 'failed', reason: `status ${this.#status}`, answered });
    } else if (failure === undefined || failure.code === 'WARMPATH_UPSTREAM_ERROR') this.#ended(SERVED);
    else if (!NOT_THE_ENGINE.has(failure.code)) this.#ended({ kind: 'failed', reason: failure.code, answered });
  }

  #ended(end: ExchangeEnd): void {
    const { activity, options, sent } = this.#transport;
    options.ended?.(end);
    if (options.isBackground === true) return;
    // Other requests do not make the engine compute for a client.
    const isComputed = sent.method !== 'GET' && sent.method !== 'HEAD';
    if (isComputed || end.kind === 'failed') activity.observer.ended(end);
  }

  #dispatch(): void {
    const { pool, sent, activity } = this.#transport;
    try {
      if (this.#attempt > 0) activity.retries++;
      pool.dispatch(sent, this);
    } catch (error) {
      this.onResponseError(undefined, error as Error);
    }
  }

  /** Retries only a connection that was never opened: the engine cannot have received a byte. */
  #mayRetry(error: Error): boolean {
    return (
      this.#transport.options.retries !== false &&
      this.#attempt === 0 &&
      this.#controller === undefined &&
      CONNECTION_FAILURES.has(codeOf(error))
    );
  }

  #settle(): void {
    this.#settled = true;
    clearTimeout(this.#total);
    clearTimeout(this.#silence);
    clearTimeout(this.#retry);
    const { activity } = this.#transport;
    if (--activity.exchanges === 0) activity.observer.isQuiet();
  }

  #translate(error: Error): WarmpathError {
    if (WarmpathError.isInstance(error)) return error;
    const code = codeOf(error);
    if (code === 'UND_ERR_CONNECT_TIMEOUT')
      return withCause('WARMPATH_UPSTREAM_TIMEOUT', 'no connection in time', error);
    if (code === 'UND_ERR_INVALID_ARG') return withCause('WARMPATH_INVALID_REQUEST', error.message, error);
    if (code === 'UND_ERR_HEADERS_OVERFLOW')
      return withCause('WARMPATH_UPSTREAM_ERROR', `The response headers exceed ${MAX_HEADER_BYTES} bytes.`, error);
    const table = this.#controller === undefined ? 'WARMPATH_UPSTREAM_UNREACHABLE' : 'WARMPATH_UPSTREAM_CUT';
    const when = this.#headSeen ? 'in the middle of the response' : 'before the response';
    return withCause(table, this.#controller === undefined ? connectionFailure(code) : `${code} ${when}`, error);
  }
}

function withCause(
  code:
    | 'WARMPATH_UPSTREAM_TIMEOUT'
    | 'WARMPATH_UPSTREAM_UNREACHABLE'
    | 'WARMPATH_UPSTREAM_CUT'
    | 'WARMPATH_UPSTREAM_ERROR'
    | 'WARMPATH_INVALID_REQUEST',
  detail: string,
  cause: Error,
): WarmpathError {
  return new WarmpathError(code, { detail, cause });
}

function timeout(detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_UPSTREAM_TIMEOUT', { detail });
}

/** The reason of a failed connection, without addresses: clients read it. */
function connectionFailure(code: string): string {
  const words = CONNECTION_WORDS[code];
  return `The engine cannot be reached: ${words === undefined ? code : `${words} (${code})`}.`;
}

const CONNECTION_WORDS: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'nothing listens at its address',
  ECONNRESET: 'it closed the connection',
  EHOSTUNREACH: 'there is no route to its host',
  ENETUNREACH: 'there is no route to its network',
  ENOTFOUND: 'its host name is not known',
  EAI_AGAIN: 'its host name cannot be looked up now',
  ETIMEDOUT: 'its host does not answer',
  UND_ERR_SOCKET: 'it closed the connection',
  EPROTO: 'it does not speak TLS as its address says',
  ERR_SSL_WRONG_VERSION_NUMBER: 'it does not speak TLS: its address begins with http://',
  DEPTH_ZERO_SELF_SIGNED_CERT:
    'this machine does not trust the signer of its certificate; add the signer by NODE_EXTRA_CA_CERTS',
  SELF_SIGNED_CERT_IN_CHAIN:
    'this machine does not trust the signer of its certificate; add the signer by NODE_EXTRA_CA_CERTS',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    'this machine does not trust the signer of its certificate; add the signer by NODE_EXTRA_CA_CERTS',
  CERT_HAS_EXPIRED: 'its certificate has expired',
  ERR_TLS_CERT_ALTNAME_INVALID: 'its certificate is for another host',
};

function codeOf(error: Error): string {
  const { code } = error as NodeJS.ErrnoException;
  if (code !== undefined) return code;
  // Node.js tried several addresses, and each failed.
  const [first] = (error as AggregateError).errors ?? [];
  return (first as NodeJS.ErrnoException | undefined)?.code ?? 'ERROR';
}
