import { RECOGNITION_MODES } from '@warmpath/core/internal';
import { z } from 'zod';
import { milliseconds } from './schema-values.js';

const recognitionMode = (route: string) =>
  z
    .enum(RECOGNITION_MODES)
    .default('marked')
    .describe(
      `Documents that stand in the prompts of \`${route}\`: not looked for, where marked, or wherever certain.`,
    );

const documentTemplate = z.strictObject({
  before: z.string().min(1).max(10_000),
  separator: z.string().min(1).max(100),
  after: z.string().min(1).max(10_000).optional(),
});

/** `recognise`: documents that stand in prompts. */
export const recognise = z.strictObject({
  chat: recognitionMode('/v1/chat/completions'),
  completions: recognitionMode('/v1/completions'),
  messages: recognitionMode('/v1/messages'),
  responses: recognitionMode('/v1/responses'),
  relabel: z
    .boolean()
    .default(true)
    .describe('Count `[1]`, `[2]`, … anew when documents move and nothing refers to a label; else labels move along.'),
  hints: z
    .boolean()
    .default(false)
    .describe(
      "State the order in which the client gave the documents on a line behind them (`arrange.wording.order`), where another one is sent and each has a name. Off, because a prompt's words are its client's.",
    ),
  templates: z
    .array(documentTemplate)
    .max(16)
    .optional()
    .describe(
      'Frames of prompts whose documents nothing else tells apart: `before` the first (letter by letter), the `separator` between them, and `after` the last (the end of the text if left out). With `conservative`.',
    ),
});

const file = (description: string) => z.string().min(1).optional().describe(description);

const store = z
  .strictObject({
    url: z
      .url({ protocol: /^(rediss?|unix)$/, error: 'must be a redis://, rediss:// or unix:// URL' })
      .optional()
      .describe(
        'Server that several gateways share: Redis, Valkey, or another that speaks their protocol and runs scripts. `redis://host:6379`, `rediss://` for TLS, or `unix:///path/of/its/socket`; user and database may stand in it. Of a cluster, any server. The memory of this process if left out.',
      ),
    password: z.string().min(1).optional().describe('Its password. Best taken from the environment; never logged.'),
    tls: z
      .strictObject({
        caFile: file("Certificates (PEM) that the server's may be signed by, where the system does not know them."),
        certFile: file("This gateway's own certificate (PEM), where the server asks for one."),
        keyFile: file('Its key (PEM).'),
      })
      .prefault({})
      .describe('For `rediss://`.'),
  })
  .refine(({ password, url }) => password === undefined || url !== undefined, {
    path: ['url'],
    error: 'is required where there is a password',
  });

/** `session`: what is remembered of conversations. */
export const session = z.strictObject({
  enabled: z
    .boolean()
    .default(true)
    .describe('Replay what earlier turns of a conversation were rendered to, so that bytes already sent never change.'),
  deduplicate: z
    .boolean()
    .default(true)
    .describe('Refer to a document that the conversation still shows, where a request does not say otherwise.'),
  blocks: z
    .boolean()
    .default(false)
    .describe(
      'Refer to parts, too, that a document has in common with what the prompt shows before it, letter by letter, where a request does not say otherwise. Only with de-duplication.',
    ),
  maxAgeMs: milliseconds().default(3_600_000).describe('Milliseconds without use after which a turn is forgotten.'),
  store: store.prefault({}).describe('Where conversations are remembered.'),
});
