import { WarmpathError } from '@warmpath/core';
import type { FastifyInstance } from 'fastify';
import { forward } from '../dispatch/forward.js';
import type { Gateway } from '../gateway.js';

/**
 * A segment that leads out of `/v1/`, plain or escaped: what an engine has elsewhere is not for the gateway's clients.
 */
const DOT_SEGMENT = /[/\\](?:\.|%2e){1,2}(?:[/\\]|%2f|%5c|$)|(?:%2f|%5c)(?:\.|%2e){1,2}/i;

/** Every other path under `/v1/` (models, embeddings, …): the engine's, untouched in both directions. */
export function passthroughRoute(app: FastifyInstance, gateway: Gateway): void {
  app.all('/v1/*', (request, reply) => {
    if (DOT_SEGMENT.test(request.raw.url!.split('?', 1)[0]!)) throw new WarmpathError('WARMPATH_NOT_FOUND');
    request.exchange.bodyAt = gateway.now();
    forward(gateway, { request, reply }, (request.body as Buffer | undefined) ?? null);
  });
}

/**
 * `POST /v1/speculations/{id}/confirm` and `…/cancel`: the embedded engine's. It tells callers apart by the salt that
 * their prompts had, so these bodies get the same; without a key for salts they pass through.
 */
export function speculationsRoute(app: FastifyInstance, gateway: Gateway): void {
  const { cacheSalts } = gateway;
  if (cacheSalts === undefined) return;
  app.post('/v1/speculations/:id/:action', (request, reply) => {
    request.exchange.bodyAt = gateway.now();
    const given = (request.body as Buffer | undefined) ?? Buffer.alloc(0);
    const body = cacheSalts.salted(given.length === 0 ? Buffer.from('{}') : given, request.exchange.caller.tenant);
    forward(gateway, { request, reply }, body, { requestHeaders: { 'content-type': 'application/json' } });
  });
}
