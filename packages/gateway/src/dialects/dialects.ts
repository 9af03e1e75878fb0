import type { PromptSlotsOptions } from '@warmpath/core/internal';
import type { ApiName } from '../apis/prompt-view.js';
import {
  type FactSource,
  readReuse,
  readSglangInfo,
  readSlots,
  readVllmEventSources,
  readVllmMetrics,
} from './cache-facts.js';

/** What an engine reuses of a prompt, and how long it keeps it. */
export type ReuseModel =
  /** Every prompt is computed as a whole: the cache is off, or the model allows none. */
  | { readonly kind: 'none' }
  /** The longest common prefix in whole blocks of `unit` tokens (1: any token), least recently used first to go. */
  | { readonly kind: 'prefix'; readonly unit: number }
  /** As `prefix`, up to the last place where the engine saved its state: the end of a document, message or prompt. */
  | { readonly kind: 'checkpoint' }
  /** One whole prompt a slot, and saved ones that serve one request each. */
  | { readonly kind: 'slots'; readonly slots: PromptSlotsOptions }
  /** The same as `prefix` from `least` tokens on, on one of many machines: a miss may only mean another one. */
  | { readonly kind: 'hosted'; readonly unit: number; readonly least: number; readonly keptMs: number }
  /** Up to marks in the prompt, of which there are at most `marks`. */
  | { readonly kind: 'breakpoints'; readonly marks: number; readonly least: number; readonly keptMs: number };

/** Explicit cache breakpoints: how requests say up to where a prompt is cached. */
export interface BreakpointRule {
  readonly apis: readonly ApiName[];
  /** Models with breakpoints. Default: all. */
  readonly models?: RegExp;
  /** The member of a content part that sets a breakpoint, and the same with its value as JSON. */
  readonly key: string;
  readonly member: string;
  /** Breakpoints in one request, at most, the client's own included. */
  readonly most: number;
  /** Estimated tokens below which no prompt is cached. */
  readonly least: number;
  /** The same for models that differ. */
  readonly leastByModel?: readonly { readonly models: RegExp; readonly least: number }[];
  /** The member of a request whose `mode` is `explicit` where the API sets none by itself; else it sets one. */
  readonly implicit?: string;
}

/** What one kind of engine can do, and how it reports it. */
export interface Dialect {
  readonly name: DialectName;
  /** Its usual name. */
  readonly title: string;
  /** `owned_by` of its models. Only for local engines, because hosted proxies write anything. */
  readonly owners: readonly string[];
  /** Hosts of a hosted API. */
  readonly hosts: readonly string[];
  readonly reuse: ReuseModel;
  /** The header with the API's key. Default: `authorization`. */
  readonly keyHeader?: 'x-api-key';
  /** The field of `usage` with cached tokens. */
  readonly cachedTokens: string;
  /** Whether it leaves this field out at 0. */
  readonly leavesOutZero?: true;
  /**
   * Whether streams have counts where `stream_options.include_usage` asks for them: in an event of their own, and in
   * some APIs as `"usage":null` in all others. Left out where streams have them anyway, or where the field is refused.
   */
  readonly streamUsage?: 'event' | 'event-and-nulls';
  /** The field of a request that separates tenants in the cache. */
  readonly salt?: 'cache_salt';
  /** Which `priority` goes first, if requests may have one. */
  readonly priority?: 'lower' | 'higher';
  /** Path that tokenizes a chat without computing it; needed to follow KV events. */
  readonly tokenizer?: string;
  /** Name of its metric of requests that wait inside the engine (`GET /metrics`). */
  readonly waiting?: string;
  /** Where it describes its cache. */
  readonly facts?: readonly FactSource[];
  /** Whether it reuses single tokens, whatever the blocks of its KV events. */
  readonly reusesTokens?: true;
  readonly breakpoints?: BreakpointRule;
  /** Milliseconds for models that keep prompts for another time than `reuse` says. */
  readonly keptByModel?: readonly { readonly models: RegExp; readonly keptMs: number }[];
  /** Whether concurrent requests each compute a shared cold prefix, unless one of them goes first. */
  readonly needsLeader: boolean;
  /** Engine options to switch on: for the report of cached tokens, and for the cache itself. */
  readonly advice: { readonly report?: string; readonly caching?: string; readonly tuning?: string };
}

export const DIALECT_NAMES = [
  'vllm',
  'sglang',
  'llama-server',
  'tensorrt-llm',
  'embedded',
  'openai',
  'anthropic',
  'gemini',
  'deepseek',
  'mistral',
  'groq',
  'xai',
  'generic',
] as const;

export type DialectName = (typeof DIALECT_NAMES)[number];

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DETAILS = 'prompt_tokens_details.cached_tokens';

type Row = Omit<Dialect, 'name'>;

/** They keep prompts for 30 minutes, and find them again at breakpoints alone. */
const GPT_FROM_5_6 = /(?:^|\/)gpt-(?:5\.(?:[6-9]|\d{2})|[6-9]|\d{2})(?!\d)/;

const TABLE: Readonly<Record<DialectName, Row>> = {
  vllm: {
    title: 'vLLM',
    owners: ['vllm'],
    hosts: [],
    reuse: { kind: 'prefix', unit: 16 },
    cachedTokens: DETAILS,
    leavesOutZero: true,
    streamUsage: 'event',
    salt: 'cache_salt',
    priority: 'lower',
    tokenizer: '/tokenize',
    waiting: 'vllm:num_requests_waiting',
    facts: [
      { paths: ['/metrics'], read: readVllmMetrics },
      { paths: ['/kv_event_sources'], read: readVllmEventSources },
    ],
    needsLeader: false,
    advice: {
      report: 'start vLLM with --enable-prompt-tokens-details',
      caching: 'start vLLM with --enable-prefix-caching (and without --no-enable-prefix-caching)',
      tuning: 'with --kv-events-config, what it holds is known and not guessed',
    },
  },
  sglang: {
    title: 'SGLang',
    owners: ['sglang'],
    hosts: [],
    reuse: { kind: 'prefix', unit: 1 },
    cachedTokens: DETAILS,
    leavesOutZero: true,
    streamUsage: 'event',
    salt: 'cache_salt',
    priority: 'higher',
    tokenizer: '/tokenize',
    waiting: 'sglang:num_queue_reqs',
    // Versions before 2026 have the second path only.
    facts: [{ paths: ['/server_info', '/get_server_info'], read: readSglangInfo }],
    // In-batch prefix sharing runs only under cache-aware policies, and fcfs is the default.
    needsLeader: true,
    advice: {
      report: 'start SGLang with --enable-cache-report',
      caching: 'start SGLang without --disable-radix-cache',
      tuning: 'start SGLang with --schedule-policy lpm, so that requests with the same start are computed once',
    },
  },
  'llama-server': {
    title: 'llama-server',
    owners: ['llamacpp', 'llama.cpp'],
    hosts: [],
    reuse: { kind: 'slots', slots: {} },
    cachedTokens: DETAILS,
    waiting: 'llamacpp:requests_deferred',
    facts: [{ paths: ['/props'], read: readSlots }],
    // A slot serves one request until its answer ends: waiting for its first token gains nothing.
    needsLeader: false,
    advice: {
      caching: 'send requests with "cache_prompt": true, and give the server enough slots (-np)',
      tuning: 'give saved prompts room (--cache-ram): each serves one request, and the oldest goes first',
    },
  },
  'tensorrt-llm': {
    title: 'TensorRT-LLM',
    owners: ['tensorrt_llm'],
    hosts: [],
    reuse: { kind: 'prefix', unit: 32 },
    cachedTokens: DETAILS,
    streamUsage: 'event',
    salt: 'cache_salt',
    needsLeader: false,
    // Its KV events name tokens, and nothing answers which tokens a prompt becomes: they cannot be followed.
    advice: { caching: 'set enable_block_reuse: true in kv_cache_config' },
  },
  embedded: {
    title: 'the embedded engine',
    owners: ['warmpath'],
    hosts: [],
    reuse: { kind: 'prefix', unit: 1 },
    cachedTokens: DETAILS,
    streamUsage: 'event',
    salt: 'cache_salt',
    priority: 'lower',
    tokenizer: '/tokenize',
    waiting: 'vllm:num_requests_waiting',
    facts: [{ paths: ['/kv?paths=0'], read: readReuse }],
    reusesTokens: true,
    needsLeader: false,
    advice: {},
  },
  openai: {
    title: 'OpenAI',
    owners: [],
    hosts: ['api.openai.com'],
    reuse: { kind: 'hosted', unit: 128, least: 1_024, keptMs: 10 * MINUTE_MS },
    cachedTokens: DETAILS,
    streamUsage: 'event-and-nulls',
    breakpoints: {
      // They also set one by themselves, at the newest message.
      apis: ['chat', 'responses'],
      models: GPT_FROM_5_6,
      key: 'prompt_cache_breakpoint',
      member: '"prompt_cache_breakpoint":{"mode":"explicit"}',
      most: 4,
      least: 1_024,
      implicit: 'prompt_cache_options',
    },
    keptByModel: [{ models: GPT_FROM_5_6, keptMs: 30 * MINUTE_MS }],
    needsLeader: true,
    advice: { tuning: 'send `prompt_cache_key`, so that requests with the same start reach the same machine' },
  },
  anthropic: {
    title: 'Anthropic',
    owners: [],
    hosts: ['api.anthropic.com'],
    keyHeader: 'x-api-key',
    reuse: { kind: 'breakpoints', marks: 4, least: 1_024, keptMs: 5 * MINUTE_MS },
    cachedTokens: 'cache_read_input_tokens',
    breakpoints: {
      apis: ['messages'],
      key: 'cache_control',
      member: '"cache_control":{"type":"ephemeral"}',
      most: 4,
      least: 1_024,
      // As providers list it; of Sonnet 4.6 lists differ, and nothing below 2,048 was seen to be cached
      // (anthropics/anthropic-sdk-python#1194).
      leastByModel: [
        { models: /(?:opus|fable|mythos)-5(?!\d)/, least: 512 },
        { models: /opus-4[-.]7(?!\d)|sonnet-4[-.]6(?!\d)|(?:3|3[-.]5)-haiku|haiku-3(?!\d)/, least: 2_048 },
        { models: /(?:opus-4[-.][56]|haiku-4[-.]5)(?!\d)/, least: 4_096 },
      ],
    },
    needsLeader: true,
    advice: { caching: 'it caches up to marks only: the gateway sets them on `/v1/messages`' },
  },
  gemini: {
    title: 'Gemini',
    owners: [],
    hosts: ['generativelanguage.googleapis.com'],
    reuse: { kind: 'hosted', unit: 1, least: 1_024, keptMs: HOUR_MS },
    cachedTokens: DETAILS,
    leavesOutZero: true,
    streamUsage: 'event',
    needsLeader: false,
    advice: {},
  },
  deepseek: {
    title: 'DeepSeek',
    owners: [],
    hosts: ['api.deepseek.com'],
    // Ends of inputs and answers, and starts that were seen to be shared: a new start is found from its third use on.
    reuse: { kind: 'hosted', unit: 64, least: 64, keptMs: 24 * HOUR_MS },
    cachedTokens: 'prompt_cache_hit_tokens',
    streamUsage: 'event-and-nulls',
    needsLeader: false,
    advice: {},
  },
  mistral: {
    title: 'Mistral',
    owners: [],
    hosts: ['api.mistral.ai'],
    reuse: { kind: 'hosted', unit: 1, least: 1, keptMs: 10 * MINUTE_MS },
    cachedTokens: DETAILS,
    needsLeader: false,
    advice: { caching: 'send `prompt_cache_key`: without it, nothing is cached' },
  },
  groq: {
    title: 'Groq',
    owners: [],
    hosts: ['api.groq.com'],
    reuse: { kind: 'hosted', unit: 1, least: 1, keptMs: 2 * HOUR_MS },
    cachedTokens: DETAILS,
    leavesOutZero: true,
    streamUsage: 'event-and-nulls',
    needsLeader: false,
    advice: {},
  },
  xai: {
    title: 'xAI',
    owners: [],
    hosts: ['api.x.ai'],
    reuse: { kind: 'hosted', unit: 128, least: 128, keptMs: HOUR_MS },
    cachedTokens: DETAILS,
    streamUsage: 'event',
    needsLeader: false,
    advice: { tuning: 'send `x-grok-conv-id`, so that requests with the same start reach the same machine' },
  },
  generic: {
    title: 'an engine of another kind',
    owners: [],
    hosts: [],
    reuse: { kind: 'prefix', unit: 16 },
    cachedTokens: DETAILS,
    streamUsage: 'event',
    needsLeader: false,
    advice: {
      report:
        'see whether the engine can report usage.prompt_tokens_details.cached_tokens; without it Warmpath goes by what it sent',
      caching: "switch on the engine's prefix caching; without it no order of documents saves anything",
    },
  },
};

/** All dialects. */
export const DIALECTS: readonly Dialect[] = DIALECT_NAMES.map((name) => ({ name, ...TABLE[name] }));

export function dialectOf(name: DialectName): Dialect {
  return { name, ...TABLE[name] };
}

/** The configured dialect. For `auto`: the hosted API at this address, else `generic`. */
export function configuredDialect({
  dialect,
  url,
}: {
  readonly dialect: DialectName | 'auto';
  readonly url: string;
}): Dialect {
  if (dialect !== 'auto') return dialectOf(dialect);
  const { hostname } = new URL(url);
  return DIALECTS.find(({ hosts }) => hosts.includes(hostname)) ?? dialectOf('generic');
}

/** The dialect by `owned_by` of an engine's models; `undefined` if unknown. */
export function dialectOfOwner(owner: string | undefined): Dialect | undefined {
  return owner === undefined ? undefined : DIALECTS.find(({ owners }) => owners.includes(owner));
}

/** The dialect of an engine that says whether it reuses anything. */
export function withReuse(dialect: Dialect, isReused: boolean): Dialect {
  if (!isReused) return { ...dialect, reuse: { kind: 'none' } };
  return dialect.reuse.kind === 'none' ? { ...dialect, reuse: TABLE[dialect.name].reuse } : dialect;
}

/** The dialect of an engine that says whether it goes on at checkpoints alone, which depends on its model. */
export function withCheckpoints(dialect: Dialect, areNeeded: boolean): Dialect {
  if (areNeeded) return { ...dialect, reuse: { kind: 'checkpoint' } };
  return dialect.reuse.kind === 'checkpoint' ? { ...dialect, reuse: TABLE[dialect.name].reuse } : dialect;
}

/** The dialect with an engine's reported slots, if its kind has slots. */
export function withSlots(dialect: Dialect, slots: number): Dialect {
  return dialect.reuse.kind === 'slots' ? { ...dialect, reuse: { kind: 'slots', slots: { slots } } } : dialect;
}

/** The dialect with an engine's block size, if its kind reuses whole blocks. */
export function withBlocks(dialect: Dialect, unit: number): Dialect {
  const { reuse, reusesTokens } = dialect;
  return reuse.kind === 'prefix' && !reusesTokens ? { ...dialect, reuse: { kind: 'prefix', unit } } : dialect;
}

/** Tokens below which a model ignores breakpoints. */
export function leastMarked({ least, leastByModel = [] }: BreakpointRule, model: string): number {
  return leastByModel.find(({ models }) => models.test(model))?.least ?? least;
}

/** Engine tokens below which nothing of a prompt is reused. */
export function leastReused({ reuse, breakpoints }: Dialect, model: string): number {
  if (reuse.kind === 'breakpoints') return breakpoints === undefined ? reuse.least : leastMarked(breakpoints, model);
  return reuse.kind === 'hosted' ? reuse.least : 0;
}

/** A mark that asks for an hour, and a request that asks for a day. */
const HOUR_MARK = /"ttl"\s*:\s*"1h"/;
const DAY_RETENTION = /"prompt_cache_retention"\s*:\s*"24h"/;

/**
 * Milliseconds that a hosted API keeps a prompt; `undefined` for engines that keep it until they need the room.
 *
 * @param body Of the request, which may ask for another time.
 */
export function keptMsOf({ reuse, keptByModel = [] }: Dialect, model: string, body?: Buffer): number | undefined {
  if (reuse.kind !== 'hosted' && reuse.kind !== 'breakpoints') return undefined;
  const row = keptByModel.find(({ models }) => models.test(model));
  if (row !== undefined) return row.keptMs;
  const asks = (sign: string, value: RegExp) => body?.includes(sign) === true && value.test(body.toString());
  if (reuse.kind === 'breakpoints') return asks('"ttl"', HOUR_MARK) ? HOUR_MS : reuse.keptMs;
  return asks('"prompt_cache_retention"', DAY_RETENTION) ? 24 * HOUR_MS : reuse.keptMs;
}

/** Reusable tokens of a cached prefix. */
export function reusable(dialect: Dialect, model: string, tokens: number): number {
  if (dialect.reuse.kind === 'none' || tokens < leastReused(dialect, model)) return 0;
  const { reuse } = dialect;
  return reuse.kind === 'prefix' || reuse.kind === 'hosted' ? tokens - (tokens % reuse.unit) : tokens;
}

/** How believed paths go: whether those used least recently go first, after what time, and by which slots. */
export interface ReuseBelief {
  readonly evictsLeastRecent: boolean;
  readonly maxAgeMs: number | undefined;
  readonly slots: PromptSlotsOptions | undefined;
}

/** What residency goes by for a reuse model. */
export function beliefOf(reuse: ReuseModel): ReuseBelief {
  switch (reuse.kind) {
    case 'none':
    case 'prefix':
    case 'checkpoint':
      return { evictsLeastRecent: true, maxAgeMs: undefined, slots: undefined };
    case 'slots':
      return { evictsLeastRecent: false, maxAgeMs: undefined, slots: reuse.slots };
    case 'hosted':
    case 'breakpoints':
      return { evictsLeastRecent: false, maxAgeMs: reuse.keptMs, slots: undefined };
  }
}
