import { WarmpathError } from '@warmpath/core';
import type { FastifyInstance } from 'fastify';
import { RESPONSE_HEADERS } from '../dispatch/headers.js';
import type { Gateway } from '../gateway.js';
import { mayActForTenant } from '../intake/admit.js';
import { SESSION_MAX_LENGTH } from '../intake/parse-request.js';

/**
 * `DELETE /v1/sessions/{name}`: what is remembered of a named conversation is forgotten, by every gateway that shares
 * it. Of the caller's own tenant only, and of the end user that a proxy or a token names, or of none; a name that
 * nothing is remembered of is no error. Error: `WARMPATH_FORBIDDEN` for a client without a key, where others without
 * one could be meant.
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
