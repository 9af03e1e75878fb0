import type { IncomingHttpHeaders } from 'node:http';
import { WarmpathError } from '@warmpath/core';
import { buildConnector, type Dispatcher, Pool } from 'undici';
import type { GatewayConfig } from '../config/schema.js';
import { type Timeouts, timeoutsOf } from '../config/schema-server.js';

/** One request for the engine. */
export interface UpstreamRequest {
  readonly method: string;
  /** Path and query, as clients name it: starts with `/v1/`. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string | string[]>>;
  readonly body: Buffer | string | null;
}

/**
 * Who listens to one exchange. After `onHead` came any number of `onData`; exactly one of `onEnd` and `onError` is
 * last.
 */
export interface UpstreamListener {
  /** Response status and headers, names in lower case. */
  onHead(status: number, headers: IncomingHttpHeaders): void;
  /** One chunk, as it came from the socket. Answers false to pause; `UpstreamCall.resume` goes on. */
  onData(chunk: Buffer): boolean;
  onEnd(): void;
  /** A WarmpathError of the table's `upstream_error` type, or the reason given to `abort`. */
  onError(error: WarmpathError): void;
}

/** Who wants to know whether the engine has anything to do that someone asked for. */
export interface ActivityWatcher {
  /** Before the first request goes out. */
  busy(): void;
  /** When the last one is over. */
  idle(): void;
}

/** How an exchange that somebody asked for ended, where that says something about the engine. */
export type ExchangeEnd =
  /** A request for work came to its end, or was refused by a status below 500. */
  | { readonly kind: 'served' }
  /** No connection, no answer in time, a broken answer, or a status of 500 or more; `answered`: it gave a status. */
  | { readonly kind: 'failed'; readonly reason: string; readonly answered: boolean };

export interface StartOptions {
  /** Milliseconds for the whole exchange. Default: the configuration's. */
  readonly totalMs?: number;
  /** Nobody waits for it: it does not make the engine busy, and says nothing about its health. */
  readonly isBackground?: boolean;
  /** Whether a connection that fails is tried a second time. Default true. */
  readonly retries?: boolean;
  /** Hears how the exchange ended, before its listener does. */
  readonly ended?: (end: ExchangeEnd) => void;
}

/** Who hears of what happens between the gateway and an engine. */
export interface UpstreamObserver {
  ended(end: ExchangeEnd): void;
  /** No exchange is under way any more. */
  isQuiet(): void;
}

const SERVED: ExchangeEnd = { kind: 'served' };

const NOBODY: UpstreamObserver = { ended: () => {}, isQuiet: () => {} };

/** Ends that the gateway or its client brought about. */
const NOT_THE_ENGINE = new Set(['WARMPATH_CLIENT_CLOSED', 'WARMPATH_SHUTTING_DOWN', 'WARMPATH_INVALID_REQUEST']);

/** From this status on, it is the engine that failed; 501 says that it lacks a route. */
function failsAt(status: number): boolean {
  return status >= 500 && status !== 501;
}

/**
 * A second try after a failed connection waits between half and all of this, at random: clients must not come in step.
 */
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

/** Connections to the engine, one request each: prompts, and what is only passed through. */
const MIN_CONNECTIONS = 1_024;
/** Milliseconds to open a connection, where the configuration allows that much. */
const CONNECT_MS = 5_000;

/** The engine's HTTP side: a pool of keep-alive connections to one base URL. */
export class Upstream {
  /** Where the engine is, without credentials; part of the identity of what is cached. */
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
    this.#activity = { observer, watcher: undefined, retries: 0, underWay: 0, exchanges: 0 };
    this.#config = config;
    this.#basePath = url.pathname.replace(/\/+$/, '').replace(/\/v1$/, '');
    this.url = `${url.origin}${this.#basePath}`;
    this.#pool = new Pool(url.origin, {
      connections: Math.max(MIN_CONNECTIONS, config.maxConcurrent),
      connect: (options, done) => this.#connector()(options, done),
    });
  }

  /** They may change while requests are under way. */
  get #timeouts(): Timeouts {
    return timeoutsOf(this.#config);
  }

  /** Milliseconds in which a connection must open, or a question about the engine be answered. */
  get connectMs(): number {
    return Math.min(CONNECT_MS, this.#timeouts.headersMs);
  }

  /** Second tries after a failed connection, since the start. */
  get retries(): number {
    return this.#activity.retries;
  }

  /** Exchanges under way, of whatever kind. */
  get exchanges(): number {
    return this.#activity.exchanges;
  }

  /**
   * Tells of the engine's activity from now on: of requests that may make it compute, which those for reading do not.
   */
  watch(watcher: ActivityWatcher): void {
    this.#activity.watcher = watcher;
  }

  /** Starts an exchange. Everything that happens, a refusal to connect included, comes through the listener. */
  start(request: UpstreamRequest, listener: UpstreamListener, options: StartOptions = {}): UpstreamCall {
    const { headersMs: headersTimeout, idleMs: bodyTimeout, totalMs } = this.#timeouts;
    const sent = {
      method: request.method as Dispatcher.HttpMethod,
      path: this.#basePath + request.path,
      headers: request.headers,
      body: request.body,
      headersTimeout,
      bodyTimeout,
    };
    const tracking = new TrackedExchange(this.#activity, request.method, options.isBackground ?? false);
    return new UpstreamCall(listener, options.totalMs ?? totalMs, { pool: this.#pool, sent, tracking, options });
  }

  /** Opens connections, in the time that the configuration allows at the moment. */
  #connector(): buildConnector.connector {
    const { connectMs } = this;
    if (this.#connect?.ms !== connectMs)
      this.#connect = { ms: connectMs, open: buildConnector({ timeout: connectMs }) };
    return this.#connect.open;
  }

  /** Cuts every connection; what is in flight ends with `onError`. */
  async destroy(): Promise<void> {
    await this.#pool.destroy();
  }
}

/** What is under way between the gateway and an engine, and who hears of it. */
interface Activity {
  readonly observer: UpstreamObserver;
  watcher: ActivityWatcher | undefined;
  /** Second tries after a failed connection, since the start. */
  retries: number;
  /** Exchanges under way that may make the engine compute, and those of whatever kind. */
  underWay: number;
  exchanges: number;
}

/** One exchange, counted as under way until it is settled. */
class TrackedExchange {
  readonly #activity: Activity;
  readonly #isBackground: boolean;
  /** Whether it may make the engine compute something that somebody waits for. */
  readonly #counts: boolean;

  constructor(activity: Activity, method: string, isBackground: boolean) {
    this.#activity = activity;
    this.#isBackground = isBackground;
    this.#counts = !isBackground && method !== 'GET' && method !== 'HEAD';
    activity.exchanges++;
    if (this.#counts && activity.underWay++ === 0) activity.watcher?.busy();
  }

  ended(end: ExchangeEnd): void {
    if (!this.#isBackground && (this.#counts || end.kind === 'failed')) this.#activity.observer.ended(end);
  }

  retried(): void {
    this.#activity.retries++;
  }

  settled(): void {
    const activity = this.#activity;
    if (this.#counts && --activity.underWay === 0) activity.watcher?.idle();
    if (--activity.exchanges === 0) activity.observer.isQuiet();
  }
}

/** How an exchange reaches the engine. */
interface Transport {
  readonly pool: Dispatcher;
  readonly sent: Dispatcher.DispatchOptions;
  readonly tracking: TrackedExchange;
  readonly options: StartOptions;
}

/**
 * One exchange under way. It can be aborted in every state: queued for a connection, connecting, between two tries,
 * waiting for headers, in the middle of the body.
 */
export class UpstreamCall implements Dispatcher.DispatchHandler {
  readonly #listener: UpstreamListener;
  readonly #transport: Transport;
  readonly #total: NodeJS.Timeout;
  #controller: Dispatcher.DispatchController | undefined;
  #retry: NodeJS.Timeout | undefined;
  #attempt = 0;
  #headSeen = false;
  #status = 0;
  #settled = false;

  constructor(listener: UpstreamListener, totalMs: number, transport: Transport) {
    this.#listener = listener;
    this.#transport = transport;
    this.#total = setTimeout(() => this.abort(timeout(totalMs)), totalMs);
    this.#dispatch();
  }

  /**
   * Ends the exchange: the engine's connection is closed, or never opened. The listener hears `onError(reason)` at
   * once.
   */
  abort(reason: WarmpathError): void {
    if (this.#settled) return;
    this.#report(reason);
    this.#settle();
    this.#controller?.abort(reason);
    this.#listener.onError(reason);
  }

  /** Goes on after `onData` answered false. */
  resume(): void {
    this.#controller?.resume();
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    // Aborted while it waited for a connection: nothing has been written yet, and nothing will be.
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
    if (!this.#listener.onData(chunk)) controller.pause();
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

  /** What the end says about the engine. */
  #report(failure?: WarmpathError): void {
    const answered = this.#headSeen;
    if (answered && failsAt(this.#status)) {
      this.#ended({ kind: 'failed', reason: `status ${this.#status}`, answered });
    } else if (failure === undefined || failure.code === 'WARMPATH_UPSTREAM_ERROR') this.#ended(SERVED);
    else if (!NOT_THE_ENGINE.has(failure.code)) this.#ended({ kind: 'failed', reason: failure.code, answered });
  }

  #ended(end: ExchangeEnd): void {
    const { options, tracking } = this.#transport;
    options.ended?.(end);
    tracking.ended(end);
  }

  #dispatch(): void {
    const { pool, sent, tracking } = this.#transport;
    try {
      if (this.#attempt > 0) tracking.retried();
      pool.dispatch(sent, this);
    } catch (error) {
      this.onResponseError(undefined, error as Error);
    }
  }

  /**
   * Only a connection that was never opened: not one byte of the request has left, so the engine cannot have seen it.
   */
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
    clearTimeout(this.#retry);
    this.#transport.tracking.settled();
  }

  #translate(error: Error): WarmpathError {
    if (WarmpathError.isInstance(error)) return error;
    const code = codeOf(error);
    if (code === 'UND_ERR_HEADERS_TIMEOUT')
      return withCause('WARMPATH_UPSTREAM_TIMEOUT', 'no response headers in time (`upstream.timeoutMs`)', error);
    if (code === 'UND_ERR_BODY_TIMEOUT')
      return withCause('WARMPATH_UPSTREAM_TIMEOUT', 'the response stalled (`upstream.timeoutMs`)', error);
    if (code === 'UND_ERR_CONNECT_TIMEOUT')
      return withCause('WARMPATH_UPSTREAM_TIMEOUT', 'no connection in time', error);
    if (code === 'UND_ERR_INVALID_ARG') return withCause('WARMPATH_INVALID_REQUEST', error.message, error);
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
    | 'WARMPATH_INVALID_REQUEST',
  detail: string,
  cause: Error,
): WarmpathError {
  return new WarmpathError(code, { detail, cause });
}

function timeout(ms: number): WarmpathError {
  const detail = `the exchange took longer than ${ms} ms (\`upstream.timeoutMs\`)`;
  return new WarmpathError('WARMPATH_UPSTREAM_TIMEOUT', { detail });
}

/** Why there is no connection, in words that name no address: clients read them. */
function connectionFailure(code: string): string {
  const words = CONNECTION_WORDS[code];
  return `The engine cannot be reached: ${words === undefined ? code : `${words} (${code})`}.`;
}

const CONNECTION_WORDS: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'nothing listens at its address',
  ECONNRESET: 'it closed the connection',
  EHOSTUNREACH: 'there is no way to its host',
  ENETUNREACH: 'there is no way to its network',
  ENOTFOUND: 'its host name is not known',
  EAI_AGAIN: 'its host name cannot be looked up now',
  ETIMEDOUT: 'its host does not answer',
  UND_ERR_SOCKET: 'it closed the connection',
  EPROTO: 'it does not speak TLS as its address says',
  ERR_SSL_WRONG_VERSION_NUMBER: 'it does not speak TLS: its address begins with http://',
  DEPTH_ZERO_SELF_SIGNED_CERT:
    'its certificate is signed by nobody that this machine trusts; NODE_EXTRA_CA_CERTS names others',
  SELF_SIGNED_CERT_IN_CHAIN:
    'its certificate is signed by nobody that this machine trusts; NODE_EXTRA_CA_CERTS names others',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    'its certificate is signed by nobody that this machine trusts; NODE_EXTRA_CA_CERTS names others',
  CERT_HAS_EXPIRED: 'its certificate has expired',
  ERR_TLS_CERT_ALTNAME_INVALID: 'its certificate is for another host',
};

function codeOf(error: Error): string {
  const { code } = error as NodeJS.ErrnoException;
  if (code !== undefined) return code;
  // Several addresses were tried, and each failed (Node's happy eyeballs).
  const [first] = (error as AggregateError).errors ?? [];
  return (first as NodeJS.ErrnoException | undefined)?.code ?? 'ERROR';
}
