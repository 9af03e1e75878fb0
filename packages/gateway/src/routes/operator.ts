import { WarmpathError } from '@warmpath/core';
import { ANONYMOUS_TENANT } from '@warmpath/core/internal';
import { loadDashboardPage } from '@warmpath/dashboard';
import type { FastifyInstance } from 'fastify';
import { withoutEndUser } from '../conversation/conversations.js';
import { DashboardFeed } from '../dashboard/feed.js';
import type { Gateway } from '../gateway.js';
import { isPrivate, mayActForTenant } from '../intake/admit.js';
import { RESPONSE_HEADERS } from '../intake/headers.js';
import { SESSION_MAX_LENGTH } from '../intake/parse-request.js';

/** `GET /metrics`: Prometheus text. */
export function metricsRoute(app: FastifyInstance, gateway: Gateway): void {
  app.get('/metrics', async (_request, reply) => {
    const text = await gateway.metrics.text();
    return reply.header('content-type', gateway.metrics.contentType).send(text);
  });
}

/**
 * `GET /v1/requests/{id}`: what became of a request just served, by its `x-request-id`. For the tenant whose request it
 * was, and for the operator; for everybody else there is no such request. Error: `WARMPATH_FORBIDDEN` for a client
 * without a key, where not everybody who reaches the gateway is meant to see what others without a key have sent.
 */
export function requestsRoute(app: FastifyInstance, gateway: Gateway): void {
  const isOpenToAnonymous = isPrivate(gateway) && gateway.config.server.operatorKey === undefined;
  app.get<{ Params: { id: string } }>('/v1/requests/:id', (request, reply) => {
    const { isOperator, tenant } = request.exchange.caller;
    if (tenant === ANONYMOUS_TENANT && !isOpenToAnonymous) throw new WarmpathError('WARMPATH_FORBIDDEN');
    const { id } = request.params;
    const record = isOperator ? gateway.requests.findOfAny(id) : gateway.requests.find(tenant, id);
    if (record === undefined) throw new WarmpathError('WARMPATH_NOT_FOUND', { path: 'id' });
    return reply.header(RESPONSE_HEADERS.requestId, request.exchange.requestId).send(record);
  });
}

/** The feed, which ends when its viewer leaves. */
export const FEED_ROUTE = '/ui/events';

/** Those of the dashboard. */
export const DASHBOARD_ROUTES: readonly string[] = ['/', '/ui', FEED_ROUTE, '/ui/tree', '/ui/requests/:id'];

/** Answers hold what is the operator's alone. */
const PRIVATE = { 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' };

const NOT_BUILT =
  'The dashboard was not built. In a checkout run: npm run build\n' +
  'Everything that it shows can be read at /metrics and /v1/requests/{id}.\n';

/**
 * `GET /ui`: the dashboard's page, which holds no data. `GET /ui/events`, `/ui/tree` and `/ui/requests/{id}`: what it
 * shows, for whoever may read `/metrics`. `GET /` leads browsers to the page.
 */
export function dashboardRoutes(app: FastifyInstance, gateway: Gateway): void {
  const feed = new DashboardFeed(gateway);

  app.get('/', (request, reply) => {
    if (!request.headers.accept?.includes('text/html')) throw new WarmpathError('WARMPATH_NOT_FOUND');
    return reply.redirect('/ui');
  });

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
    const record = gateway.requests.findOfAny(request.params.id);
    if (record === undefined) throw new WarmpathError('WARMPATH_NOT_FOUND', { path: 'id' });
    return reply.headers(PRIVATE).send(record);
  });
}

/**
 * `DELETE /v1/sessions/{name}`: what is remembered of a named conversation is forgotten, by every gateway that shares
 * it. Of the caller's own tenant only, and of the end user that a proxy or a token names, or of none; a name that
 * nothing is remembered of is no error. Error: `WARMPATH_FORBIDDEN` for a client without a key, where others without
 * one could be meant, and for one without an end user, where the operator configured where these come from.
 */
export function sessionsRoute(app: FastifyInstance, gateway: Gateway): void {
  app.delete<{ Params: { name: string } }>('/v1/sessions/:name', async (request, reply) => {
    const { name } = request.params;
    if (name.length > SESSION_MAX_LENGTH) {
      const detail = `a name of 1 to ${SESSION_MAX_LENGTH} characters was expected`;
      throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'name', detail });
    }
    const { caller } = request.exchange;
    if (!mayActForTenant(gateway, caller)) throw new WarmpathError('WARMPATH_FORBIDDEN');
    if (caller.endUser === undefined && !caller.bodyNamesEndUser) throw withoutEndUser('WARMPATH_FORBIDDEN');
    const forgotten = await gateway.conversations.store.forget({
      tenant: caller.tenant,
      user: caller.endUser,
      session: name,
    });
    return reply
      .header(RESPONSE_HEADERS.requestId, request.exchange.requestId)
      .send({ object: 'session', session: name, forgotten });
  });
}
