import { RECOGNITION_MODES } from '@warmpath/core/internal';
import { z } from 'zod';
import { milliseconds } from './schema-values.js';

const documentTemplate = z.strictObject({
  before: z.string().min(1).max(10_000),
  separator: z.string().min(1).max(100),
  after: z.string().min(1).max(10_000).optional(),
});

/** `recognise`: documents that stand in prompts. */
export const recognise = z.strictObject({
  mode: z
    .enum(RECOGNITION_MODES)
    .default('marked')
    .describe(
      'Which documents in a prompt may move. `off`: none. `marked`: those inside `<warmpath-documents>`. `conservative`: also those that are certain by their form. A request may set its own mode.',
    ),
  templates: z
    .array(documentTemplate)
    .max(16)
    .optional()
    .describe(
      'Prompt templates whose documents only a separator parts. `before` is the exact text before the first document, `separator` stands between documents, `after` follows the last one (default: the end of the text). They count with `recognise.mode: conservative`.',
    ),
});

const store = z.strictObject({
  url: z
    .url({ protocol: /^(rediss?|unix)$/, error: 'must be a redis://, rediss:// or unix:// URL' })
    .optional()
    .describe(
      'Redis or Valkey server that several gateways share: `redis://:password@host:6379`, `rediss://` for TLS, or `unix:///path/of/its/socket`. The URL may hold user, password and database, percent-encoded. For a cluster, name any server. Take the URL from the environment; it is never logged. Default: the memory of this process.',
    ),
});

/** `session`: what is remembered of conversations. */
export const session = z.strictObject({
  maxAgeMs: milliseconds()
    .default(3_600_000)
    .describe('Milliseconds after the last use until a turn of a conversation is forgotten.'),
  store: store.prefault({}).describe('Server of the memory of conversations.'),
});
