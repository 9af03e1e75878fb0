import { WarmpathError } from '@warmpath/core';
import { ANONYMOUS_TENANT, type ConversationStore } from '@warmpath/core/internal';
import { loadDashboardPage, type SessionList } from '@warmpath/dashboard';
import type { FastifyInstance } from 'fastify';
import type { Lifecycle } from '../answer/relay.js';
import type { ServerConfig } from '../config/schema-server.js';
import { withoutEndUser } from '../conversation/conversation-memory.js';
import type { DashboardFeed } from '../dashboard/feed.js';
import { type Engine, unhealthy } from '../engines/engine.js';
import type { Engines } from '../engines/engines.js';
import { canActForTenant, isPrivate, listedTenant } from '../intake/admit.js';
import { SESSION_MAX_LENGTH } from '../intake/own-fields.js';
import type { Metrics } from '../observe/metrics.js';
import type { RequestLog } from '../observe/request-log.js';
import type { AgentSessions } from '../sessions/agent-sessions.js';

/** `GET /metrics`: Prometheus text. */
export function metricsRoute(app: FastifyInstance, metrics: Metrics): void {
  app.get('/metrics', async (_request, reply) => {
    const text = await metrics.text();
    return reply.header('content-type', metrics.contentType).send(text);
  });
}

export interface RequestsParts {
  readonly server: ServerConfig;
  readonly requests: RequestLog;
}

/**
 * `GET /v1/requests/{id}`: the record of a served request, by its `x-request-id`, for the tenant that sent it and for
 * the operator. `WARMPATH_FORBIDDEN` for a client without a key, where clients without a key may not see each other's
 * requests.
 */
export function requestsRoute(app: FastifyInstance, { server, requests }: RequestsParts): void {
  const isOpenToAnonymous = isPrivate(server) && server.operatorKey === undefined;
  app.get<{ Params: { id: string } }>('/v1/requests/:id', (request, reply) => {
    const { isOperator, tenant } = request.report.caller;
    if (tenant === ANONYMOUS_TENANT && !isOpenToAnonymous) throw new WarmpathError('WARMPATH_FORBIDDEN');
    const { id } = request.params;
    const record = isOperator ? requests.findOfAny(id) : requests.find(tenant, id);
    if (record === undefined) throw new WarmpathError('WARMPATH_NOT_FOUND', { path: 'id' });
    return reply.send(record);
  });
}

/** The event stream of the dashboard. */
export const FEED_ROUTE = '/ui/events';

/** Routes of the dashboard. */
export const DASHBOARD_ROUTES: readonly string[] = ['/', '/ui', '/ui/', FEED_ROUTE, '/ui/tree', '/ui/requests/:id'];

/** For answers with the operator's data. */
const PRIVATE = { 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' };

const NOT_BUILT =
  'The dashboard was not built. In a checkout run: npm run build\n' +
  'Everything that it shows can be read at /metrics and /v1/requests/{id}.\n';

export interface DashboardRoutesParts {
  readonly feed: DashboardFeed;
  readonly requests: RequestLog;
}

/**
 * `GET /ui`: the dashboard's page, without data. `GET /ui/events`, `/ui/tree` and `/ui/requests/{id}`: its data, for
 * callers that may read `/metrics`. `GET /` and `/ui/` redirect browsers to the page; `GET /` tells other clients what
 * this is.
 */
export function dashboardRoutes(app: FastifyInstance, { feed, requests }: DashboardRoutesParts): void {
  app.get('/', (request, reply) => {
    reply.header('vary', 'accept');
    if (request.headers.accept?.includes('text/html')) return reply.redirect('/ui');
    return reply.send({ name: 'warmpath', api: '/v1', page: '/ui', health: '/healthz', ready: '/readyz' });
  });
  app.get('/ui/', (_request, reply) => reply.redirect('/ui'));

  app.get('/ui', async ({ headers }, reply) => {
    const page = await loadDashboardPage();
    if (page === undefined) return reply.code(404).type('text/plain; charset=utf-8').send(NOT_BUILT);
    reply.headers(page.headers);
    if (!/\bgzip\b/.test(String(headers['accept-encoding']))) return reply.send(page.html);
    return reply.header('content-encoding', 'gzip').send(page.gzip);
  });

  app.get(FEED_ROUTE, (_request, reply) => {
    feed.watch(reply.raw);
    reply.hijack();
  });

  app.get('/ui/tree', (_request, reply) => {
    return reply.headers(PRIVATE).type('application/json; charset=utf-8').send(feed.tree());
  });

  app.get<{ Params: { id: string } }>('/ui/requests/:id', (request, reply) => {
    const record = requests.findOfAny(request.params.id);
    if (record === undefined) throw new WarmpathError('WARMPATH_NOT_FOUND', { path: 'id' });
    return reply.headers(PRIVATE).send(record);
  });
}

export interface SessionsParts {
  readonly server: ServerConfig;
  readonly store: ConversationStore;
  readonly sessions: AgentSessions;
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
}

/**
 * `GET /v1/sessions`: the accounts of sessions of the caller's tenant; for the operator, of all tenants or the one in
 * `?tenant=`. `WARMPATH_FORBIDDEN` for everybody else.
 *
 * `DELETE /v1/sessions/{name}`: forgets a conversation of the caller's tenant and end user, in all gateways that share
 * the store. An unknown name is no error. `WARMPATH_FORBIDDEN` for an anonymous caller where other machines can ask,
 * and for a caller without an end user where the operator configured where end users come from.
 */
export function sessionsRoute(app: FastifyInstance, { server, store, sessions, now }: SessionsParts): void {
  app.get<{ Querystring: { tenant?: unknown } }>('/v1/sessions', (request, reply) => {
    const { caller } = request.report;
    const tenant = listedTenant(server, caller, request.query.tenant);
    const data = sessions.list(tenant, now());
    return reply.header('cache-control', 'no-store').send({ object: 'list', data } satisfies SessionList);
  });

  app.delete<{ Params: { name: string } }>('/v1/sessions/:name', async (request, reply) => {
    const { name } = request.params;
    if (name.length > SESSION_MAX_LENGTH) {
      const detail = `a name of 1 to ${SESSION_MAX_LENGTH} characters was expected`;
      throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'name', detail });
    }
    const { caller } = request.report;
    if (!canActForTenant(server, caller)) throw new WarmpathError('WARMPATH_FORBIDDEN');
    if (caller.endUser === undefined && !caller.bodyNamesEndUser) throw withoutEndUser('WARMPATH_FORBIDDEN');
    const forgotten = await store.forget({
      tenant: caller.tenant,
      user: caller.endUser,
      session: name,
    });
    return reply.send({ object: 'session', session: name, forgotten });
  });
}

export interface HealthParts {
  readonly engines: Engines;
  readonly store: Pick<ConversationStore, 'isUp'>;
  readonly lifecycle: Lifecycle;
}

/**
 * `GET /healthz`: the process answers. `GET /readyz`: the gateway takes requests and at least one engine answers with a
 * status below 500; otherwise 503. An engine that asks for a key is ready.
 */
export function healthRoutes(app: FastifyInstance, { engines: known, store, lifecycle }: HealthParts): void {
  app.get('/healthz', () => ({ status: 'ok' }));
  app.get('/readyz', async (request, reply) => {
    if (lifecycle.leaving) throw new WarmpathError('WARMPATH_SHUTTING_DOWN');
    const { requestId } = request.report;
    const engines = await Promise.all(
      known.all.filter((engine) => !engine.isRemoved).map((engine) => healthOf(engine, requestId)),
    );
    // A gateway without its shared store is ready, and one without some of its engines.
    const sessionStore = store.isUp ? 'up' : 'down';
    const failure = engines.every((engine) => engine.failure !== undefined) ? engines[0]!.failure : undefined;
    if (failure === undefined) {
      if (engines.length === 1) return { status: 'ready', sessionStore };
      return { status: 'ready', sessionStore, engines: engines.map(({ name, state }) => ({ name, state })) };
    }
    request.report.failed(failure.code, 'upstream');
    return reply.code(503).send(failure.toOpenAI());
  });
}

/** The state of an engine, from its answer now and from its requests so far. */
async function healthOf(engine: Engine, requestId: string) {
  const failure = await engine.ping(requestId);
  const state = failure === undefined ? stateOf(engine) : 'failing';
  return { name: engine.name, state, failure: engine.isDraining ? (failure ?? unhealthy(503)) : failure };
}

/** Whether an engine that answers gets requests. */
function stateOf({ isDraining, health }: Engine): 'ready' | 'draining' | 'ejected' {
  if (isDraining) return 'draining';
  return health.state === 'up' ? 'ready' : 'ejected';
}
