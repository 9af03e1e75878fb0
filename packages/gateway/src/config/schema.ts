import { POLICY_NAMES } from '@warmpath/core';
import { DEFAULT_POLICY, LAYOUT_NAMES, SCHEDULER_NAMES, TEMPLATE_NAMES } from '@warmpath/core/internal';
import { z } from 'zod';
import { DIALECT_NAMES } from '../dialects/dialects.js';
import { collections } from './schema-collections.js';
import { count, identifiesTenants, isLoopback, milliseconds, server } from './schema-server.js';

/** More ranks than one engine has. */
const MAX_RANKS = 64;
const TCP_PORT = /^tcp:\/\/.+:(\d{1,5})$/;

const zmqEndpoint = (example: string) =>
  z.string().regex(/^(tcp|ipc):\/\/./, { error: `must be a ZeroMQ endpoint such as ${example}` });

const kvEvents = z
  .strictObject({
    endpoint: zmqEndpoint('tcp://127.0.0.1:5557').describe(
      'ZeroMQ endpoint at which the engine publishes its KV events.',
    ),
    replayEndpoint: zmqEndpoint('tcp://127.0.0.1:5558')
      .optional()
      .describe(
        'ZeroMQ endpoint that repeats missed events. Without it, one missed event ends exact residency until the engine restarts.',
      ),
    ranks: count(MAX_RANKS)
      .default(1)
      .describe(
        'Data-parallel ranks of the engine (`--data-parallel-size` of vLLM, `--dp-size` of SGLang). Each rank has its own cache and publishes on the next port. The gateway treats a rank as an engine named `<name>-rank-<number>`, and addresses it by `x-data-parallel-rank`.',
      ),
  })
  .superRefine(({ ranks, ...endpoints }, context) => {
    if (ranks === 1) return;
    for (const [key, endpoint] of Object.entries(endpoints)) {
      const port = Number(TCP_PORT.exec(endpoint)?.[1] ?? Number.NaN);
      if (port + ranks - 1 < 65_536) continue;
      const message = 'must be tcp:// with a port that leaves room for one more for each rank';
      context.addIssue({ code: 'custom', path: [key], message });
    }
  });

const engineUrl = () => z.url({ protocol: /^https?$/, error: 'must be an http:// or https:// URL' });

const upstream = z.strictObject({
  url: engineUrl()
    .optional()
    .describe(
      "Base URL of the engine's OpenAI API, with or without `/v1`. List several engines under `engines`; all other keys of `upstream` hold for each of them.",
    ),
  dialect: z
    .enum(['auto', ...DIALECT_NAMES])
    .default('auto')
    .describe(
      'Kind of the engine: how it caches, and what it reports. `auto` knows hosted APIs by their address, and asks other engines. Set the kind where a proxy hides the engine.',
    ),
  apiKey: z
    .string()
    .min(1)
    .optional()
    .describe(
      "Key for the engine, sent in place of the client's key: as `Authorization: Bearer …`, or as `x-api-key` to Anthropic's API. Take it from the environment.",
    ),
  cacheSaltKey: z
    .string()
    .min(16)
    .optional()
    .describe(
      'Secret of 16 characters or more. The gateway derives a `cache_salt` for each tenant from it, so that tenants share nothing in the cache of a vLLM, SGLang or embedded engine. All gateways of an engine need the same secret. Leave it out for hosted APIs: they refuse unknown fields. Take it from the environment.',
    ),
  maxConcurrent: count(65_536)
    .default(1_024)
    .describe(
      'Prompts that the engine gets at once, at most. Other prompts wait in the queue, where `foresight` sees them. An engine that reports how many prompts wait inside it gets fewer.',
    ),
  kvEvents: kvEvents
    .optional()
    .describe(
      'Where the engine publishes its KV events over ZeroMQ. The gateway then knows what the engine holds. Set it where the engine does not say: vLLM before 0.32, the embedded engine, several data-parallel ranks. The engine must answer `POST /tokenize`. Needs `npm install zeromq@6`.',
    ),
  timeoutMs: milliseconds()
    .max(14_400_000)
    .default(300_000)
    .describe(
      "Milliseconds until the first token: the engine's queue and its prefill. Between two later chunks, the gateway waits two fifths of this time. A whole exchange may take six times as long.",
    ),
});

const RECOGNITION = ['ask', 'auto', 'off'] as const;
export type Recognition = (typeof RECOGNITION)[number];

/** `recognise`: documents that stand in prompts. */
const recognise = z
  .enum(RECOGNITION, {
    error:
      'must be `ask`, `auto` or `off`. `recognise.mode` and `recognise.templates` are removed: `warmpath prompts` shows the prompts that were found, and allows them',
  })
  .default('ask')
  .describe(
    'Which documents that stand in prompts may move. `ask`: those of prompts that a person has allowed (`warmpath prompts`). `auto`: also those of prompts whose text says nothing about an order and whose documents have none. `off`: none. Documents that a prompt marks with `<warmpath-documents>` may move with `ask` and `auto`.',
  );

const PREFIX_KEEPERS = ['billing-line', 'cache-marks', 'system-messages', 'tool-order'] as const;
/** What the gateway may change in a request so that it begins as earlier ones did. */
export type PrefixKeeperName = (typeof PREFIX_KEEPERS)[number];

const store = z.strictObject({
  url: z
    .url({ protocol: /^(rediss?|unix)$/, error: 'must be a redis://, rediss:// or unix:// URL' })
    .optional()
    .describe(
      'Redis or Valkey server that several gateways share: `redis://:password@host:6379`, `rediss://` for TLS, or `unix:///path/of/its/socket`. The URL may hold user, password and database, percent-encoded. For a cluster, name any server. Take the URL from the environment; it is never logged. Default: the memory of this process.',
    ),
});

/** `session`: what is remembered of conversations. */
const session = z.strictObject({
  maxAgeMs: milliseconds()
    .default(3_600_000)
    .describe(
      'Milliseconds after the last use until a turn of a conversation is forgotten, and until a stored response is.',
    ),
  store: store.prefault({}).describe('Server of the memory of conversations.'),
});

/** More than one process can keep busy. */
const MAX_ENGINES = 256;

const engine = z.strictObject({
  name: z
    .string()
    .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/, { error: 'must be letters, digits, `.`, `_` and `-`, at most 63' })
    .describe('Name in metrics, logs and answers. An engine under another name is another engine.'),
  url: engineUrl().describe('Base URL of its OpenAI API.'),
  apiKey: z.string().min(1).optional().describe('Key for this engine, in place of `upstream.apiKey`.'),
  weight: z
    .number()
    .positive()
    .max(1_000)
    .default(1)
    .describe('Prefill speed relative to the other engines. An engine of weight 2 gets twice the tokens.'),
  models: z
    .array(z.string().min(1).max(256))
    .min(1)
    .max(1_024)
    .optional()
    .describe('Models that it serves. It gets no request for another model. Default: any model.'),
  kvEvents: kvEvents.optional().describe('Its KV events: see `upstream.kvEvents`.'),
});

/** Prices of models that differ. */
const MAX_PRICES = 1_024;

const perMillion = () => z.number().min(0).max(1_000_000);

const price = z.strictObject({
  models: z.array(z.string().min(1).max(256)).min(1).max(1_024).optional().describe('Models as requests name them.'),
  input: perMillion().describe('Price of a million prompt tokens that are computed.'),
  cached: perMillion().describe('Price of a million prompt tokens that were cached.'),
  cacheWrite: perMillion().optional().describe('Price of a million tokens that are written. Default: `input`.'),
  rewriteResults: z
    .boolean()
    .default(false)
    .describe('Shorten results of tools that repeat an earlier one, or were read again later.'),
});

/** What prompt tokens of one model cost. */
export type TokenPrice = z.output<typeof price>;

const arrange = z.strictObject({
  policy: z.enum(POLICY_NAMES).default(DEFAULT_POLICY).describe('Ordering policy of requests that name none.'),
  maxShift: z
    .int()
    .min(0)
    .optional()
    .describe(
      'Places that a document may move from its retrieval rank, at most. A request may set its own limit. Default: no limit.',
    ),
  shiftPrice: z
    .number()
    .min(0)
    .max(1_000_000_000)
    .default(0)
    .describe(
      'Tokens that each place costs by which a document moves. Documents move only where that saves more. A request may set its own price. `warmpath lab eval --shift-prices` measures which price keeps your answers.',
    ),
  hints: z.boolean().default(true).describe('State the retrieval order in the prompt when the order changed.'),
  template: z.enum(TEMPLATE_NAMES).default('xml').describe('Markup of one document in the prompt.'),
  layout: z
    .enum(LAYOUT_NAMES)
    .default('question')
    .describe(
      'Place of the documents in a chat: before the last `question`, in a `message` of their own, or in the `system` prompt.',
    ),
});

const limits = z.strictObject({
  memoryBytes: count(1_099_511_627_776)
    .min(16_777_216)
    .default(268_435_456)
    .describe(
      'Bytes for everything that clients make the gateway keep: bodies, histories, conversations, passages, records. Fixed shares divide it. When a share is full, the tenant that holds most loses its oldest entries first; bodies are refused.',
    ),
});

const queue = z.strictObject({
  capacity: count(65_536)
    .default(1_024)
    .describe(
      'Prompts that may wait for an engine. When the queue is full, a prompt gets 429, or displaces the latest prompt of the tenant with most waiting prompts.',
    ),
  maxWaitMs: milliseconds()
    .default(60_000)
    .describe(
      'Milliseconds that a prompt may wait. Then it gets 429. It gets 429 at once where its wait would be longer.',
    ),
  discipline: z
    .enum(SCHEDULER_NAMES)
    .default('fifo')
    .describe(
      'Which prompt of a tenant goes next: the oldest (`fifo`), or the one with most cached tokens (`cache-aware`). Tenants take turns.',
    ),
});

const explain = z.strictObject({
  prompts: z
    .enum(['off', 'all'])
    .default('off')
    .describe('`all`: compare every prompt with earlier ones, to say where and why their prefixes part.'),
});

const dashboard = z.strictObject({
  names: z
    .boolean()
    .default(false)
    .describe(
      'Show ids of documents and names of tenants and collections on the dashboard (`/ui`). By default it shows short hashes. Texts of requests are shown only where captured. Its page Prompts always shows the texts of programs, and their tenants.',
    ),
});

const admin = z.strictObject({
  socket: z
    .string()
    .min(1)
    .max(80)
    .optional()
    .describe(
      'Path of a Unix socket for the operator (`warmpath sessions`). Only the user of the process can open it. Default: none.',
    ),
});

const log = z.strictObject({
  level: z
    .enum(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'])
    .default('info')
    .describe('Least severe level that is logged. Bodies, prompts and keys are never logged.'),
});

/**
 * The one schema of the gateway's configuration: validation, defaults and documentation come from it. Every key is
 * read by the gateway; an unknown key is an error.
 */
export const gatewayConfigSchema = z
  .strictObject({
    server: server.prefault({}).describe('The HTTP server that clients talk to.'),
    upstream: upstream.prefault({}).describe('The engine behind the gateway, and settings of all engines.'),
    engines: z
      .array(engine)
      .min(1)
      .max(MAX_ENGINES)
      .optional()
      .describe(
        'Several engines, in place of `upstream.url`. Each has a `name` and a `url`. `apiKey`, `weight`, `models` and `kvEvents` are optional.',
      ),
    passthrough: z
      .array(z.string().regex(/^\/v1\/[a-z0-9._/-]+$/, { error: 'must be a path such as `/v1/files`, in lower case' }))
      .max(256)
      .default([])
      .describe(
        "Paths of the engine that are passed through, each with all paths below it. Tenants share the engine's account there: each can read and delete what another stored. By default, only endpoints that store nothing are passed through.",
      ),
    arrange: arrange.prefault({}).describe('How documents are ordered and written.'),
    session: session.prefault({}).describe('Memory of conversations.'),
    recognise,
    unchanged: z
      .array(z.enum(PREFIX_KEEPERS))
      .default([])
      .describe(
        "What is sent as the client wrote it. By default the gateway changes what breaks the engine's prefix cache and says nothing to the model: changing values in Claude Code's `billing-line`; `cache-marks`, where the engine reads none; later `system-messages`, which become the user's in a translation; `tool-order`, which stays that of the first request, with new tools behind.",
      ),
    limits: limits.prefault({}).describe('Bounds on requests and on state.'),
    queue: queue.prefault({}).describe('Prompts that wait for an engine.'),
    holdout: z
      .number()
      .min(0)
      .max(0.5)
      .default(0)
      .describe(
        'Share of conversations that are left as they are, to compare with: documents stay in retrieval order, without references and hints. Metrics and the dashboard show both groups. Start with 0.05.',
      ),
    prices: z
      .array(price)
      .max(MAX_PRICES)
      .default([])
      .describe(
        'What a million prompt tokens cost, in your currency: `input`, `cached`, and `cacheWrite` where the engine asks for more (default: `input`; what Anthropic keeps for an hour costs twice `input`). `models` limits an entry; the first entry that fits counts. The gain is then also told in money. `rewriteResults: true` shortens repeated and outdated results of tools, where no later turn can cost more for it.',
      ),
    explain: explain.prefault({}).describe('Records of served requests.'),
    dashboard: dashboard.prefault({}).describe('The page at `/ui`.'),
    collections: collections
      .optional()
      .describe('Collections of documents that answers come from. Needs `@warmpath/retrieval`. Default: none.'),
    admin: admin.prefault({}).describe('Access for the operator.'),
    log: log.prefault({}).describe('Logging, JSON lines on standard output.'),
  })
  .superRefine(({ server: { open, operatorKey }, dashboard: { names } }, context) => {
    if (!names || !open || operatorKey !== undefined) return;
    context.addIssue({
      code: 'custom',
      path: ['dashboard', 'names'],
      message: 'would show everybody who reaches this address ids of documents: configure `server.operatorKey`',
    });
  })
  .superRefine(({ server, upstream, engines = [] }, context) => {
    const apiKey = upstream.apiKey ?? engines.find((engine) => engine.apiKey !== undefined)?.apiKey;
    // The key of an embedded engine pays for nothing: it only shows that the gateway sent a request.
    if (upstream.dialect === 'embedded') return;
    if (apiKey === undefined || identifiesTenants(server) || server.open || isLoopback(server.host)) return;
    context.addIssue({
      code: 'custom',
      path: ['server', 'host'],
      message:
        'would let everybody who reaches this address use `upstream.apiKey`: configure `server.keys`, `server.jwt` or ' +
        '`server.trustedHeaders.tenant`, listen on 127.0.0.1, or set `server.open: true`',
    });
  })
  .superRefine(({ upstream, engines }, context) => {
    const refuse = (path: (string | number)[], message: string) => context.addIssue({ code: 'custom', path, message });
    if (engines === undefined) {
      if (upstream.url === undefined) refuse(['upstream', 'url'], 'must be an http:// or https:// URL');
      return;
    }
    if (upstream.url !== undefined) refuse(['upstream', 'url'], 'does not go with `engines`: list that engine there');
    if (upstream.kvEvents !== undefined) {
      refuse(['upstream', 'kvEvents'], 'are those of one engine: write them to that engine in `engines`');
    }
    for (const key of ['name', 'url'] as const) {
      for (const [place, engine] of engines.entries()) {
        const first = engines.findIndex((other) => other[key] === engine[key]);
        if (first < place) refuse(['engines', place, key], `is that of engines.${first}, too`);
      }
    }
    const names = engineSettings({ upstream, engines }).map(({ name }) => name);
    if (names.length > MAX_ENGINES) refuse(['engines'], `are more than ${MAX_ENGINES} with all their ranks`);
    const twice = names.find((name, place) => names.indexOf(name) < place);
    if (twice !== undefined) refuse(['engines'], `have two of the name ${twice}, which a rank has`);
  });

/** A complete configuration: every default filled in. */
export type GatewayConfig = z.output<typeof gatewayConfigSchema>;
/** A configuration as a person writes it: only `upstream.url`, or `engines`, is required. */
export type GatewayConfigInput = z.input<typeof gatewayConfigSchema>;

/** One engine, with everything that holds for it. */
export interface EngineSettings {
  readonly name: string;
  readonly url: string;
  readonly apiKey: string | undefined;
  readonly weight: number;
  /** `undefined` for any. */
  readonly models: readonly string[] | undefined;
  readonly kvEvents: KvEventSettings | undefined;
}

/** Where the events of one engine, or of one of its data-parallel ranks, are read. */
export interface KvEventSettings {
  readonly endpoint: string;
  readonly replayEndpoint: string | undefined;
  /** `undefined` for an engine that has no ranks. */
  readonly rank: number | undefined;
}

/** What the only engine is called where it has no name. */
const ONLY_ENGINE = 'engine';

/** The engines of a configuration: those it lists, or the one of `upstream.url`; each rank is one by itself. */
export function engineSettings({ upstream, engines }: Pick<GatewayConfig, 'upstream' | 'engines'>): EngineSettings[] {
  const { url, apiKey, kvEvents } = upstream;
  const only = { name: ONLY_ENGINE, url: url!, apiKey, weight: 1, models: undefined, kvEvents };
  return (engines ?? [only]).flatMap((entry): EngineSettings[] => {
    const { name, url, apiKey: own = apiKey, weight, models, kvEvents: events } = entry;
    const common = { url, apiKey: own, weight, models };
    if (events === undefined) return [{ ...common, name, kvEvents: undefined }];
    const { endpoint, replayEndpoint, ranks } = events;
    if (ranks === 1) return [{ ...common, name, kvEvents: { endpoint, replayEndpoint, rank: undefined } }];
    return Array.from({ length: ranks }, (_, rank) => {
      const heardAt = { endpoint: portBehind(endpoint, rank)!, replayEndpoint: portBehind(replayEndpoint, rank), rank };
      return { ...common, name: `${name}-rank-${rank}`, kvEvents: heardAt };
    });
  });
}

/** Ranks publish on ports one behind the other. */
function portBehind(endpoint: string | undefined, rank: number): string | undefined {
  return endpoint?.replace(/\d+$/, (port) => String(Number(port) + rank));
}
