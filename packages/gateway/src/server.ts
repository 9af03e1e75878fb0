import { channel } from 'node:diagnostics_channel';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { WarmpathError } from '@warmpath/core';
import type { ConversationStore } from '@warmpath/core/internal';
import { type FastifyError, type FastifyInstance, type FastifyReply, type FastifyRequest, fastify } from 'fastify';
import { errorShapeOf } from './apis/error-shape.js';
import { messagesApi } from './apis/prompt-apis.js';
import type { OpenCollections } from './collections/open-collections.js';
import type { GatewayConfig } from './config/schema.js';
import type { PromptServer } from './dispatch/serve-prompt.js';
import type { AdmitParts } from './intake/admit.js';
import { admit } from './intake/admit.js';
import { clientError } from './intake/client-error.js';
import { checkHops, RESPONSE_HEADERS, retryAfter } from './intake/headers.js';
import { CLIENT_TIMEOUTS, OpenRequests } from './intake/open-requests.js';
import type { BodyMemory } from './intake/request-body.js';
import { RequestBodies } from './intake/request-body.js';
import { withPlace } from './json/json-scanner.js';
import { describeDefect } from './observe/fail-open.js';
import type { Log } from './observe/log.js';
import { ReportBuilder } from './observe/report.js';
import { recordOf } from './observe/request-log.js';
import { summaryHeader } from './observe/summary-header.js';
import type { Tracing } from './observe/tracing.js';
import type { TrafficSeries } from './observe/traffic-series.js';
import type { ArrangeParts } from './routes/arrange.js';
import { arrangeRoute } from './routes/arrange.js';
import { collectionsRoutes } from './routes/collections.js';
import type { HealthParts } from './routes/health.js';
import { healthRoutes } from './routes/health.js';
import type { ObserveParts } from './routes/observe.js';
import { observeRoute } from './routes/observe.js';
import type { DashboardRoutesParts } from './routes/operator.js';
import {
  DASHBOARD_ROUTES,
  dashboardRoutes,
  FEED_ROUTE,
  metricsRoute,
  requestsRoute,
  sessionsRoute,
} from './routes/operator.js';
import type { PassthroughParts } from './routes/passthrough.js';
import { passthroughRoute } from './routes/passthrough.js';
import type { CountTokensParts, PlanParts } from './routes/prompts.js';
import { countTokensRoute, planRoute, promptRoutes, warmupRoute } from './routes/prompts.js';
import type { Report } from './shapes/shapes.js';
import type { WarmParts } from './warm/warm-preamble.js';

declare module 'fastify' {
  interface FastifyRequest {
    /** Set for every request before anything else happens. */
    exchange: ReportBuilder;
  }
}

/**
 * Every request that is over, as `{id, method, route, status, durationMs, …}` (`RequestRecord`), for whoever lives in
 * the same process.
 */
const REQUESTS = channel('warmpath:request');

/** Time in which something of a body must come, in milliseconds. */
const STALL_MS = 10_000;

/** Errors after which the rest of a body is not read. */
const UNREAD: ReadonlySet<string> = new Set([
  'WARMPATH_BODY_TOO_LARGE',
  'WARMPATH_BODY_STALLED',
  'WARMPATH_OVERLOADED',
]);

/** Bytes of a body that is not wanted, and yet read so that its connection can stay. */
const MOST_SKIPPED_BYTES = 65_536;

/** Characters of a name in a path: the longest of a conversation, were each of its letters escaped. */
const MAX_PARAMETER_LENGTH = 3_072;

/** What is logged, the least severe first. */
const LEVELS: readonly GatewayConfig['log']['level'][] = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'];

/** Asked for every few seconds by machines; logged at `debug` only. */
const PROBES = new Set(['/healthz', '/readyz', '/metrics']);
const QUIET_ROUTES: ReadonlySet<string> = new Set([...PROBES, ...DASHBOARD_ROUTES]);

/** What the routes of a gateway work with. */
export interface ServerParts
  extends AdmitParts,
    ArrangeParts,
    ObserveParts,
    CountTokensParts,
    PlanParts,
    HealthParts,
    DashboardRoutesParts,
    PassthroughParts,
    WarmParts {
  readonly config: GatewayConfig;
  /** What this gateway is called in `x-warmpath-via`. */
  readonly hopName: string;
  /** Bodies of requests under way. */
  readonly bodies: BodyMemory;
  readonly prompts: PromptServer;
  readonly store: ConversationStore;
  /** Only where a folder is configured. */
  readonly collections: OpenCollections | undefined;
  /** Counts and times of the last quarter of an hour. */
  readonly traffic: TrafficSeries;
  readonly log: Log;
  /** Only where OpenTelemetry's API is installed. */
  readonly tracing: Tracing | undefined;
  /** Hears of every request that is over. */
  readonly onRequest: ((report: Report) => void) | undefined;
}

/** The HTTP server of a parts. */
export function buildServer(parts: ServerParts): FastifyInstance {
  const { server } = parts.config;
  const open = new OpenRequests(
    () => parts.config.upstream.timeouts.idleMs,
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
      // Refused before any hook ran: the request is counted and logged like any other.
      if (request.exchange === undefined) begin(app, parts, { request, reply });
      sendTableError(request, reply, fromFramework(error));
    },
  });
  app.removeAllContentTypeParsers();
  const limitBytes = Math.min(server.bodyLimitBytes, parts.bodies.largestBody);
  const bodies = new RequestBodies({ memory: parts.bodies, limitBytes, stallMs: STALL_MS });
  app.addContentTypeParser('*', (request, payload, done) => {
    bodies.receive(payload, request.exchange.caller.tenant, (error, body) => {
      if (body === undefined) {
        done(error);
        return;
      }
      const { exchange } = request;
      exchange.holds(body);
      parts.eventLoopBudget.run(() => {
        if (!exchange.isOver) done(null, body.bytes);
      });
    });
  });
  app.server.on('connection', () => parts.eventLoopBudget.shortenTurn());
  app.decorateRequest('exchange');
  app.addHook('onRequest', (request, reply, done) => {
    const number = open.began(request.raw, reply.raw);
    begin(app, parts, { request, reply, ended: () => open.ended(number) });
    const loop = checkHops(request.headers, parts.hopName);
    if (loop !== undefined) done(loop);
    else if (parts.lifecycle.draining && !PROBES.has(request.url)) done(new WarmpathError('WARMPATH_SHUTTING_DOWN'));
    else admit(parts, request, reply, done);
  });
  // Relayed answers are written past this, and decide at their head likewise.
  app.addHook('onSend', ({ raw }, reply, _payload, done) => {
    if (parts.lifecycle.leaving) reply.header('connection', 'close');
    const isRefused = reply.statusCode === 429 && reply.getHeader('connection') === 'close';
    if (!isRefused || raw.complete || isLarge(raw)) {
      done();
      return;
    }
    // A connection that is closed before all of it has come is reset, and the answer may be lost.
    raw.once('close', () => done());
    raw.resume();
  });
  app.setErrorHandler((error: FastifyError, request, reply) => {
    if (!WarmpathError.isInstance(error) && !(error.statusCode! < 500)) {
      parts.log.error({ requestId: request.exchange.requestId, ...describeDefect(error) }, 'internal error');
    }
    if (!WarmpathError.isInstance(error)) {
      sendTableError(request, reply, fromFramework(error));
      return;
    }
    const told = clientError(error);
    if (told !== error) parts.log.error({ requestId: request.exchange.requestId, reason: error.message }, error.code);
    sendTableError(request, reply, told);
  });
  app.setNotFoundHandler((request, reply) => {
    sendTableError(request, reply, notFound(app, request));
  });
  const { collections, requests } = parts;
  promptRoutes(app, parts.prompts);
  countTokensRoute(app, parts);
  arrangeRoute(app, parts);
  observeRoute(app, parts);
  warmupRoute(app, parts);
  planRoute(app, parts);
  requestsRoute(app, { server, requests });
  sessionsRoute(app, { server, store: parts.store });
  if (collections !== undefined) collectionsRoutes(app, { ...parts, collections });
  healthRoutes(app, parts);
  metricsRoute(app, parts.metrics);
  dashboardRoutes(app, parts);
  passthroughRoute(app, parts);
  return app;
}

function noSchemas(): never {
  throw new TypeError('bodies are read by the gateway, not by Fastify');
}

/** What is missing is `/v1` most often: where the base URL of a client lacks it. */
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
  const exchange = new ReportBuilder(request.headers, parts.now());
  request.exchange = exchange;
  const route = request.routeOptions.url ?? 'unmatched';
  if (!QUIET_ROUTES.has(route)) {
    const { method, headers } = request;
    exchange.trace = parts.tracing?.begin(
      { method, route, headers },
      { now: parts.now, startedAt: exchange.arrivedAt },
    );
  }
  // Anthropic's clients look for it under this name.
  if (request.url.startsWith(messagesApi.path)) reply.raw.setHeader('request-id', exchange.requestId);
  parts.metrics.began();
  reply.raw.once('close', () => {
    ended?.();
    exchange.letGo();
    const gone = !reply.raw.writableFinished && exchange.errorSource === undefined && route !== FEED_ROUTE;
    if (gone) exchange.errorCode ??= 'WARMPATH_CLIENT_CLOSED';
    const status = gone ? 499 : reply.raw.statusCode;
    if (exchange.errorCode === 'WARMPATH_UPSTREAM_UNREACHABLE') for (const engine of parts.engines.all) engine.look();
    const now = parts.now();
    const report = exchange.end({ method: request.method, route, status, now });
    parts.metrics.ended(report);
    const { tenant } = report;
    if (tenant !== undefined || REQUESTS.hasSubscribers) {
      const record = recordOf(report);
      if (tenant !== undefined) {
        parts.traffic.add(report, now);
        parts.requests.add(tenant, record, report.arrivedAt);
      }
      if (REQUESTS.hasSubscribers) REQUESTS.publish({ ...record, method: report.method });
    }
    exchange.trace?.ended(report, now);
    logAccess(parts, report);
    if (!QUIET_ROUTES.has(route)) parts.onRequest?.(report);
    if (parts.lifecycle.draining) app.server.closeIdleConnections();
  });
}

/** One line per request: counts and times, no body, no prompt, no key, no query string. */
function logAccess({ log, config }: ServerParts, report: Report): void {
  const level = QUIET_ROUTES.has(report.route) ? 'debug' : 'info';
  if (LEVELS.indexOf(level) < LEVELS.indexOf(config.log.level)) return;
  // The tenant is a digest of a key, or a name that is private.
  const { tenant: _tenant, arrivedAt: _arrivedAt, ...line } = report;
  log[level](line, 'request');
}

function sendTableError(request: FastifyRequest, reply: FastifyReply, thrown: WarmpathError): void {
  const error = Buffer.isBuffer(request.body) ? withPlace(thrown, request.body) : thrown;
  request.exchange.failed(error.code, 'gateway');
  if (error.code === 'WARMPATH_CONVERSATION_FORGOTTEN') {
    request.exchange.conversation = 'forgotten';
    // OpenAI's clients try a 409 again by themselves, and this one stays.
    reply.header('x-should-retry', 'false');
  }
  reply
    .code(error.status)
    .header(RESPONSE_HEADERS.requestId, request.exchange.requestId)
    .header(RESPONSE_HEADERS.summary, summaryHeader(request.exchange.soFar()));
  reply.headers(retryAfter(error));
  if (UNREAD.has(error.code) && !request.raw.complete && (error.code !== 'WARMPATH_OVERLOADED' || isLarge(request.raw)))
    reply.header('connection', 'close');
  reply.send(errorShapeOf(request.url).body(error, request.exchange.requestId));
}

/** Whether a refused body is left unread. A small one is read and thrown away, which costs less than a connection. */
function isLarge({ headers }: IncomingMessage): boolean {
  return !(Number(headers['content-length']) <= MOST_SKIPPED_BYTES);
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
