import { POLICY_NAMES } from '@warmpath/core';
import { DEFAULT_POLICY, LAYOUT_NAMES, SCHEDULER_NAMES, TEMPLATE_NAMES } from '@warmpath/core/internal';
import { z } from 'zod';
import { DIALECT_NAMES } from '../dialects/dialects.js';
import { collections } from './schema-collections.js';
import { recognise, session } from './schema-conversations.js';
import { identifiesTenants, isLoopback, server } from './schema-server.js';
import { count, milliseconds } from './schema-values.js';

/** More ranks than one engine has. */
const MAX_RANKS = 64;
const TCP_PORT = /^tcp:\/\/.+:(\d{1,5})$/;

const zmqEndpoint = (example: string) =>
  z.string().regex(/^(tcp|ipc):\/\/./, { error: `must be a ZeroMQ endpoint such as ${example}` });

const kvEvents = z
  .strictObject({
    endpoint: zmqEndpoint('tcp://127.0.0.1:5557').describe('Where the engine publishes its KV events.'),
    replayEndpoint: zmqEndpoint('tcp://127.0.0.1:5558')
      .optional()
      .describe(
        'Where it can be asked for events that were missed. Without it, one missed event ends exact knowledge.',
      ),
    ranks: count(MAX_RANKS)
      .default(1)
      .describe(
        'Data-parallel ranks of the engine (`--data-parallel-size` of vLLM, `--dp-size` of SGLang). Each has a cache of its own and publishes on the port behind that of the one before; for the gateway it is an engine of its own, `<name>-rank-<number>`, to which `x-data-parallel-rank` leads.',
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
      "Base URL of the engine's OpenAI API, with or without `/v1` at its end. Several engines are listed under `engines`, and share everything else that stands here.",
    ),
  dialect: z
    .enum(['auto', ...DIALECT_NAMES])
    .default('auto')
    .describe(
      'What kind of engine it is: how it caches, and what it reports. `auto` goes by the address of a hosted API, and by what the engine says when `warmpath serve` or `up` looks for it; behind a proxy, say it.',
    ),
  apiKey: z
    .string()
    .min(1)
    .optional()
    .describe(
      "Sent to the engine in place of the client's own key, as `Authorization: Bearer …`, and to Anthropic's API as `x-api-key`. Best taken from the environment.",
    ),
  cacheSaltKey: z
    .string()
    .min(16)
    .optional()
    .describe(
      "Secret of 16 characters or more from which every tenant's `cache_salt` is derived: tenants then share nothing in the cache of a vLLM, SGLang or embedded engine. Best taken from the environment, the same for all gateways of an engine. None is sent if left out, as hosted APIs need it, which refuse unknown fields.",
    ),
  maxConcurrent: count(65_536)
    .default(1_024)
    .describe(
      'Prompts that the engine gets at once, at most; the others wait in the queue, where `foresight` sees them. An engine that reports how many prompts wait inside it gets fewer.',
    ),
  kvEvents: kvEvents
    .optional()
    .describe(
      'KV events of the engine (vLLM, SGLang, TensorRT-LLM, the embedded engine), over ZeroMQ: what it holds is then known, not guessed. The engine must answer `POST /tokenize`; needs `npm install zeromq@6`.',
    ),
  timeoutMs: milliseconds()
    .max(14_400_000)
    .default(300_000)
    .describe(
      'Milliseconds until the response headers: queueing and prefill in the engine. Two chunks of the body may be two fifths of it apart. A whole exchange may take six times as long.',
    ),
});

/** More than one process can keep busy. */
const MAX_ENGINES = 256;

const engine = z.strictObject({
  name: z
    .string()
    .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/, { error: 'must be letters, digits, `.`, `_` and `-`, at most 63' })
    .describe(
      'What metrics, logs and answers call it. It stays the same engine for the gateway as long as its name does.',
    ),
  url: engineUrl().describe('Base URL of its OpenAI API.'),
  apiKey: z.string().min(1).optional().describe('Its key, in place of `upstream.apiKey`.'),
  weight: z
    .number()
    .positive()
    .max(1_000)
    .default(1)
    .describe('How fast it prefills beside the others: one of weight 2 takes twice the tokens.'),
  models: z
    .array(z.string().min(1).max(256))
    .min(1)
    .max(1_024)
    .optional()
    .describe('Names of the models that it serves; it gets no request for another one. Any model if left out.'),
  kvEvents: kvEvents.optional().describe('Its KV events, as `upstream.kvEvents` is for a single engine.'),
});

const arrange = z.strictObject({
  policy: z.enum(POLICY_NAMES).default(DEFAULT_POLICY).describe('Ordering policy where a request names none.'),
  maxShift: z
    .int()
    .min(0)
    .optional()
    .describe(
      'Places a document may move from its retrieval rank where a request does not say; any number if left out.',
    ),
  shiftPrice: z
    .number()
    .min(0)
    .max(1_000_000_000)
    .default(0)
    .describe(
      'Tokens that each place costs by which a document moves, where a request does not say: documents move only where that saves more. `warmpath lab eval --shift-prices` finds the price that keeps your answers.',
    ),
  hints: z.boolean().default(true).describe('State the retrieval order in the prompt when the order changed.'),
  template: z.enum(TEMPLATE_NAMES).default('xml').describe('How one document is written.'),
  layout: z.enum(LAYOUT_NAMES).default('question').describe('Where the documents stand in a chat prompt.'),
});

const limits = z.strictObject({
  memoryBytes: count(1_099_511_627_776)
    .min(16_777_216)
    .default(268_435_456)
    .describe(
      'Bytes that all together may take that clients make the gateway keep: bodies, histories, conversations, passages, records. Divided by fixed shares; what does not fit is forgotten or refused, first of the tenant that holds most.',
    ),
});

const queue = z.strictObject({
  capacity: count(65_536)
    .default(1_024)
    .describe(
      'Prompts that may wait for the engine. One more gets 429, or displaces the latest prompt of the tenant with most waiting.',
    ),
  maxWaitMs: milliseconds()
    .default(60_000)
    .describe('Milliseconds that a prompt may wait; then it gets 429, or at once where it would wait for longer.'),
  discipline: z
    .enum(SCHEDULER_NAMES)
    .default('fifo')
    .describe(
      "Which of a tenant's prompts goes next: the oldest, or the one that finds most in the cache. Tenants take turns.",
    ),
});

const prewarm = z.strictObject({
  tokensPerMinute: z
    .int()
    .min(0)
    .max(100_000_000)
    .default(0)
    .describe(
      'Tokens of likely extensions of served prompts that may be prefilled in a minute while the engine is idle; 0 for none. For engines of your own: it computes. 20,000 is a good start.',
    ),
});

const explain = z.strictObject({
  prompts: z
    .enum(['off', 'all'])
    .default('off')
    .describe('Whether prompts are compared with earlier ones, to name why a prefix broke. Reads every prompt.'),
});

const dashboard = z.strictObject({
  names: z
    .boolean()
    .default(false)
    .describe(
      'Show ids of documents and names of tenants and collections on the dashboard (`/ui`), not short hashes. Texts are never shown.',
    ),
});

const admin = z.strictObject({
  socket: z
    .string()
    .min(1)
    .max(80)
    .optional()
    .describe(
      'Path of a Unix socket for the operator (`warmpath sessions`), which only the user of the process can open. None if left out.',
    ),
});

const log = z.strictObject({
  level: z
    .enum(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'])
    .default('info')
    .describe('Least severe level that is logged. Never logged at any level: bodies, prompts, keys.'),
});

/**
 * The one schema of the gateway's configuration: validation, defaults and documentation come from it. Every key is
 * read by the gateway; an unknown key is an error.
 */
export const gatewayConfigSchema = z
  .strictObject({
    server: server.prefault({}).describe('The HTTP server that clients talk to.'),
    upstream: upstream.prefault({}).describe('The engine behind the gateway, or what holds for each of several.'),
    engines: z
      .array(engine)
      .min(1)
      .max(MAX_ENGINES)
      .optional()
      .describe('Several engines, in place of `upstream.url`.'),
    passthrough: z
      .array(z.string().regex(/^\/v1\/[a-z0-9._/-]+$/, { error: 'must be a path such as `/v1/files`, in lower case' }))
      .max(256)
      .default([])
      .describe(
        "Paths of the engine, each with all below it, that are passed through although tenants share the engine's account: what one tenant leaves there, such as files, the others can read and delete. Without it, only endpoints that keep nothing pass.",
      ),
    arrange: arrange.prefault({}).describe('How documents are ordered and written.'),
    session: session.prefault({}).describe('What is remembered of conversations.'),
    recognise: recognise.prefault({}).describe('Documents that stand in prompts already.'),
    limits: limits.prefault({}).describe('Bounds on requests and on state.'),
    queue: queue.prefault({}).describe('Prompts that wait until the engine has room.'),
    prewarm: prewarm.prefault({}).describe('Prefill ahead while the engine is idle.'),
    explain: explain.prefault({}).describe('What can be asked about requests just served.'),
    dashboard: dashboard.prefault({}).describe('The page at `/ui`.'),
    collections: collections
      .optional()
      .describe('Collections of documents that answers are made from. None if left out; needs `@warmpath/retrieval`.'),
    admin: admin.prefault({}).describe('What only the operator may do.'),
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
