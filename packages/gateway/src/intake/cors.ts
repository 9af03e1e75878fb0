import type { FastifyReply, FastifyRequest } from 'fastify';

/** What the gateway alone decides where `server.cors` is configured: the engine's own are left out of answers. */
export const CORS_HEADERS: readonly string[] = [
  'access-control-allow-origin',
  'access-control-allow-credentials',
  'access-control-expose-headers',
];

/** Seconds for which a browser may remember the answer to a preflight. */
const MAX_AGE_S = '86400';

/**
 * Lets pages of certain origins call the gateway from a browser. Pages send keys in headers; cookies are not for them.
 */
export class Cors {
  readonly #origins: ReadonlySet<string>;

  constructor(origins: readonly string[]) {
    this.#origins = new Set(origins);
  }

  /**
   * Sets the headers of an answer, whoever writes it. Returns whether the request was a preflight, which is answered by
   * that: it has no key.
   */
  answer({ method, headers }: FastifyRequest, reply: FastifyReply): boolean {
    const { origin } = headers;
    const isAllowed = origin !== undefined && (this.#origins.has('*') || this.#origins.has(origin));
    // Raw, because answers of the engine are written past Fastify.
    const { raw } = reply;
    raw.setHeader('vary', 'origin');
    if (isAllowed) {
      raw.setHeader('access-control-allow-origin', origin);
      raw.setHeader('access-control-expose-headers', '*');
    }
    if (method !== 'OPTIONS' || headers['access-control-request-method'] === undefined) return false;
    if (isAllowed) {
      raw.setHeader('access-control-allow-methods', 'GET, POST, DELETE');
      raw.setHeader('access-control-allow-headers', headers['access-control-request-headers'] ?? '*');
      raw.setHeader('access-control-max-age', MAX_AGE_S);
    }
    reply.code(204).send();
    return true;
  }
}
