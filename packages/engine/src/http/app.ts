import { WarmpathError } from '@warmpath/core';
import { type FastifyInstance, fastify } from 'fastify';
import type { EngineLoop } from '../loop/engine-loop.js';
import type { LoopStats } from '../loop/loop-options.js';
import type { CpuVariant } from '../native/cpu-variant.js';
import { addEmbeddingRoutes, type EmbeddingQueue } from './embeddings.js';
import type { FormCache } from './form-cache.js';
import { addGenerationRoutes } from './generation-routes.js';
import { parseJson } from './json-body.js';
import { addKvRoutes } from './kv-routes.js';
import type { EngineMetrics } from './metrics.js';
import type { PromptSource } from './prompts.js';
import { checkModel } from './schemas.js';
import { addTokenRoutes } from './token-routes.js';

export interface EngineApp extends PromptSource {
  readonly model: string;
  /** Whether it is the demo model, whose answers mean little. */
  readonly isDemo: boolean;
  /** Seconds since 1970 at which the model was loaded. */
  readonly created: number;
  readonly cpuVariant: CpuVariant;
  readonly loop: EngineLoop;
  readonly metrics: EngineMetrics;
  /** Left out where the model makes no embeddings. */
  readonly embeddings?: EmbeddingQueue | undefined;
  /** What the loop holds, with the requests for embeddings. */
  readonly stats: () => LoopStats;
  readonly forms: FormCache;
  readonly defaultMaxTokens: number;
  readonly bodyLimitBytes: number;
}

export function createApp(app: EngineApp): FastifyInstance {
  const server = fastify({
    bodyLimit: app.bodyLimitBytes,
    // A body is JSON whatever its content type says: `curl -d` says that it is a form.
    exposeHeadRoutes: false,
    forceCloseConnections: 'idle',
  });
  server.removeAllContentTypeParsers();
  server.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => {
    try {
      done(null, parseJson(body as Buffer, app.loop.contextTokens));
    } catch (error) {
      done(error as WarmpathError);
    }
  });
  server.setErrorHandler((error, _request, reply) => {
    const known = toWarmpathError(error);
    app.metrics.onRefusedBody(known.code);
    if (known.code === 'WARMPATH_OVERLOADED') reply.header('retry-after', '1');
    return reply.status(known.status).send(known.toOpenAI());
  });
  server.setNotFoundHandler(() => {
    throw new WarmpathError('WARMPATH_NOT_FOUND');
  });
  addGenerationRoutes(server, app);
  addTokenRoutes(server, app);
  addEmbeddingRoutes(server, app);
  addStateRoutes(server, app);
  addKvRoutes(server, app);
  return server;
}

function addStateRoutes(server: FastifyInstance, app: EngineApp): void {
  const model = {
    id: app.model,
    object: 'model',
    created: app.created,
    owned_by: 'warmpath',
    max_model_len: app.loop.contextTokens,
    ...(app.isDemo && { demo: true }),
  };
  server.get('/v1/models', () => ({ object: 'list', data: [model] }));

  // A name may hold slashes.
  server.get<{ Params: { '*': string } }>('/v1/models/*', ({ params }) => {
    checkModel(params['*'], app.model);
    return model;
  });

  server.get('/health', (_request, reply) => {
    const { running, waiting, cells, usedCells, cachedCells } = app.stats();
    return reply.status(app.loop.isOpen ? 200 : 503).send({
      status: app.loop.isOpen ? 'ok' : 'unavailable',
      model: app.model,
      cpuVariant: app.cpuVariant,
      running,
      waiting,
      cells: { total: cells, used: usedCells, cached: cachedCells },
    });
  });

  server.get('/metrics', async (_request, reply) => {
    const { body, contentType } = await app.metrics.render();
    return reply.type(contentType).send(body);
  });
}

function toWarmpathError(error: unknown): WarmpathError {
  if (WarmpathError.isInstance(error)) return error;
  const { code, statusCode = 500 } = error as { code?: unknown; statusCode?: number };
  switch (code) {
    case 'FST_ERR_CTP_BODY_TOO_LARGE':
      return new WarmpathError('WARMPATH_BODY_TOO_LARGE');
    case 'FST_ERR_CTP_EMPTY_JSON_BODY':
    case 'FST_ERR_CTP_INVALID_CONTENT_LENGTH':
      return new WarmpathError('WARMPATH_INVALID_JSON', { cause: error });
    default:
      // What the framework calls the client's fault, a path that is no URL for instance.
      return new WarmpathError(statusCode < 500 ? 'WARMPATH_INVALID_REQUEST' : 'WARMPATH_INTERNAL', { cause: error });
  }
}
