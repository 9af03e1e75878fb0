import { chmod, lstat, mkdtemp, rename, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { dirname, join } from 'node:path';
import { WarmpathError } from '@warmpath/core';
import { type FastifyError, fastify } from 'fastify';
import { type AdminParts, adminRoutes } from './admin-routes.js';

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
