import { z } from 'zod';
import { count } from './schema-values.js';

const collectionName = () =>
  z.string().regex(/^[a-z0-9][a-z0-9_-]{0,63}$/, { error: 'must be lower-case letters, digits, - and _' });

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
  url: z
    .url({ protocol: /^https?$/, error: 'must be an http:// or https:// URL' })
    .describe('Base URL of an OpenAI-compatible API of embeddings, with `/v1` at its end.'),
  model: z
    .string()
    .min(1)
    .max(256)
    .describe('Its model. A collection is searched with the model that its passages were embedded with.'),
  apiKey: z.string().min(1).optional().describe('Its key. Best taken from the environment.'),
  dimensions: count(16_384)
    .optional()
    .describe("Dimensions to ask for, of a model that can shorten its vectors; the model's own if left out."),
});

export const collections = z.strictObject({
  folder: z
    .string()
    .min(1)
    .describe('Folder that holds the collections, those of each tenant apart. `warmpath ingest` writes to it.'),
  embeddings: embeddings
    .optional()
    .describe('Where passages and questions get vectors; collections are searched by words alone if left out.'),
  k: count(100).default(6).describe('Passages for an answer where neither the request nor the model says.'),
  wastedShare: z
    .number()
    .min(0)
    .max(1)
    .default(0.1)
    .describe(
      'Part of the prompt tokens that may be prefilled in vain when generation starts before a search is over; 0 to wait for each search.',
    ),
  maxBytes: count(1_099_511_627_776)
    .default(10_737_418_240)
    .describe('Bytes of text that one collection may hold through `POST /v1/collections/{name}/documents`.'),
  models: z
    .record(z.string().min(1).max(256), model)
    .default({})
    .describe('Names of models that answer from a collection, listed by `/v1/models`.'),
});
