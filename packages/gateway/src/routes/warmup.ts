import { estimateTokensOfBytes } from '@warmpath/core';
import type { FastifyInstance } from 'fastify';
import { RESPONSE_HEADERS } from '../dispatch/headers.js';
import type { Gateway } from '../gateway.js';
import { chatApi } from '../intake/apis/chat-api.js';
import { bodyOf } from '../intake/request-body.js';
import { engineToWarm, readPreamble, warmPreamble } from '../warm/warm-preamble.js';

/**
 * `POST /v1/warmup`: called when a retrieval starts, with the messages that the request will have, as far as they are
 * known. Prefills what will stand before the documents, unless that is warm (RAGCache++ §3.6). Answers 202 at once with
 * `{"state": "warming" | "warm"}`.
 */
export function warmupRoute(app: FastifyInstance, gateway: Gateway): void {
  app.post('/v1/warmup', async (request, reply) => {
    const { exchange } = request;
    exchange.bodyAt = gateway.now();
    const steps = readPreamble(gateway, chatApi, bodyOf(request));
    const asked = await gateway.slices.run(steps, () => reply.raw.destroyed);
    const { tenant, key } = exchange.caller;
    const { state, isOwn } = warmPreamble(gateway, request, engineToWarm(gateway, tenant, asked), asked);
    if (isOwn && key !== undefined) gateway.rateLimits.charge(key, estimateTokensOfBytes(asked.body.bytes));
    gateway.metrics.warmup(state);
    return reply.code(202).header(RESPONSE_HEADERS.requestId, exchange.requestId).send({ state });
  });
}
