import { WarmpathError } from '@warmpath/core';
import { loadDashboardPage } from '@warmpath/dashboard';
import type { FastifyInstance } from 'fastify';
import { DashboardFeed } from '../dashboard/feed.js';
import type { Gateway } from '../gateway.js';

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
