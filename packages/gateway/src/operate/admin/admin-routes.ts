import { Readable } from 'node:stream';
import { WarmpathError } from '@warmpath/core';
import type { ConversationStore, SessionFilter } from '@warmpath/core/internal';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { Engine } from '../../engines/engine.js';
import type { Engines } from '../../engines/engines.js';
import type { Access } from '../../intake/admit.js';
import { KEY_HEADERS } from '../../intake/authenticate.js';
import { invalid } from '../../json/json-body.js';
import type { Log } from '../../observe/log.js';
import { exportLines, importLines } from './session-transfer.js';

interface Query {
  readonly tenant?: unknown;
  readonly user?: unknown;
  readonly session?: unknown;
  readonly all?: unknown;
}

/** Parts of the operator's routes. */
export interface AdminParts {
  readonly store: ConversationStore;
  readonly engines: Engines;
  readonly access: Access;
  readonly log: Log;
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
}

/**
 * `GET /sessions` exports conversations, `POST /sessions` imports an export, `DELETE /sessions` forgets conversations.
 * `?tenant=` selects a tenant, `&user=` an end user (empty: none), `&session=` one conversation. A client's key in its
 * own header may replace `?tenant=`. Forgetting everything needs `?all=true`.
 */
export function adminRoutes(app: FastifyInstance, { store, engines, access, log, now }: AdminParts): void {
  app.get<{ Querystring: Query }>('/sessions', async (request, reply) => {
    const lines = exportLines(store, await filterOf(access, request), now());
    log.info('sessions exported');
    return reply.type('application/x-ndjson').send(Readable.from(lines));
  });
  app.post('/sessions', async (request) => {
    const result = await importLines(store, request.body as AsyncIterable<Buffer>, now());
    const { imported, expired, refusedCount } = result;
    log.info({ imported, expired, refused: refusedCount }, 'sessions imported');
    return result;
  });
  app.delete<{ Querystring: Query }>('/sessions', async (request) => {
    const filter = await filterOf(access, request);
    if (filter.tenant === undefined && request.query.all !== 'true') {
      throw invalid('tenant', 'name a tenant, or set `all=true`');
    }
    const forgotten = await store.forget(filter);
    log.info({ forgotten }, 'sessions forgotten');
    return { object: 'sessions', forgotten };
  });
  engineRoutes(app, engines);
}

/**
 * `GET /engines`: the state of each engine. `POST /engines/{name}/drain`: the engine gets no new requests. `POST
 * /engines/{name}/resume`: it gets requests again.
 */
function engineRoutes(app: FastifyInstance, engines: Engines): void {
  app.get('/engines', () => ({ object: 'engines', engines: engines.all.map(describeEngine) }));
  app.post<{ Params: { name: string } }>('/engines/:name/drain', ({ params }) => {
    const engine = engineOf(engines, params.name);
    engines.drain(engine);
    return describeEngine(engine);
  });
  app.post<{ Params: { name: string } }>('/engines/:name/resume', ({ params }) => {
    const engine = engineOf(engines, params.name);
    engines.resume(engine);
    return describeEngine(engine);
  });
}

function engineOf(engines: Engines, name: string): Engine {
  const engine = engines.find(name);
  if (engine !== undefined) return engine;
  const known = engines.all.map((each) => each.name).join(', ');
  throw new WarmpathError('WARMPATH_NOT_FOUND', { detail: `There is no engine of that name; there are ${known}.` });
}

function describeEngine({ name, url, isDraining, health, upstream, queue, weight, models }: Engine) {
  return {
    name,
    url,
    state: isDraining ? 'draining' : health.state,
    reason: health.reason ?? null,
    /** Requests of all kinds. A drained engine may be stopped when it has none. */
    exchanges: upstream.exchanges,
    limit: queue.limit,
    inFlight: queue.underWay,
    waitingInside: queue.waitingInside,
    queued: queue.depth,
    weight,
    models: models === undefined ? null : [...models],
  };
}

async function filterOf(
  { authenticator }: Access,
  { query, headers }: FastifyRequest<{ Querystring: Query }>,
): Promise<SessionFilter> {
  const { user, session } = query;
  for (const [path, value] of Object.entries({ tenant: query.tenant, user, session })) {
    if (value !== undefined && typeof value !== 'string') throw invalid(path, 'one value was expected');
  }
  const isKeyGiven = query.tenant === undefined && KEY_HEADERS.some((name) => headers[name] !== undefined);
  const tenant = isKeyGiven ? (await authenticator.callerOf(headers)).tenant : (query.tenant as string | undefined);
  if ((session ?? user) !== undefined && tenant === undefined) {
    throw invalid(session === undefined ? 'user' : 'session', 'also name the tenant');
  }
  return {
    tenant,
    user: user === '' ? null : (user as string | undefined),
    session: session as string | undefined,
  };
}
