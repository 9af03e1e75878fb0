import { WarmpathError } from '@warmpath/core';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { forward } from '../dispatch/forward.js';
import type { Gateway } from '../gateway.js';

/**
 * A segment that leads out of `/v1/`, plain or escaped: what an engine has elsewhere is not for the gateway's clients.
 */
const DOT_SEGMENT = /[/\\](?:\.|%2e){1,2}(?:[/\\]|%2f|%5c|$)|(?:%2f|%5c)(?:\.|%2e){1,2}/i;

/**
 * What engines offer to their clients outside of `/v1/`: vLLM, SGLang, llama-server and Text Embeddings Inference.
 * Named one by one, because what else they have there is their operator's (`/metrics`, `/sleep`, `/flush_cache`, `/kv`,
 * `/slots`, …), and new versions bring more of that. None takes a prompt to be answered: those have their routes.
 */
export const CLIENT_PATHS: readonly string[] = [
  '/tokenize',
  '/detokenize',
  '/decode',
  '/apply-template',
  '/rerank',
  '/reranking',
  '/v2/rerank',
  '/score',
  '/similarity',
  '/classify',
  '/predict',
  '/pooling',
  '/embed',
  '/embed_all',
  '/embed_sparse',
  '/embedding',
  '/embeddings',
];

/** What operators do below `/v1/`: adapters and models come and go (vLLM, TabbyAPI, Text generation web UI). */
const OPERATOR_PATHS =
  /^\/v1\/(?:(?:un)?load_lora_adapters?|lora|loras|internal|admin|(?:model|models)\/(?:load|unload|download)|download)(?:\/|$)/;

/** Percent escapes within escapes that are undone before a path is compared. */
const ESCAPE_DEPTH = 3;

/**
 * Every other path under `/v1/` (models, embeddings, …) and what engines have for clients beside it: the engine's,
 * untouched in both directions.
 */
export function passthroughRoute(app: FastifyInstance, gateway: Gateway): void {
  const pass = (request: FastifyRequest, reply: FastifyReply): void => {
    const path = request.raw.url!.split('?', 1)[0]!;
    if (DOT_SEGMENT.test(path)) throw new WarmpathError('WARMPATH_NOT_FOUND');
    if (OPERATOR_PATHS.test(normalised(path))) {
      throw new WarmpathError('WARMPATH_NOT_FOUND', {
        detail: "This path is for the engine's operator, who asks the engine itself.",
      });
    }
    request.exchange.bodyAt = gateway.now();
    forward(gateway, { request, reply }, (request.body as Buffer | undefined) ?? null);
  };
  app.all('/v1/*', pass);
  for (const path of CLIENT_PATHS) app.post(path, pass);
}

/** As whatever server is behind may read it: escapes undone, slashes single, in lower case, without parameters. */
function normalised(path: string): string {
  let plain = path;
  for (let depth = 0; depth < ESCAPE_DEPTH && plain.includes('%'); depth++) {
    try {
      plain = decodeURIComponent(plain);
    } catch {
      break;
    }
  }
  return plain
    .replace(/;[^/]*/g, '')
    .replace(/[/\\]+/g, '/')
    .toLowerCase();
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
