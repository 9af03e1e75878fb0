import { WarmpathError } from '@warmpath/core';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { chatApi, completionsApi, messagesApi, responsesApi } from '../apis/prompt-apis.js';
import { forward } from '../dispatch/forward.js';
import type { Engine } from '../engines/engine.js';
import { engineHeaders } from '../engines/engine.js';
import { askModels, readModels } from '../engines/engine-probe.js';
import type { Gateway } from '../gateway.js';
import { checkEnginePath } from '../intake/engine-paths.js';
import { RESPONSE_HEADERS } from '../intake/headers.js';
import { modelIn } from '../prompt/parse-prompt.js';

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

/** Where prompts go. Another spelling of these must not lead past what the gateway does for a prompt. */
const PROMPT_PATHS: ReadonlySet<string> = new Set(
  [chatApi, completionsApi, messagesApi, responsesApi].map(({ path }) => path),
);

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
    const plain = normalised(path);
    if (DOT_SEGMENT.test(plain)) throw new WarmpathError('WARMPATH_NOT_FOUND');
    if (OPERATOR_PATHS.test(plain)) {
      throw new WarmpathError('WARMPATH_NOT_FOUND', {
        detail: "This path is for the engine's operator, who asks the engine itself.",
      });
    }
    if (request.method === 'POST' && PROMPT_PATHS.has(plain.replace(/\/$/, ''))) {
      throw new WarmpathError('WARMPATH_NOT_FOUND', { detail: `This path is written ${plain.replace(/\/$/, '')}.` });
    }
    checkEnginePath(gateway.config, request.method, plain);
    request.exchange.bodyAt = gateway.now();
    const body = (request.body as Buffer | undefined) ?? null;
    forward(gateway, engineFor(gateway, request, body), { request, reply }, body);
  };
  const names = Object.keys(gateway.config.collections?.models ?? {});
  const ofCollections = names.map((id) => ({ id, object: 'model', created: 0, owned_by: 'warmpath' }));
  app.get('/v1/models', (request, reply) => {
    if (gateway.engines.only === undefined || ofCollections.length > 0) {
      return listModels(gateway, request, reply, ofCollections);
    }
    return pass(request, reply);
  });
  const options = { config: { mediaTypes: 'engine' } } as const;
  app.all('/v1/*', options, pass);
  for (const path of CLIENT_PATHS) app.post(path, options, pass);
}

/**
 * Of several engines, the one for what is passed through: one that serves the model, and always the same while it is
 * well, for what a client makes there (files, stored answers) it looks for there.
 */
function engineFor({ engines }: Gateway, request: FastifyRequest, body: Buffer | null): Engine {
  const { only } = engines;
  if (only !== undefined) return only;
  const named = /^\/v1\/models\/([^?]+)/.exec(request.raw.url!)?.[1];
  return engines.first(() => (named !== undefined ? decoded(named) : body === null ? '' : modelIn({ body })));
}

function decoded(name: string): string {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

/** What is put together of several answers has to come whole. */
const WHOLE = { 'accept-encoding': 'identity', 'if-none-match': undefined, 'if-modified-since': undefined };

/**
 * The models of all engines, each once, in the order of the engines, and behind them those that answer from a
 * collection. An engine that does not answer is left out, unless none does.
 */
async function listModels(
  gateway: Gateway,
  request: FastifyRequest,
  reply: FastifyReply,
  ofCollections: readonly object[],
): Promise<FastifyReply> {
  const { exchange } = request;
  const asked = gateway.engines.all.filter((engine) => !engine.isDraining);
  const lists = await Promise.all(
    asked.map((engine) => {
      const { upstream } = engine;
      return askModels(upstream, engineHeaders(engine, request, WHOLE), upstream.connectMs);
    }),
  );
  const models = new Map<string, object>();
  let failure: WarmpathError | undefined;
  for (const [place, answer] of lists.entries()) {
    const data = 'code' in answer || answer.status >= 300 ? undefined : readModels(answer.text);
    if (data === undefined) failure ??= 'code' in answer ? answer : refusedModels(answer.status);
    for (const model of data ?? []) {
      const { id } = model as { readonly id?: unknown };
      if (typeof id === 'string' && asked[place]!.serves(id) && !models.has(id)) models.set(id, model);
    }
  }
  if (models.size === 0 && failure !== undefined) throw failure;
  return reply
    .header(RESPONSE_HEADERS.requestId, exchange.requestId)
    .send({ object: 'list', data: [...models.values(), ...ofCollections] });
}

function refusedModels(status: number): WarmpathError {
  return new WarmpathError('WARMPATH_UPSTREAM_ERROR', { detail: `The engines answer with status ${status}.` });
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
