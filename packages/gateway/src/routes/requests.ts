import { WarmpathError } from '@warmpath/core';
import type { FastifyInstance } from 'fastify';
import { RESPONSE_HEADERS } from '../dispatch/headers.js';
import type { Gateway } from '../gateway.js';
import { isPrivate } from '../intake/admit.js';

/**
 * `GET /v1/requests/{id}`: what became of a request just served, by its `x-request-id`. For the tenant whose request it
 * was, and for the operator; for everybody else there is no such request. Error: `WARMPATH_FORBIDDEN` for a client
 * without a key, where not everybody who reaches the gateway is meant to see what others without a key have sent.
 */
export function requestsRoute(app: FastifyInstance, gateway: Gateway): void {
  const isOpenToAnonymous = isPrivate(gateway) && gateway.config.server.operatorKey === undefined;
  app.get<{ Params: { id: string } }>('/v1/requests/:id', (request, reply) => {
    const { isOperator, isAuthenticated, tenant } = request.exchange.caller;
    if (!isAuthenticated && !isOpenToAnonymous) throw new WarmpathError('WARMPATH_FORBIDDEN');
    const { id } = request.params;
    const record = isOperator ? gateway.requests.findOfAny(id) : gateway.requests.find(tenant, id);
    if (record === undefined) throw new WarmpathError('WARMPATH_NOT_FOUND', { path: 'id' });
    return reply.header(RESPONSE_HEADERS.requestId, request.exchange.requestId).send(record);
  });
}
