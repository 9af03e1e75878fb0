import { WarmpathError } from '@warmpath/core';
import type { FastifyInstance } from 'fastify';
import { forward } from '../dispatch/forward.js';
import type { Gateway } from '../gateway.js';

/** A segment that leads out of `/v1/`, plain or escaped: what an engine has elsewhere is not for the gateway's clients. */
const DOT_SEGMENT = /[/\\](?:\.|%2e){1,2}(?:[/\\]|%2f|%5c|$)|(?:%2f|%5c)(?:\.|%2e){1,2}/i;

/** Every other path under `/v1/` (models, embeddings, …): the engine's, untouched in both directions. */
export function passthroughRoute(app: FastifyInstance, gateway: Gateway): void {
  app.all('/v1/*', (request, reply) => {
    if (DOT_SEGMENT.test(request.raw.url!.split('?', 1)[0]!)) throw new WarmpathError('WARMPATH_NOT_FOUND');
    request.exchange.bodyAt = gateway.now();
    forward(gateway, { request, reply }, (request.body as Buffer | undefined) ?? null);
  });
}
