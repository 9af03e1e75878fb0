import type { FastifyInstance } from 'fastify';
import { forward } from '../forward.js';
import type { Gateway } from '../gateway.js';

/** Every other path under `/v1/` (models, embeddings, …): the engine's, untouched in both directions. */
export function passthroughRoute(app: FastifyInstance, gateway: Gateway): void {
  app.all('/v1/*', (request, reply) => {
    request.exchange.bodyAt = gateway.now();
    forward(gateway, { request, reply }, (request.body as Buffer | undefined) ?? null);
  });
}
