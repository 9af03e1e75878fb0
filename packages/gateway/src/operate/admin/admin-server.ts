import { chmod, lstat, mkdtemp, rename, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { WarmpathError } from '@warmpath/core';
import type { ConversationStore, SessionFilter } from '@warmpath/core/internal';
import { type FastifyError, type FastifyInstance, type FastifyRequest, fastify } from 'fastify';
import type { Engine } from '../../engines/engine.js';
import type { Engines } from '../../engines/engines.js';
import type { Access } from '../../intake/admit.js';
import { KEY_HEADERS } from '../../intake/authenticate.js';
import { invalid } from '../../json/json-body.js';
import type { Log } from '../../observe/log.js';
import { exportLines, importLines } from './session-transfer.js';

const OWNER_ONLY = 0o600;

/** The operator's server. */
export interface AdminServer {
  close(): Promise<void>;
}

/**
 * Serves the operator at a Unix socket that only the process's user can open. It needs no key: that user can read the
 * process's memory anyway. Clients and web pages cannot reach it.
 *
 * @throws WarmpathError `WARMPATH_CONFIG_INVALID` if the socket cannot be created, or another gateway uses it
 */
export async function startAdminServer(path: string, parts: AdminParts): Promise<AdminServer> {
  const app = fastify({ logger: false, forceCloseConnections: true, requestTimeout: 0 });
  app.removeAllContentTypeParsers();
  // An export may be larger than the memory, so it is streamed.
  app.addContentTypeParser('*', (_request, payload, done) => done(null, payload));
  app.setErrorHandler((error: FastifyError, _request, reply) => {
    const known = WarmpathError.isInstance(error) ? error : new WarmpathError('WARMPATH_INTERNAL', { cause: error });
    reply.code(known.status).send(known.toOpenAI());
  });
  app.setNotFoundHandler((_request, reply) => {
    const error = new WarmpathError('WARMPATH_NOT_FOUND');
    reply.code(error.status).send(error.toOpenAI());
  });
  adminRoutes(app, parts);
  try {
    await requireFree(path);
    const folder = await mkdtemp(join(dirname(path), '.warmpath-'));
    try {
      // Created in a private folder until only this user can open the socket.
      const draft = join(folder, 's');
      await app.listen({ path: draft });
      await chmod(draft, OWNER_ONLY);
      await rename(draft, path);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  } catch (error) {
    await app.close();
    if (WarmpathError.isInstance(error)) throw error;
    const detail = `${path}: ${(error as NodeJS.ErrnoException).code ?? 'cannot be made'}`;
    throw new WarmpathError('WARMPATH_CONFIG_INVALID', { path: 'admin.socket', detail, cause: error });
  }
  return {
    close: async () => {
      await rm(path, { force: true });
      await app.close();
    },
  };
}

/** A socket that does not answer is a leftover, and is replaced. */
async function requireFree(path: string): Promise<void> {
  const found = await lstat(path).catch(() => undefined);
  if (found === undefined) return;
  if (found.isSocket() && !(await answers(path))) return;
  const detail = found.isSocket() ? `another gateway answers at ${path}` : `${path} is no socket`;
  throw new WarmpathError('WARMPATH_CONFIG_INVALID', { path: 'admin.socket', detail });
}

function answers(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}

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
function adminRoutes(app: FastifyInstance, { store, engines, access, log, now }: AdminParts): void {
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
