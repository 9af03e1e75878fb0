import { WarmpathError } from '@warmpath/core';
import type { FastifyInstance } from 'fastify';
import { RESPONSE_HEADERS } from '../dispatch/headers.js';
import type { Gateway } from '../gateway.js';

/**
 * `GET /v1/requests/{id}`: what became of a request just served, by its `x-request-id`. Only for the tenant whose request it was;
 * for everybody else there is no such request.
 */
export function requestsRoute(app: FastifyInstance, gateway: Gateway): void {
  app.get<{ Params: { id: string } }>('/v1/requests/:id', (request, reply) => {
    const record = gateway.requests.find(request.exchange.caller.tenant, request.params.id);
    if (record === undefined) throw new WarmpathError('WARMPATH_NOT_FOUND', { path: 'id' });
    return reply.header(RESPONSE_HEADERS.requestId, request.exchange.requestId).send(record);
  });
}
