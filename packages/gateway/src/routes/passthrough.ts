import { WarmpathError } from '@warmpath/core';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { type ForwardParts, forward } from '../answer/relay.js';
import { chatApi, completionsApi, messagesApi, responsesApi } from '../apis/prompt-apis.js';
import type { GatewayConfig } from '../config/schema.js';
import { type Engine, engineHeaders } from '../engines/engine.js';
import { askModels, readModels } from '../engines/engine-probe.js';
import type { Engines } from '../engines/engines.js';
import { checkEnginePath } from '../intake/admit.js';
import type { StoredResponses } from '../memory/stored-responses.js';
import { modelIn } from '../prompt/parse-prompt.js';

/** A segment that leads out of `/v1/`, plain or escaped. */
const DOT_SEGMENT = /[/\\](?:\.|%2e){1,2}(?:[/\\]|%2f|%5c|$)|(?:%2f|%5c)(?:\.|%2e){1,2}/i;

/**
 * Paths for clients outside of `/v1/`: of vLLM, SGLang, llama-server and Text Embeddings Inference. A list of allowed
 * paths, because engines have paths for operators there too (`/metrics`, `/sleep`, `/flush_cache`, `/slots`, …).
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

/** Paths for operators below `/v1/`: adapters and models (vLLM, TabbyAPI, Text generation web UI). */
const OPERATOR_PATHS =
  /^\/v1\/(?:(?:un)?load_lora_adapters?|lora|loras|internal|admin|(?:model|models)\/(?:load|unload|download)|download)(?:\/|$)/;

/** Paths of prompts. Another spelling of them must not bypass the gateway. */
const PROMPT_PATHS: ReadonlySet<string> = new Set(
  [chatApi, completionsApi, messagesApi, responsesApi].map(({ path }) => path),
);

/** Percent escapes within escapes that are undone before a path is compared. */
const ESCAPE_DEPTH = 3;

export interface PassthroughParts extends ForwardParts {
  readonly config: GatewayConfig;
  readonly engines: Engines;
  readonly responses: StoredResponses;
}

/** All other paths under `/v1/` (models, embeddings, …), and `CLIENT_PATHS`: relayed untouched in both directions. */
export function passthroughRoute(app: FastifyInstance, parts: PassthroughParts): void {
  const { config, engines, responses, now } = parts;
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
    request.report.bodyAt = now();
    const stored = storedResponse(responses, request, path);
    if (stored !== undefined) {
      reply.send(stored);
      return;
    }
    checkEnginePath(config, request.method, plain);
    const body = (request.body as Buffer | undefined) ?? null;
    forward(parts, engineFor(engines, request, body), { request, reply }, body);
  };
  const names = Object.keys(config.collections?.models ?? {});
  const ofCollections = names.map((id) => ({ id, object: 'model', created: 0, owned_by: 'warmpath' }));
  app.get('/v1/models', (request, reply) => {
    if (engines.only === undefined || ofCollections.length > 0) {
      return listModels(engines, request, reply, ofCollections);
    }
    return pass(request, reply);
  });
  const options = { config: { mediaTypes: 'engine' } } as const;
  app.all('/v1/*', options, pass);
  for (const path of CLIENT_PATHS) app.post(path, options, pass);
}

/** What the gateway says of a response that it stored; `undefined` for any other request. */
function storedResponse(
  responses: StoredResponses,
  { method, report }: FastifyRequest,
  path: string,
): object | undefined {
  const id = /^\/v1\/responses\/(resp_\w+)$/.exec(path)?.[1];
  if (id === undefined) return undefined;
  const { tenant, endUser: user, bodyNamesEndUser: isAnyUser } = report.caller;
  const owner = { tenant, user };
  if (method === 'GET') return responses.find(id, owner, isAnyUser);
  const isDeleted = method === 'DELETE' && responses.delete(id, owner, isAnyUser);
  return isDeleted ? { id, object: 'response', deleted: true } : undefined;
}

/**
 * The engine for a request that is passed through: one that serves the model, and the same one while it is healthy,
 * because files and stored answers stay on the engine that made them.
 */
function engineFor(engines: Engines, request: FastifyRequest, body: Buffer | null): Engine {
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

/** Overrides for a request whose answer is merged with others. */
const WHOLE = { 'accept-encoding': 'identity', 'if-none-match': undefined, 'if-modified-since': undefined };

/**
 * The models of all engines, each once, in the order of the engines; then the models that answer from a collection. An
 * engine that does not answer is left out.
 *
 * @throws WarmpathError where no engine answers.
 */
async function listModels(
  engines: Engines,
  request: FastifyRequest,
  reply: FastifyReply,
  ofCollections: readonly object[],
): Promise<FastifyReply> {
  const asked = engines.all.filter((engine) => !engine.isDraining);
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
  return reply.send({ object: 'list', data: [...models.values(), ...ofCollections] });
}

function refusedModels(status: number): WarmpathError {
  return new WarmpathError('WARMPATH_UPSTREAM_ERROR', { detail: `The engines answer with status ${status}.` });
}

/** The path as an engine may read it: escapes undone, slashes single, in lower case, without parameters. */
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
