import type { FastifyInstance } from 'fastify';
import type { Gateway } from '../gateway.js';

/** `GET /metrics`: Prometheus text. */
export function metricsRoute(app: FastifyInstance, gateway: Gateway): void {
  app.get('/metrics', async (_request, reply) => {
    const text = await gateway.metrics.text();
    return reply.header('content-type', gateway.metrics.contentType).send(text);
  });
}
