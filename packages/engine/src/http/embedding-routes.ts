import { WarmpathError } from '@warmpath/core';
import type { FastifyInstance, FastifyReply } from 'fastify';
import { z } from 'zod';
import { type EmbeddingContext, normalised } from '../native/embedding-context.js';
import { refuse } from '../structured/schema-node.js';
import { parseBody } from './schemas.js';

/** Most texts of one request, as at OpenAI. */
const MAX_TEXTS = 2048;

const embeddingsSchema = z.object({
  model: z.string().nullish(),
  input: z.unknown(),
  encoding_format: z.enum(['float', 'base64']).nullish(),
  dimensions: z.int().min(1).nullish(),
});

export interface EmbeddingRoutes {
  readonly model: string;
  readonly checkModel: (asked: string | null | undefined) => void;
  /** The context, made with the first request; `undefined` where the model makes no embeddings. */
  readonly embeddings: (() => Promise<EmbeddingContext>) | undefined;
  /** The tokens of a text or of token ids. */
  readonly tokensOf: (input: unknown, most: number, path: string, reply: FastifyReply) => Promise<readonly number[]>;
}

/** `POST /v1/embeddings` of a model whose file says how its tokens are pooled. */
export function addEmbeddingRoutes(server: FastifyInstance, routes: EmbeddingRoutes): void {
  server.post('/v1/embeddings', async (request, reply) => {
    const { model, input, encoding_format: encoding, dimensions } = parseBody(embeddingsSchema, request.body);
    routes.checkModel(model);
    if (routes.embeddings === undefined) {
      throw refuse('model', 'This model makes no embeddings: its file names no pooling');
    }
    const context = await routes.embeddings();
    const inputs = textsOf(input);
    const tokens: (readonly number[])[] = [];
    for (const { value, path } of inputs) {
      tokens.push(await routes.tokensOf(value, context.maxTokens, path, reply));
    }
    const data: object[] = [];
    for (const [index, each] of tokens.entries()) {
      if (reply.raw.destroyed) {
        throw new WarmpathError('WARMPATH_CLIENT_CLOSED');
      }
      const vector = shortened(await context.embed(each), dimensions ?? undefined);
      const embedding = encoding === 'base64' ? Buffer.from(vector.buffer).toString('base64') : [...vector];
      data.push({ object: 'embedding', index, embedding });
    }
    const count = tokens.reduce((sum, each) => sum + each.length, 0);
    return { object: 'list', data, model: routes.model, usage: { prompt_tokens: count, total_tokens: count } };
  });
}

/** A text, token ids, or an array of either. */
function textsOf(input: unknown): readonly { readonly value: unknown; readonly path: string }[] {
  const isSeveral = Array.isArray(input) && input.some((each) => typeof each === 'string' || Array.isArray(each));
  if (isSeveral && input.length > MAX_TEXTS) {
    throw refuse('input', `Expected at most ${MAX_TEXTS} texts`);
  }
  return isSeveral
    ? input.map((value: unknown, index) => ({ value, path: `input[${index}]` }))
    : [{ value: input, path: 'input' }];
}

function shortened(vector: Float32Array, dimensions: number | undefined): Float32Array {
  if (dimensions === undefined) {
    return vector;
  }
  if (dimensions > vector.length) {
    throw refuse('dimensions', `Expected at most ${vector.length}`);
  }
  return normalised(vector.slice(0, dimensions));
}
