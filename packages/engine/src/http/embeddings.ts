import { WarmpathError } from '@warmpath/core';
import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import { type EmbeddingContext, normalised } from '../native/embedding-context.js';
import { refuse } from '../structured/schema-node.js';
import type { EngineMetrics } from './metrics.js';
import { embeddedTokens, type PromptSource, promptsOf, tokenizeOptions } from './prompts.js';
import { checkModel, parseBody } from './schemas.js';

const MAX_TEXTS = 2048;

const embeddingsSchema = z.object({
  model: z.string().nullish(),
  input: z.unknown(),
  encoding_format: z.enum(['float', 'base64']).nullish(),
  dimensions: z.int().min(1).nullish(),
});

interface EmbeddingRoutes extends PromptSource {
  readonly model: string;
  /** `undefined` where the model makes no embeddings. */
  readonly embeddings?: EmbeddingQueue | undefined;
}

/** `POST /v1/embeddings` of a model whose file says how its tokens are pooled. */
export function addEmbeddingRoutes(server: FastifyInstance, app: EmbeddingRoutes): void {
  server.post('/v1/embeddings', async (request, reply) => {
    const { model, input, encoding_format: encoding, dimensions } = parseBody(embeddingsSchema, request.body);
    checkModel(model, app.model);
    if (app.embeddings === undefined) {
      throw refuse('model', 'This model makes no embeddings: its file names no pooling');
    }
    const { maxTokens, width } = await app.embeddings.context();
    if (dimensions !== undefined && dimensions !== null && dimensions > width) {
      throw refuse('dimensions', `Expected at most ${width}`);
    }
    const tokens: (readonly number[])[] = [];
    const prompts = promptsOf(input, 'input');
    if (prompts.length > MAX_TEXTS) throw refuse('input', `Expected at most ${MAX_TEXTS} texts`);
    for (const prompt of prompts) {
      tokens.push(await embeddedTokens(app, prompt, { ...tokenizeOptions(app, reply), most: maxTokens }));
    }
    const vectors = await app.embeddings.embed(tokens, () => !reply.raw.destroyed);
    const data = vectors.map((whole, index) => {
      const vector = dimensions ? normalised(whole.slice(0, dimensions)) : whole;
      const embedding = encoding === 'base64' ? Buffer.from(vector.buffer).toString('base64') : [...vector];
      return { object: 'embedding', index, embedding };
    });
    const count = tokens.reduce((sum, each) => sum + each.length, 0);
    return { object: 'list', data, model: app.model, usage: { prompt_tokens: count, total_tokens: count } };
  });
}

interface EmbeddingQueueOptions {
  /** Makes the context, with the first request. */
  readonly open: () => Promise<EmbeddingContext>;
  readonly queueLimit: number;
  readonly metrics: EngineMetrics;
}

/** The requests for embeddings. One text is computed at a time: the texts of all requests take turns. */
export class EmbeddingQueue {
  readonly #options: EmbeddingQueueOptions;
  #context: Promise<EmbeddingContext> | undefined;
  #requests = 0;

  constructor(options: EmbeddingQueueOptions) {
    this.#options = options;
  }

  get counts(): { readonly running: number; readonly waiting: number } {
    const running = Math.min(1, this.#requests);
    return { running, waiting: this.#requests - running };
  }

  /** @throws WARMPATH_ENGINE_FAILED when the memory cannot be had; the next request tries again. */
  context(): Promise<EmbeddingContext> {
    this.#context ??= this.#options.open().catch((error: unknown) => {
      this.#context = undefined;
      throw error;
    });
    return this.#context;
  }

  /**
   * Turns the texts of one request into vectors.
   *
   * @param isWanted Asked before each text; when not, nothing more is computed.
   * @throws WARMPATH_OVERLOADED, WARMPATH_CLIENT_CLOSED, WARMPATH_ENGINE_FAILED.
   */
  async embed(texts: readonly (readonly number[])[], isWanted: () => boolean): Promise<Float32Array[]> {
    const { queueLimit, metrics } = this.#options;
    const { running, waiting } = this.counts;
    if (running > 0 && waiting >= queueLimit) {
      throw new WarmpathError('WARMPATH_OVERLOADED', {
        detail: `${waiting} requests for embeddings are waiting already (\`--queue-limit\`).`,
      });
    }
    const startedMs = performance.now();
    let outcome: 'finished' | 'aborted' | 'failed' = 'failed';
    this.#requests++;
    try {
      const context = await this.context();
      const vectors: Float32Array[] = [];
      for (const tokens of texts) {
        if (!isWanted()) {
          outcome = 'aborted';
          throw new WarmpathError('WARMPATH_CLIENT_CLOSED');
        }
        vectors.push(await context.embed(tokens));
      }
      outcome = 'finished';
      return vectors;
    } finally {
      this.#requests--;
      const tokens = texts.reduce((sum, { length }) => sum + length, 0);
      metrics.onEmbeddings(outcome, tokens, performance.now() - startedMs);
    }
  }

  async close(): Promise<void> {
    await (await this.#context?.catch(() => undefined))?.free();
  }
}
