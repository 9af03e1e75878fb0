import { channel } from 'node:diagnostics_channel';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { WarmpathError } from '@warmpath/core';
import { type FastifyError, type FastifyInstance, type FastifyReply, type FastifyRequest, fastify } from 'fastify';
import type { Lifecycle } from './answer/relay.js';
import { clientError, errorShapeOf, messagesApi } from './apis/prompt-apis.js';
import type { GatewayConfig } from './config/schema.js';
import { timeoutsOf } from './config/schema-server.js';
import type { Engines } from './engines/engines.js';
import { type AdmitParts, admit } from './intake/admit.js';
import { checkHops, RESPONSE_HEADERS, retryAfter } from './intake/headers.js';
import { type BodyMemory, RequestBodies } from './intake/request-body.js';
import { withPlace } from './json/json-body.js';
import type { EventLoopBudget } from './limits/load.js';
import { describeDefect, type Log } from './observe/log.js';
import type { Metrics } from './observe/metrics.js';
import { ReportBuilder, summaryHeader } from './observe/report.js';
import { type RequestLog, recordOf } from './observe/request-log.js';
import type { Tracing } from './observe/tracing.js';
import type { TrafficSeries } from './observe/traffic-series.js';
import { DASHBOARD_ROUTES, FEED_ROUTE } from './routes/operator.js';
import type { Report } from './shapes/shapes.js';

declare module 'fastify' {
  interface FastifyRequest {
    /** Set for every request before anything else happens. */
    report: ReportBuilder;
  }
}

/** Publishes each ended request as `{id, method, route, status, durationMs, …}` (`RequestRecord`) in this process. */
const REQUESTS = channel('warmpath:request');

/** Milliseconds in which a part of a body must come. */
const STALL_MS = 10_000;

/** Errors after which the rest of a body is not read. */
const UNREAD: ReadonlySet<string> = new Set([
  'WARMPATH_BODY_TOO_LARGE',
  'WARMPATH_BODY_STALLED',
  'WARMPATH_OVERLOADED',
]);

/** Bytes of a refused body that is read and dropped, so that its connection stays open. */
const MAX_SKIPPED_BYTES = 65_536;

/** Characters of a name in a path: of the longest conversation's, with each character escaped. */
const MAX_PARAMETER_LENGTH = 3_072;

/** Levels of the log, the least severe first. */
const LEVELS: readonly GatewayConfig['log']['level'][] = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'];

/** Routes that machines poll. Logged at `debug`. */
const PROBES = new Set(['/healthz', '/readyz', '/metrics']);
const QUIET_ROUTES: ReadonlySet<string> = new Set([...PROBES, ...DASHBOARD_ROUTES, '/v1/prompts', '/v1/sessions']);

/** What the server itself works with, beside its routes. */
export interface ServerParts extends AdmitParts {
  readonly config: GatewayConfig;
  /** The name of this gateway in `x-warmpath-via`. */
  readonly hopName: string;
  readonly lifecycle: Lifecycle;
  readonly engines: Engines;
  readonly bodies: BodyMemory;
  readonly eventLoopBudget: EventLoopBudget;
  readonly requests: RequestLog;
  readonly traffic: TrafficSeries;
  /** By the wall clock. */
  readonly dayTraffic: TrafficSeries;
  readonly metrics: Metrics;
  readonly log: Log;
  /** `undefined` without OpenTelemetry's API. */
  readonly tracing: Tracing | undefined;
  readonly onRequest: ((report: Report) => void) | undefined;
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
}

/** The HTTP server of a parts, without routes. */
export function buildServer(parts: ServerParts): FastifyInstance {
  const { server } = parts.config;
  const open = new OpenRequests(
    () => timeoutsOf(parts.config.upstream).idleMs,
    () => parts.metrics.readerStalled(),
  );
  const app = fastify({
    bodyLimit: server.bodyLimitBytes,
    routerOptions: { maxParamLength: MAX_PARAMETER_LENGTH },
    ...CLIENT_TIMEOUTS,
    // No route has a schema for Fastify, and what would compile one is a hundred modules.
    schemaController: { compilersFactory: { buildValidator: noSchemas, buildSerializer: noSchemas } },
    forceCloseConnections: 'idle',
    return503OnClosing: false,
    clientErrorHandler: (error, socket) => {
      if (open.refuse(error, socket as Socket)) parts.metrics.error('WARMPATH_INVALID_REQUEST', 'gateway');
    },
    frameworkErrors: (error, request, reply) => {
      // No hook has run yet: the request must be counted and logged like any other.
      if (request.report === undefined) begin(app, parts, { request, reply });
      sendTableError(request, reply, fromFramework(error));
    },
  });
  app.removeAllContentTypeParsers();
  const limitBytes = Math.min(server.bodyLimitBytes, parts.bodies.largestBody);
  const bodies = new RequestBodies({ memory: parts.bodies, limitBytes, stallMs: STALL_MS });
  app.addContentTypeParser('*', (request, payload, done) => {
    bodies.receive(payload, request.report.caller.tenant, (error, body) => {
      if (body === undefined) {
        done(error);
        return;
      }
      const { report } = request;
      report.holds(body);
      parts.eventLoopBudget.run(() => {
        if (!report.isOver) done(null, body.bytes);
      });
    });
  });
  app.server.on('connection', () => parts.eventLoopBudget.shortenTurn());
  app.decorateRequest('report');
  app.addHook('onRequest', (request, reply, done) => {
    const number = open.began(request.raw, reply.raw);
    begin(app, parts, { request, reply, ended: () => open.ended(number) });
    const loop = checkHops(request.headers, parts.hopName);
    if (loop !== undefined) done(loop);
    else if (parts.lifecycle.draining && !PROBES.has(request.url)) done(new WarmpathError('WARMPATH_SHUTTING_DOWN'));
    else admit(parts, request, reply, done);
  });
  // Relayed answers bypass this hook: `ownHeaders` does the same for them.
  app.addHook('onSend', ({ raw }, reply, _payload, done) => {
    if (parts.lifecycle.leaving) reply.header('connection', 'close');
    const isRefused = reply.statusCode === 429 && reply.getHeader('connection') === 'close';
    if (!isRefused || raw.complete || isLarge(raw)) {
      done();
      return;
    }
    // Closing before the whole body has come would reset the connection, and the answer could be lost.
    raw.once('close', () => done());
    raw.resume();
  });
  app.setErrorHandler((error: FastifyError, request, reply) => {
    if (!WarmpathError.isInstance(error) && !(error.statusCode! < 500)) {
      parts.log.error({ requestId: request.report.requestId, ...describeDefect(error) }, 'internal error');
    }
    if (!WarmpathError.isInstance(error)) {
      sendTableError(request, reply, fromFramework(error));
      return;
    }
    const told = clientError(error);
    if (told !== error) parts.log.error({ requestId: request.report.requestId, reason: error.message }, error.code);
    sendTableError(request, reply, told);
  });
  app.setNotFoundHandler((request, reply) => {
    sendTableError(request, reply, notFound(app, request));
  });
  return app;
}

function noSchemas(): never {
  throw new TypeError('bodies are read by the gateway, not by Fastify');
}

/** Names the path with `/v1` where that exists: the client's base URL lacks it. */
function notFound(app: FastifyInstance, { method, url }: FastifyRequest): WarmpathError {
  const path = `/v1${url.split('?', 1)[0]}`;
  const isKnown = path === '/v1/models' || app.hasRoute({ method: method as 'POST', url: path });
  if (!isKnown) return new WarmpathError('WARMPATH_NOT_FOUND');
  const detail = `There is nothing at this path, but at ${path}: the base URL of the client lacks its /v1.`;
  return new WarmpathError('WARMPATH_NOT_FOUND', { detail });
}

function begin(
  app: FastifyInstance,
  parts: ServerParts,
  {
    request,
    reply,
    ended,
  }: { readonly request: FastifyRequest; readonly reply: FastifyReply; readonly ended?: () => void },
): void {
  const builder = new ReportBuilder(request.headers, parts.now());
  request.report = builder;
  const route = request.routeOptions.url ?? 'unmatched';
  if (!QUIET_ROUTES.has(route)) {
    const { method, headers } = request;
    builder.trace = parts.tracing?.begin({ method, route, headers }, { now: parts.now, startedAt: builder.arrivedAt });
  }
  reply.header(RESPONSE_HEADERS.requestId, builder.requestId);
  // Anthropic's clients read the id under this name.
  if (request.url.startsWith(messagesApi.path)) reply.raw.setHeader('request-id', builder.requestId);
  parts.metrics.began();
  reply.raw.once('close', () => {
    ended?.();
    builder.release();
    const gone = !reply.raw.writableFinished && builder.errorSource === undefined && route !== FEED_ROUTE;
    if (gone) builder.errorCode ??= 'WARMPATH_CLIENT_CLOSED';
    const status = gone ? 499 : reply.raw.statusCode;
    if (builder.errorCode === 'WARMPATH_UPSTREAM_UNREACHABLE')
      for (const engine of parts.engines.all) engine.watchAgain();
    const now = parts.now();
    const report = builder.end({ method: request.method, route, status, now });
    parts.metrics.ended(report);
    const { tenant } = report;
    if (tenant !== undefined || REQUESTS.hasSubscribers) {
      const record = recordOf(report);
      if (tenant !== undefined) {
        parts.traffic.add(report, now);
        parts.dayTraffic.add(report, Date.now());
        parts.requests.add(tenant, record, report.arrivedAt);
      }
      if (REQUESTS.hasSubscribers) REQUESTS.publish({ ...record, method: report.method });
    }
    builder.trace?.ended(report, now);
    logAccess(parts, report);
    if (!QUIET_ROUTES.has(route)) parts.onRequest?.(report);
    if (parts.lifecycle.draining) app.server.closeIdleConnections();
  });
}

/** One line per request: counts and times, no body, no prompt, no key, no query string. */
function logAccess({ log, config }: Pick<ServerParts, 'log' | 'config'>, report: Report): void {
  const level = QUIET_ROUTES.has(report.route) ? 'debug' : 'info';
  if (LEVELS.indexOf(level) < LEVELS.indexOf(config.log.level)) return;
  // The tenant is a digest of a key, or a name that is private.
  const { tenant: _tenant, arrivedAt: _arrivedAt, receivedMs: _receivedMs, slots: blocks, ...line } = report;
  log[level]({ ...line, blocks }, 'request');
}

function sendTableError(request: FastifyRequest, reply: FastifyReply, thrown: WarmpathError): void {
  const error = Buffer.isBuffer(request.body) ? withPlace(thrown, request.body) : thrown;
  request.report.failed(error.code, 'gateway');
  if (error.code === 'WARMPATH_CONVERSATION_FORGOTTEN') {
    request.report.conversation = 'forgotten';
    // OpenAI's clients retry a 409, and this one would be the same.
    reply.header('x-should-retry', 'false');
  }
  reply.code(error.status).header(RESPONSE_HEADERS.summary, summaryHeader(request.report.soFar()));
  reply.headers(retryAfter(error));
  if (UNREAD.has(error.code) && !request.raw.complete && (error.code !== 'WARMPATH_OVERLOADED' || isLarge(request.raw)))
    reply.header('connection', 'close');
  reply.send(errorShapeOf(request.url).body(error, request.report.requestId));
}

/** Whether a refused body is left unread. Reading a small one costs less than a new connection. */
function isLarge({ headers }: IncomingMessage): boolean {
  return !(Number(headers['content-length']) <= MAX_SKIPPED_BYTES);
}

/** Fastify's own errors in terms of the table. */
function fromFramework(error: FastifyError): WarmpathError {
  if (error.code === 'FST_ERR_CTP_BODY_TOO_LARGE') return new WarmpathError('WARMPATH_BODY_TOO_LARGE');
  if (error.code === 'FST_ERR_CTP_INVALID_MEDIA_TYPE') {
    return new WarmpathError('WARMPATH_INVALID_REQUEST', {
      path: 'content-type',
      detail: 'This header is not a media type.',
    });
  }
  // Fastify's own message quotes the path.
  if (error.code === 'FST_ERR_BAD_URL') {
    return new WarmpathError('WARMPATH_INVALID_REQUEST', { detail: 'The path has a broken percent escape.' });
  }
  if (error.statusCode !== undefined && error.statusCode < 500) {
    return new WarmpathError('WARMPATH_INVALID_REQUEST', { detail: error.message });
  }
  return new WarmpathError('WARMPATH_INTERNAL');
}

/** Milliseconds in which a client must send a whole request, and for which an idle connection stays open. */
const CLIENT_TIMEOUTS = { requestTimeout: 300_000, keepAliveTimeout: 72_000 };

/** Status and reason by the HTTP parser's error; 400 for all others. */
const REFUSALS: Readonly<Record<string, readonly [status: string, detail: string]>> = {
  HPE_HEADER_OVERFLOW: ['431 Request Header Fields Too Large', 'The headers are larger than this server accepts.'],
  ERR_HTTP_REQUEST_TIMEOUT: ['408 Request Timeout', 'The request did not come completely in time.'],
};
const NOT_HTTP = ['400 Bad Request', 'This is not HTTP/1.1.'] as const;

/** A request whose headers have come. */
export interface OpenRequest {
  readonly socket: unknown;
  /** Whether its body has come. */
  readonly complete: boolean;
}

/** An answer under way. */
export interface WrittenAnswer {
  /** Written bytes that the client has not read. */
  readonly writableLength: number;
  destroy(): unknown;
}

interface OpenExchange {
  readonly request: OpenRequest;
  readonly answer: WrittenAnswer;
  /** Unread bytes at the last check. */
  waiting: number;
}

/**
 * The open requests of clients.
 *
 * - Answers malformed HTTP with the table's error and closes the connection; without an answer where another answer is
 *   due on the connection, because the client would read the error as a part of it.
 * - Ends answers whose client reads nothing between two checks: they would hold memory and room in the engine.
 */
export class OpenRequests {
  readonly #stallMs: () => number;
  readonly #stalled: () => void;
  readonly #open = new Map<number, OpenExchange>();
  #began = 0;
  #timer: NodeJS.Timeout | undefined;

  /**
   * @param stallMs Milliseconds between two checks.
   * @param stalled Called when an answer is ended.
   */
  constructor(stallMs: () => number, stalled: () => void) {
    this.#stallMs = stallMs;
    this.#stalled = stalled;
  }

  /** Adds a request whose headers have come. @returns Its number for `ended`. O(1). */
  began(request: OpenRequest, answer: WrittenAnswer): number {
    const number = this.#began++;
    this.#open.set(number, { request, answer, waiting: 0 });
    // One timer for all requests, and none without requests.
    this.#timer ??= setTimeout(this.#look, this.#stallMs()).unref();
    return number;
  }

  /** Removes a request whose answer is over. O(1). */
  ended(number: number): void {
    this.#open.delete(number);
  }

  /**
   * Answers malformed HTTP, if the connection has no other request, and closes the connection. O(open requests).
   *
   * @returns Whether it was answered.
   */
  refuse(error: NodeJS.ErrnoException, socket: Socket): boolean {
    const open = [...this.#open.values()].filter(({ request }) => request.socket === socket);
    const isUnanswered = open.length === 0 || (open.length === 1 && !open[0]!.request.complete);
    if (error.code === 'ECONNRESET' || !socket.writable || !isUnanswered) {
      socket.destroy();
      return false;
    }
    const [status, detail] = REFUSALS[error.code ?? ''] ?? NOT_HTTP;
    const body = JSON.stringify(new WarmpathError('WARMPATH_INVALID_REQUEST', { detail }).toOpenAI());
    const head = [
      `HTTP/1.1 ${status}`,
      'content-type: application/json; charset=utf-8',
      `content-length: ${Buffer.byteLength(body)}`,
      `${RESPONSE_HEADERS.summary}: error=gateway`,
      'connection: close',
    ];
    socket.end(`${head.join('\r\n')}\r\n\r\n${body}`, () => socket.destroy());
    return true;
  }

  readonly #look = (): void => {
    this.#timer = undefined;
    for (const open of this.#open.values()) {
      const waiting = open.answer.writableLength;
      if (open.waiting > 0 && waiting >= open.waiting) {
        open.answer.destroy();
        this.#stalled();
      } else open.waiting = waiting;
    }
    if (this.#open.size > 0) this.#timer = setTimeout(this.#look, this.#stallMs()).unref();
  };
}
