import { WarmpathError } from '@warmpath/core';
import type { FastifyInstance } from 'fastify';
import { RESPONSE_HEADERS } from '../dispatch/headers.js';
import type { Gateway } from '../gateway.js';
import { bodyOf } from '../intake/request-body.js';

/**
 * `POST /v1/plan`: the orders of a whole batch, and the order in which to send it, by core's `planBatch`. Planned on a
 * thread of its own, within the time and memory of the configuration; a client that leaves ends it. Nothing is sent to
 * the engine, and nothing counts as served.
 */
export function planRoute(app: FastifyInstance, gateway: Gateway): void {
  app.post('/v1/plan', async (request, reply) => {
    request.exchange.bodyAt = gateway.now();
    const job = gateway.plans.start(bodyOf(request));
    reply.raw.once('close', () => job.abort());
    let json: Uint8Array;
    try {
      json = await job.result;
    } catch (error) {
      gateway.metrics.planned(WarmpathError.isInstance(error) ? error.code : 'WARMPATH_INTERNAL');
      throw error;
    }
    gateway.metrics.planned('planned');
    return reply
      .header(RESPONSE_HEADERS.requestId, request.exchange.requestId)
      .type('application/json; charset=utf-8')
      .send(Buffer.from(json.buffer, json.byteOffset, json.byteLength));
  });
}
