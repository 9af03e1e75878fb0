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
      'Which documents in a prompt may move. `off`: none. `marked`: those inside `<warmpath-documents>`. `conservative`: also those that are certain by their form. A request may say otherwise.',
    ),
  templates: z
    .array(documentTemplate)
    .max(16)
    .optional()
    .describe(
      'Frames of prompts whose documents nothing else tells apart: `before` the first (letter by letter), the `separator` between them, and `after` the last (the end of the text if left out). With `conservative`.',
    ),
});

const store = z.strictObject({
  url: z
    .url({ protocol: /^(rediss?|unix)$/, error: 'must be a redis://, rediss:// or unix:// URL' })
    .optional()
    .describe(
      'Server that several gateways share: Redis, Valkey, or another that speaks their protocol and runs scripts. `redis://:password@host:6379`, `rediss://` for TLS, or `unix:///path/of/its/socket`. User, password and database may stand in it, percent-encoded. Best taken from the environment; never logged. Of a cluster, any server. The memory of this process if left out.',
    ),
});

/** `session`: what is remembered of conversations. */
export const session = z.strictObject({
  maxAgeMs: milliseconds().default(3_600_000).describe('Milliseconds without use after which a turn is forgotten.'),
  store: store.prefault({}).describe('Where conversations are remembered.'),
});
