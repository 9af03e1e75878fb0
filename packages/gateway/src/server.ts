import { channel } from 'node:diagnostics_channel';
import type { Server as HttpServer, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { performance } from 'node:perf_hooks';
import { type ConversationStore, WarmpathError } from '@warmpath/core';
import {
  type FastifyError,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  fastify,
  LogController,
} from 'fastify';
import { PromptMemo } from './arrange/found/prompt-memo.js';
import { SentOrders } from './arrange/found/sent-orders.js';
import { type RecognitionNotice, UnrecognisedPrompts } from './arrange/found/unrecognised-prompts.js';
import { type Arrange, InsertedDocuments } from './arrange/inserted-documents.js';
import { OpenCollections } from './collections/open-collections.js';
import { resolveConfig } from './config/load.js';
import { engineSettings, type GatewayConfig, type GatewayConfigInput } from './config/schema.js';
import { createConversationStore } from './conversation/conversation-store.js';
import { Conversations } from './conversation/conversations.js';
import { RESPONSE_HEADERS, retryAfter, summaryHeader } from './dispatch/headers.js';
import { type Engine, logChange } from './engines/engine.js';
import type { EngineReport } from './engines/engine-probe.js';
import { logReport } from './engines/engine-watch.js';
import { Engines } from './engines/engines.js';
import { SentPrefixes } from './engines/sent-prefixes.js';
import type { Gateway } from './gateway.js';
import { admit } from './intake/admit.js';
import { errorShapeOf } from './intake/apis/error-shape.js';
import { messagesApi } from './intake/apis/messages-api.js';
import { Authenticator } from './intake/authenticate.js';
import { Cors } from './intake/cors.js';
import { checkHops, newHopName } from './intake/hops.js';
import { withPlace } from './intake/json-scanner.js';
import { CLIENT_TIMEOUTS, MalformedRequests } from './intake/malformed-requests.js';
import { RateLimits } from './intake/rate-limits.js';
import { BodyMemory, RequestBodies } from './intake/request-body.js';
import { WorkSlices } from './intake/work-slices.js';
import { Exchange } from './observe/exchange.js';
import { describeDefect } from './observe/fail-open.js';
import { bytesOfPart, type MemoryPart } from './observe/memory-budget.js';
import { OpenArrangements } from './observe/open-arrangements.js';
import { PeerGateways } from './observe/peer-gateways.js';
import { ServedHistories } from './observe/served-histories.js';
import { type ServedRequest, servedRequest } from './observe/served-request.js';
import { loadTracing, type Tracing } from './observe/tracing.js';
import { TrafficSeries } from './observe/traffic-series.js';
import { type AdminServer, startAdminServer } from './operate/admin/admin-server.js';
import { RequestLog, recordOf } from './operate/explain/request-log.js';
import { Metrics } from './operate/metrics.js';
import { PlanJobs } from './plan/plan-jobs.js';
import { CacheSalts } from './render/cache-salts.js';
import { arrangeRoute } from './routes/arrange.js';
import { collectionsRoutes } from './routes/collections.js';
import { countTokensRoute } from './routes/count-tokens.js';
import { DASHBOARD_ROUTES, dashboardRoutes, FEED_ROUTE } from './routes/dashboard.js';
import { healthRoutes } from './routes/health.js';
import { metricsRoute } from './routes/metrics.js';
import { observeRoute } from './routes/observe.js';
import { passthroughRoute, speculationsRoute } from './routes/passthrough.js';
import { planRoute } from './routes/plan.js';
import { promptRoutes } from './routes/prompts.js';
import { requestsRoute } from './routes/requests.js';
import { sessionsRoute } from './routes/sessions.js';
import { warmupRoute } from './routes/warmup.js';
import { Prewarmer } from './warm/prewarmer.js';
import { WarmPrefixes } from './warm/warm-prefixes.js';
import { Warmups } from './warm/warmups.js';
import { WorkerPool } from './workers/worker-pool.js';

declare module 'fastify' {
  interface FastifyRequest {
    /** Set for every request before anything else happens. */
    exchange: Exchange;
  }
}

/** A gateway that listens. */
export interface RunningGateway {
  /** Where it listens, for instance `http://127.0.0.1:8080`. */
  readonly url: string;
  /**
   * Stops: no new requests, warm-ups aborted, answers in flight finished within `server.drainMs` or cut.
   * Resolves when every connection is closed; safe to call twice.
   */
  close(): Promise<void>;
  /**
   * Takes the list of engines of another configuration, and nothing else of it. Engines that it lists no more answer
   * what they have and go. Errors: those of a configuration; nothing has changed then.
   */
  reloadEngines(input: GatewayConfigInput): Promise<void>;
}

/** Parts that a caller may replace. */
export interface GatewayParts {
  /** In place of core's `arrange`. */
  readonly arrange?: Arrange;
  /** How documents in messages were ordered. */
  readonly sentOrders?: SentOrders;
  /** What became of the messages of conversations. */
  readonly promptMemo?: PromptMemo;
  /** Where conversations are remembered; in this process by default. */
  readonly sessions?: ConversationStore;
  /**
   * Hears what is at the engine's address: at the start, and whenever that changes. Without it, nobody asks and nothing
   * of it is logged.
   */
  readonly onEngine?: (report: EngineReport) => void;
  /** Hears once for each shape of prompts why documents in them stay as they are. Without it, nobody looks. */
  readonly onUnrecognised?: (notice: RecognitionNotice) => void;
  /** Hears of every request of a client that is over. */
  readonly onRequest?: (request: ServedRequest) => void;
  /** The monotonic clock, in milliseconds; `performance.now` by default. */
  readonly now?: () => number;
  /** Processes beside this one that have the connections of clients and relay answers. Default: none. */
  readonly workers?: number;
}

/**
 * `diagnostics_channel`s of whoever lives in the same process: every request that is over, as
 * `{id, method, route, status, durationMs, …}` (`RequestRecord`), and what becomes of engines, as
 * `{engine, kind, reason}`.
 */
const REQUESTS = channel('warmpath:request');
const ENGINES = channel('warmpath:engine');

/** Time in which something of a body must come, in milliseconds. */
const STALL_MS = 10_000;

/** Errors after which the rest of a body is not read. */
const UNREAD: ReadonlySet<string> = new Set([
  'WARMPATH_BODY_TOO_LARGE',
  'WARMPATH_BODY_STALLED',
  'WARMPATH_OVERLOADED',
]);

/** Characters of a name in a path: the longest of a conversation, were each of its letters escaped. */
const MAX_PARAMETER_LENGTH = 3_072;

/** What is logged, the least severe first. */
const LEVELS: readonly GatewayConfig['log']['level'][] = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'];

/** Asked for every few seconds by machines; logged at `debug` only. */
const PROBES = new Set(['/healthz', '/readyz', '/metrics']);
const QUIET_ROUTES: ReadonlySet<string> = new Set([...PROBES, ...DASHBOARD_ROUTES]);

/**
 * Starts a gateway in front of the engine at `config.upstream.url`, or of those in `config.engines`. Defaults are
 * filled in. Errors: `WARMPATH_CONFIG_…`; what `listen` throws if the port is taken.
 */
export async function startGateway(input: GatewayConfigInput, parts: GatewayParts = {}): Promise<RunningGateway> {
  const config = resolveConfig(input);
  const sessions = parts.sessions ?? (await createConversationStore(config));
  const now = parts.now ?? (() => performance.now());
  const searched = (ms: number) => gateway.metrics.searched(ms);
  const collections = config.collections && (await OpenCollections.open(config.collections, { now, searched }));
  const authenticator = await Authenticator.open(config.server);
  const tracing = await loadTracing();
  const { workers: count = 0 } = parts;
  const workers =
    count === 0
      ? undefined
      : new WorkerPool({
          count,
          setup: { upstream: { timeouts: config.upstream.timeouts, maxConcurrent: config.upstream.maxConcurrent } },
          malformed: () => gateway.metrics.error('WARMPATH_INVALID_REQUEST', 'gateway'),
        });
  const gateway = await assemble(config, authenticator, {
    ...parts,
    sessions,
    collections,
    tracing,
    now,
    pool: workers,
  });
  const app = buildServer(gateway, workers);
  gateway.engineChanged = (engine, change) => {
    logChange(app.log, engine, change);
    if (ENGINES.hasSubscribers) ENGINES.publish({ engine: engine.name, ...change });
  };
  const { socket } = gateway.config.admin;
  let url: string;
  let admin: AdminServer | undefined;
  try {
    await openConversationStore(gateway, app);
    if (socket !== undefined) admin = await startAdminServer(socket, gateway, app.log);
    await workers?.start(app.log);
    url = await app.listen({ host: gateway.config.server.host, port: gateway.config.server.port });
  } catch (error) {
    workers?.kill();
    await admin?.close();
    await gateway.conversations.store.close();
    await gateway.collections?.close();
    await gateway.engines.close();
    throw error;
  }
  watchEngines(gateway, app, parts.onEngine);
  let closing: Promise<void> | undefined;
  return {
    url,
    reloadEngines: async (input) => {
      await gateway.engines.reload(engineSettings(resolveConfig(input)));
    },
    close: () => {
      closing ??= shutDown(app, gateway, { admin, workers });
      return closing;
    },
  };
}

/** Looks for the engines; what is found shows in the log, too. */
function watchEngines(
  { engines }: Gateway,
  { log }: FastifyInstance,
  tell: ((report: EngineReport) => void) | undefined,
): void {
  engines.watch(
    tell &&
      ((report) => {
        logReport(log, report);
        tell(report);
      }),
  );
}

/**
 * Opens the store of conversations. How it does shows in the metrics, and in the log where the server comes or goes.
 */
async function openConversationStore(
  { conversations, peers, metrics }: Gateway,
  { log }: FastifyInstance,
): Promise<void> {
  await conversations.store.open({
    done: (operation, ms) => metrics.stored(operation, ms),
    failed: (operation, failure) => metrics.notStored(operation, failure),
    changed: (isUp, reason) => {
      if (isUp) log.info({ reason }, 'session store up');
      else log.warn({ reason }, 'session store down');
    },
  });
  peers?.open();
}

async function assemble(
  config: GatewayConfig,
  authenticator: Authenticator,
  parts: GatewayParts & {
    readonly sessions: ConversationStore;
    readonly collections: OpenCollections | undefined;
    readonly tracing: Tracing | undefined;
    readonly now: () => number;
    readonly pool: WorkerPool | undefined;
  },
): Promise<Gateway> {
  const { now } = parts;
  // Said once the log exists.
  let gateway: Gateway | undefined;
  const { memoryBytes } = config.limits;
  const bytesOf = (part: MemoryPart) => bytesOfPart(part, memoryBytes);
  const bodies = new BodyMemory(bytesOf('bodies'));
  const histories = new ServedHistories(bytesOf('histories'), config.residency);
  const prefixes = new WarmPrefixes(bytesOf('prefixes'), config.residency.maxAgeMs);
  const documents = new InsertedDocuments(config, bytesOf('documents'), parts.arrange);
  const { sessions } = parts;
  const conversations = new Conversations(sessions);
  const metrics = new Metrics({
    sessions: () => sessions.conversations,
    sessionTurns: () => sessions.turns,
    sessionStoreUp: () => sessions.isUp,
    peers: () => gateway?.peers?.counts,
    histories: () => histories.size,
    treeNodes: () => histories.treeNodes,
    warmPrefixes: () => prefixes.size,
    engines: () => engines.all,
    plansWaiting: () => plans.depth,
    openArrangements: () => arrangements.size,
    sentMessages: () => sentOrders.size,
    recordedRequests: () => requests.size,
    workers: () => parts.pool,
    memoryBytes,
    memory: {
      bodies: () => bodies.bytes,
      histories: () => histories.bytes,
      conversations: () => sessions.bytes + promptMemo.bytes + sentOrders.bytes,
      documents: () => documents.cache.bytes,
      prewarm: () => engines.all.reduce((sum, { prewarmer }) => sum + (prewarmer?.bytes ?? 0), 0),
      arrangements: () => arrangements.bytes,
      requests: () => requests.bytes,
      prefixes: () => prefixes.bytes,
      beginnings: () => sentPrefixes.bytes,
    },
  });
  const sentPrefixes = new SentPrefixes(bytesOf('beginnings'));
  const warmups = new Warmups(prefixes, now);
  const plans = new PlanJobs(config);
  const arrangements = new OpenArrangements(bytesOf('arrangements'));
  const requests = new RequestLog(bytesOf('requests'));
  const sentOrders = parts.sentOrders ?? new SentOrders(Math.floor(bytesOf('conversations') / 8));
  const promptMemo =
    parts.promptMemo ??
    new PromptMemo({ maxBytes: Math.floor((bytesOf('conversations') * 3) / 8), maxAgeMs: config.session.maxAgeMs });
  const { cacheSaltKey } = config.upstream;
  const cacheSalts = cacheSaltKey === undefined ? undefined : new CacheSalts(cacheSaltKey);
  const hopName = newHopName();
  const listed = engineSettings(config);
  const createPrewarmer = ({ upstream }: Engine): Prewarmer | undefined => {
    if (config.prewarm.tokensPerMinute === 0) return undefined;
    const bytes = Math.floor(bytesOf('prewarm') / listed.length);
    return new Prewarmer(config.prewarm, bytes, { upstream, documents, cacheSalts, metrics, now });
  };
  const engines = await Engines.open(
    listed,
    {
      config,
      hopName,
      now,
      createPrewarmer,
      waited: (ms) => metrics.waited(ms),
      changed: (engine, change) => gateway?.engineChanged?.(engine, change),
      cachesOtherwise: (engine) => histories.forget(engine),
    },
    (engine) => histories.forget(engine),
  );
  const rateLimits = new RateLimits(now);
  const { keys = [] } = config.server;
  const exchange = sessions.exchange?.bind(sessions);
  const peers = exchange && new PeerGateways({ exchange, histories, engines, rateLimits, keys, now });
  const cors = config.server.cors && new Cors(config.server.cors);
  const state = {
    authenticator,
    rateLimits,
    cors,
    bodies,
    histories,
    sentPrefixes,
    slices: new WorkSlices(),
    documents,
    cacheSalts,
    conversations,
    peers,
    collections: parts.collections,
    prefixes,
    warmups,
    plans,
    arrangements,
    sentOrders,
    promptMemo,
    requests,
    traffic: new TrafficSeries(),
    viewers: new Set<ServerResponse>(),
  };
  gateway = {
    config,
    engines,
    hopName,
    ...state,
    metrics,
    tracing: parts.tracing,
    now,
    unrecognised: parts.onUnrecognised && new UnrecognisedPrompts(parts.onUnrecognised, now),
    onRequest: parts.onRequest,
    draining: false,
  };
  return gateway;
}

function buildServer(gateway: Gateway, workers: WorkerPool | undefined): FastifyInstance {
  const { server, log } = gateway.config;
  const malformed = new MalformedRequests();
  const app = fastify({
    bodyLimit: server.bodyLimitBytes,
    routerOptions: { maxParamLength: MAX_PARAMETER_LENGTH },
    ...CLIENT_TIMEOUTS,
    ...(workers !== undefined && {
      serverFactory: (handler: Parameters<WorkerPool['serverFor']>[0]) =>
        workers.serverFor(handler) as unknown as HttpServer,
    }),
    forceCloseConnections: 'idle',
    return503OnClosing: false,
    logController: new LogController({ disableRequestLogging: true }),
    logger: log.level === 'silent' ? false : { level: log.level, base: null },
    // Every line carries the request id itself; a child logger per request would cost more than the line.
    childLoggerFactory: (logger) => logger,
    clientErrorHandler: (error, socket) => {
      if (malformed.refuse(error, socket as Socket)) gateway.metrics.error('WARMPATH_INVALID_REQUEST', 'gateway');
    },
    frameworkErrors: (error, request, reply) => {
      // Refused before any hook ran: the request is counted and logged like any other.
      if (request.exchange === undefined) begin(app, gateway, { request, reply });
      sendTableError(request, reply, fromFramework(error));
    },
  });
  app.removeAllContentTypeParsers();
  const limitBytes = Math.min(server.bodyLimitBytes, gateway.bodies.largestBody);
  const bodies = new RequestBodies({ memory: gateway.bodies, limitBytes, stallMs: STALL_MS });
  app.addContentTypeParser('*', (request, payload, done) => {
    bodies.receive(payload, request.exchange.caller.tenant, (error, body) => {
      if (body !== undefined) request.exchange.holds(body);
      done(error, body?.bytes);
    });
  });
  app.decorateRequest('exchange');
  app.addHook('onRequest', (request, reply, done) => {
    malformed.began(request.raw);
    begin(app, gateway, { request, reply, ended: () => malformed.ended(request.raw) });
    const loop = checkHops(request.headers, gateway.hopName);
    if (loop !== undefined) done(loop);
    else if (gateway.draining && !PROBES.has(request.url)) done(new WarmpathError('WARMPATH_SHUTTING_DOWN'));
    else admit(gateway, request, reply, done);
  });
  // Relayed answers are written past this, and decide at their head likewise.
  app.addHook('onSend', (_request, reply, _payload, done) => {
    if (gateway.draining) reply.header('connection', 'close');
    done();
  });
  app.setErrorHandler((error: FastifyError, request, reply) => {
    if (!WarmpathError.isInstance(error) && !(error.statusCode! < 500)) {
      request.log.error({ requestId: request.exchange.requestId, ...describeDefect(error) }, 'internal error');
    }
    sendTableError(request, reply, WarmpathError.isInstance(error) ? error : fromFramework(error));
  });
  app.setNotFoundHandler((request, reply) => {
    sendTableError(request, reply, notFound(app, request));
  });
  promptRoutes(app, gateway);
  countTokensRoute(app, gateway);
  for (const route of [
    arrangeRoute,
    observeRoute,
    warmupRoute,
    planRoute,
    requestsRoute,
    sessionsRoute,
    collectionsRoutes,
  ])
    route(app, gateway);
  for (const route of [healthRoutes, metricsRoute, dashboardRoutes, speculationsRoute, passthroughRoute])
    route(app, gateway);
  return app;
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
  gateway: Gateway,
  {
    request,
    reply,
    ended,
  }: { readonly request: FastifyRequest; readonly reply: FastifyReply; readonly ended?: () => void },
): void {
  const exchange = new Exchange(request.headers, gateway.now());
  request.exchange = exchange;
  const route = request.routeOptions.url ?? 'unmatched';
  if (!QUIET_ROUTES.has(route)) {
    const { method, headers } = request;
    exchange.trace = gateway.tracing?.begin(
      { method, route, headers },
      { now: gateway.now, startedAt: exchange.arrivedAt },
    );
  }
  // Anthropic's clients look for it under this name.
  if (request.url.startsWith(messagesApi.path)) reply.raw.setHeader('request-id', exchange.requestId);
  gateway.metrics.began();
  reply.raw.once('close', () => {
    ended?.();
    exchange.letGo();
    const gone = !reply.raw.writableFinished && exchange.errorSource === undefined && route !== FEED_ROUTE;
    if (gone) exchange.errorCode ??= 'WARMPATH_CLIENT_CLOSED';
    const status = gone ? 499 : reply.raw.statusCode;
    if (exchange.errorCode === 'WARMPATH_UPSTREAM_UNREACHABLE') for (const engine of gateway.engines.all) engine.look();
    gateway.metrics.ended(route, status, exchange);
    const { tenant } = exchange;
    const now = gateway.now();
    if (tenant !== undefined) {
      gateway.traffic.add(exchange, status, now);
      gateway.requests.add(tenant, recordOf(exchange, { route, status, now }), exchange);
    }
    if (REQUESTS.hasSubscribers)
      REQUESTS.publish({ ...recordOf(exchange, { route, status, now }), method: request.method });
    exchange.trace?.ended(exchange, { status, at: now });
    const durationMs = round(now - exchange.arrivedAt);
    logAccess(gateway, request, { route, status, durationMs });
    if (!QUIET_ROUTES.has(route)) gateway.onRequest?.(servedRequest(exchange, { route, status, durationMs }));
    if (gateway.draining) app.server.closeIdleConnections();
  });
}

/** One line per request: counts and times, no body, no prompt, no key, no query string. */
function logAccess(
  gateway: Gateway,
  { log, exchange, method }: FastifyRequest,
  line: { readonly route: string; readonly status: number; readonly durationMs: number },
): void {
  const { route } = line;
  const level = QUIET_ROUTES.has(route) ? 'debug' : 'info';
  if (LEVELS.indexOf(level) < LEVELS.indexOf(gateway.config.log.level)) return;
  // A tenant is a digest of a key, or a name that is nobody else's business.
  const {
    requestId,
    arrivedAt: _arrivedAt,
    bodyAt: _bodyAt,
    tenant: _tenant,
    caller: _caller,
    trace,
    ...facts
  } = exchange;
  log[level]({ requestId, traceId: trace?.traceId, method, ...line, ...facts }, 'request');
}

function round(ms: number): number {
  return Math.round(ms * 1_000) / 1_000;
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
    .header(RESPONSE_HEADERS.summary, summaryHeader(request.exchange));
  reply.headers(retryAfter(error));
  if (UNREAD.has(error.code) && !request.raw.complete) reply.header('connection', 'close');
  reply.send(errorShapeOf(request.url).body(error, request.exchange.requestId));
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

async function shutDown(
  app: FastifyInstance,
  gateway: Gateway,
  { admin, workers }: { readonly admin: AdminServer | undefined; readonly workers: WorkerPool | undefined },
): Promise<void> {
  gateway.draining = true;
  gateway.warmups.close();
  gateway.peers?.close();
  for (const engine of gateway.engines.all) engine.rest();
  for (const viewer of gateway.viewers) viewer.end();
  const deadline = setTimeout(() => app.server.closeAllConnections(), gateway.config.server.drainMs);
  await Promise.all([app.close(), workers?.drain()]);
  clearTimeout(deadline);
  await admin?.close();
  await gateway.conversations.store.close();
  await gateway.collections?.close();
  await gateway.engines.close();
}
