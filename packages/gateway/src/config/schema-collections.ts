import { z } from 'zod';
import { count } from './schema-values.js';

const collectionName = () =>
  z.string().regex(/^[a-z0-9][a-z0-9_-]{0,63}$/, { error: 'must be lower-case letters, digits, - and _' });

const text = (most: number) => z.string().min(1).max(most);
const httpUrl = () => z.url({ protocol: /^https?$/, error: 'must be an http:// or https:// URL' });

const model = z.strictObject({
  model: z.string().min(1).max(256).describe('What the engine calls the model that answers.'),
  collection: collectionName().describe('Where passages for its answers are looked for.'),
  tenant: z
    .string()
    .min(1)
    .max(256)
    .optional()
    .describe("Whose collection it is, for all who use this name; the caller's own if left out."),
  k: count(100).optional().describe('Passages for an answer; `collections.k` if left out.'),
});

const embeddings = z.strictObject({
  url: httpUrl().describe('Base URL of an OpenAI-compatible API of embeddings, with `/v1` at its end.'),
  model: z
    .string()
    .min(1)
    .max(256)
    .describe('Its model. A collection is searched with the model that its passages were embedded with.'),
  apiKey: z.string().min(1).optional().describe('Its key. Best taken from the environment.'),
  dimensions: count(4_096)
    .optional()
    .describe("Dimensions to ask for, of a model that can shorten its vectors; the model's own if left out."),
  queryPrefix: text(500)
    .optional()
    .describe(
      'Put before each question, as E5, Nomic, Arctic and other models want it: `query: `. Nothing if left out.',
    ),
  passagePrefix: text(500)
    .optional()
    .describe(
      'Put before each passage: `passage: `. Nothing if left out. Another one makes other vectors, as another model does.',
    ),
});

const rerank = z.strictObject({
  url: httpUrl().describe(
    'Base URL of a reranking API as Cohere, Jina, Voyage, vLLM and llama-server have it, with `/v1` or `/v2` at its end: `/rerank` is put behind it.',
  ),
  model: text(256).describe('Its model.'),
  apiKey: text(4_096).optional().describe('Its key. Best taken from the environment.'),
});

const storeTenant = {
  tenant: text(256).optional().describe('Whose collection it is; `default`, as without keys, if left out.'),
};
const storeKey = { apiKey: text(4_096).optional().describe('Its key. Best taken from the environment.') };
const fields = {
  fields: z
    .strictObject({
      id: text(256).optional(),
      content: text(256).optional(),
      title: text(256).optional(),
      metadata: text(256).optional(),
    })
    .optional()
    .describe('Which fields hold id, text, title and metadata of a passage; `content` and `title` if left out.'),
};

const store = z.discriminatedUnion('kind', [
  z.strictObject({
    kind: z.literal('qdrant').describe('Qdrant 1.10 or later, searched by vectors.'),
    url: httpUrl().describe('Where it listens.'),
    ...storeKey,
    collection: text(256).describe('What Qdrant calls the collection.'),
    vectorName: text(256).optional().describe('The named vector that is searched, where points have several.'),
    ...fields,
    ...storeTenant,
  }),
  z.strictObject({
    kind: z.literal('pgvector').describe('PostgreSQL with pgvector, searched by vectors. Needs the package `pg`.'),
    url: z
      .url({ protocol: /^postgres(?:ql)?$/, error: 'must be a postgres:// URL' })
      .describe('Where it listens, with user and database. Best taken from the environment.'),
    table: text(256).describe('A table, also with its schema: `kb.passages`.'),
    vectorColumn: text(256).optional().describe('The column of the vectors; `embedding` if left out.'),
    index: z
      .enum(['hnsw', 'ivfflat', 'none'])
      .optional()
      .describe('The kind of the index, which is searched in stages; `none`, all rows in one, if left out.'),
    metric: z.enum(['cosine', 'dot', 'l2']).optional().describe('What the index was made for; `cosine` if left out.'),
    ...fields,
    ...storeTenant,
  }),
  z.strictObject({
    kind: z
      .enum(['opensearch', 'elasticsearch'])
      .describe('OpenSearch 2.16, Elasticsearch 8, or later: words, and vectors where a field is named.'),
    url: httpUrl().describe('Where it listens.'),
    ...storeKey,
    index: text(256).describe('The index.'),
    vectorField: text(256).optional().describe('The field of the vectors; words alone are searched if left out.'),
    ...fields,
    ...storeTenant,
  }),
]);

export const collections = z
  .strictObject({
    folder: z
      .string()
      .min(1)
      .describe('Folder that holds the collections, those of each tenant apart. `warmpath ingest` writes to it.'),
    embeddings: embeddings
      .optional()
      .describe('Where passages and questions get vectors; collections are searched by words alone if left out.'),
    rerank: rerank
      .optional()
      .describe('What ranks the passages of each search anew, as its last stage; nothing does if left out.'),
    k: count(100).default(6).describe('Passages for an answer where neither the request nor the model says.'),
    stores: z
      .record(collectionName(), store)
      .default({})
      .describe('Collections that live in a database of their own: searched and answered from as any other.'),
    models: z
      .record(z.string().min(1).max(256), model)
      .default({})
      .describe('Names of models that answer from a collection, listed by `/v1/models`.'),
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
