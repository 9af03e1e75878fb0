import { z } from 'zod';
import { milliseconds } from './schema-values.js';

const RECOGNITION = ['ask', 'auto', 'off'] as const;
export type Recognition = (typeof RECOGNITION)[number];

/** `recognise`: documents that stand in prompts. */
export const recognise = z
  .enum(RECOGNITION, {
    error:
      'must be `ask`, `auto` or `off`. `recognise.mode` and `recognise.templates` are removed: `warmpath prompts` shows the prompts that were found, and allows them',
  })
  .default('ask')
  .describe(
    'Which documents that stand in prompts may move. `ask`: those of prompts that a person has allowed (`warmpath prompts`). `auto`: also those of prompts whose text says nothing about an order and whose documents have none. `off`: none. Documents that a prompt marks with `<warmpath-documents>` may move with `ask` and `auto`.',
  );

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
