import { z } from 'zod';
import { count } from './schema-server.js';

const collectionName = () =>
  z.string().regex(/^[a-z0-9][a-z0-9_-]{0,63}$/, { error: 'must be lower-case letters, digits, - and _' });

const text = (most: number) => z.string().min(1).max(most);
const httpUrl = () => z.url({ protocol: /^https?$/, error: 'must be an http:// or https:// URL' });

const model = z.strictObject({
  model: z.string().min(1).max(256).describe('Model of the engine that answers.'),
  collection: collectionName().describe('Collection that is searched.'),
  tenant: z
    .string()
    .min(1)
    .max(256)
    .optional()
    .describe("Tenant whose collection is searched, for every caller. Default: the caller's own."),
  k: count(100).optional().describe('Passages for an answer. Default: 6.'),
});

const embeddings = z.strictObject({
  url: httpUrl().describe('Base URL of an OpenAI-compatible embeddings API, with `/v1`.'),
  model: z
    .string()
    .min(1)
    .max(256)
    .describe('Embedding model. A collection is searched with the model that embedded its passages.'),
  apiKey: z.string().min(1).optional().describe('API key. Take it from the environment.'),
  dimensions: count(4_096)
    .optional()
    .describe("Dimensions to request, for a model that can shorten its vectors. Default: the model's own."),
  queryPrefix: text(500)
    .optional()
    .describe('Text before each question. E5, Nomic, Arctic and other models need one, such as `query: `.'),
  passagePrefix: text(500)
    .optional()
    .describe(
      'Text before each passage, such as `passage: `. Another prefix makes other vectors, as another model does.',
    ),
});

const rerank = z.strictObject({
  url: httpUrl().describe(
    'Base URL of a reranking API, with `/v1` or `/v2`: Cohere, Jina, Voyage, vLLM, llama-server. The gateway calls `/rerank` below it.',
  ),
  model: text(256).describe('Reranking model.'),
  apiKey: text(4_096).optional().describe('API key. Take it from the environment.'),
});

const storeTenant = {
  tenant: text(256)
    .optional()
    .describe('Tenant of the collection. Default: `default`, the tenant of a gateway without keys.'),
};
const storeKey = { apiKey: text(4_096).optional().describe('API key. Take it from the environment.') };
const fields = {
  fields: z
    .strictObject({
      id: text(256).optional(),
      content: text(256).optional(),
      title: text(256).optional(),
      metadata: text(256).optional(),
    })
    .optional()
    .describe('Fields that hold id, text, title and metadata of a passage. Default: `content` and `title`.'),
};

const store = z.discriminatedUnion('kind', [
  z.strictObject({
    kind: z.literal('qdrant').describe('Qdrant 1.10 or later, searched by vectors.'),
    url: httpUrl().describe('URL of the server.'),
    ...storeKey,
    collection: text(256).describe('Name of the collection in Qdrant.'),
    vectorName: text(256).optional().describe('Named vector to search, where points have several.'),
    ...fields,
    ...storeTenant,
  }),
  z.strictObject({
    kind: z.literal('pgvector').describe('PostgreSQL with pgvector, searched by vectors. Needs the package `pg`.'),
    url: z
      .url({ protocol: /^postgres(?:ql)?$/, error: 'must be a postgres:// URL' })
      .describe('URL of the server, with user and database. Take it from the environment.'),
    table: text(256).describe('Table, with its schema where it has one: `kb.passages`.'),
    vectorColumn: text(256).optional().describe('Column of the vectors. Default: `embedding`.'),
    index: z
      .enum(['hnsw', 'ivfflat', 'none'])
      .optional()
      .describe('Kind of the index, which is searched in stages. Default: `none`, all rows in one stage.'),
    metric: z
      .enum(['cosine', 'dot', 'l2'])
      .optional()
      .describe('Distance that the index was made for. Default: `cosine`.'),
    ...fields,
    ...storeTenant,
  }),
  z.strictObject({
    kind: z
      .enum(['opensearch', 'elasticsearch'])
      .describe(
        'OpenSearch 2.16, Elasticsearch 8, or later. Searched by words, and by vectors where `vectorField` is set.',
      ),
    url: httpUrl().describe('URL of the server.'),
    ...storeKey,
    index: text(256).describe('Name of the index.'),
    vectorField: text(256).optional().describe('Field of the vectors. Without it, only words are searched.'),
    ...fields,
    ...storeTenant,
  }),
]);

export const collections = z
  .strictObject({
    folder: z
      .string()
      .min(1)
      .describe('Folder of the collections. Each tenant has a subfolder. `warmpath ingest` writes to it.'),
    embeddings: embeddings
      .optional()
      .describe('Embeddings API for passages and questions. Without it, collections are searched by words alone.'),
    rerank: rerank
      .optional()
      .describe('Reranking API, the last stage of each search. Without it, searches are not reranked.'),
    stores: z
      .record(collectionName(), store)
      .default({})
      .describe('Collections in a database: Qdrant, pgvector, OpenSearch or Elasticsearch.'),
    models: z
      .record(z.string().min(1).max(256), model)
      .default({})
      .describe('Models that answer from a collection. `/v1/models` lists them.'),
  })
  .superRefine(({ stores, embeddings }, context) => {
    for (const [name, store] of Object.entries(stores)) {
      const isByVectors = store.kind === 'qdrant' || store.kind === 'pgvector' || store.vectorField !== undefined;
      if (isByVectors && embeddings === undefined) {
        const message = 'is searched by vectors, which needs `collections.embeddings` for the questions';
        context.addIssue({ code: 'custom', path: ['stores', name], message });
      }
    }
  });
