import type { FastifyReply, FastifyRequest } from 'fastify';

/** Seconds for which a browser may remember the answer to a preflight. */
const MAX_AGE_S = '86400';

/**
 * Lets pages of the configured origins call the gateway from a browser. Pages send keys in headers, not in cookies. The
 * engine gets no preflight, and its own `access-control-…` headers are not passed on.
 */
export class Cors {
  readonly #origins: ReadonlySet<string>;

  constructor(origins: readonly string[]) {
    this.#origins = new Set(origins);
  }

  /** Sets the headers of an answer. Returns whether the request was a preflight: it has no key and is answered here. */
  answer({ method, headers }: FastifyRequest, reply: FastifyReply): boolean {
    const { origin } = headers;
    const isAllowed = origin !== undefined && (this.#origins.has('*') || this.#origins.has(origin));
    // Raw, because answers of the engine are written past Fastify.
    const { raw } = reply;
    if (this.#origins.size > 0) raw.setHeader('vary', 'origin');
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
