import { isObject } from '../json/json-scanner.js';

/** Size of a prefix cache. */
export interface CacheSize {
  readonly blocks: number;
  readonly blockTokens: number;
}

/** Where one data-parallel rank publishes its KV events, as the engine writes it. */
export interface EventSource {
  readonly endpoint: string;
  readonly replayEndpoint: string | undefined;
}

/** What an engine says about its cache. Left out: what it does not say. */
export interface CacheFacts {
  readonly slots?: number;
  readonly cacheSize?: CacheSize;
  /** Whether it reuses anything of earlier prompts. */
  readonly isReused?: boolean;
  /** Whether it goes on only where it has saved its state. */
  readonly resumesAtCheckpoints?: boolean;
  /** One per data-parallel rank; empty where it publishes no events. */
  readonly eventSources?: readonly EventSource[];
}

/** Where an engine describes its cache. */
export interface FactSource {
  /** The first path that answers counts. */
  readonly paths: readonly string[];
  readonly read: (answer: string) => CacheFacts;
}

/** Slots that a llama-server may have (`LLAMA_MAX_SEQ`). */
const MAX_SLOTS = 256;
/** Data-parallel ranks that are read, at most. */
const MAX_SOURCES = 64;

/**
 * Asks an engine for all that its kind says about its cache.
 *
 * @param get answers the text at a path (`GET`); `undefined` if there is none
 */
export async function readCacheFacts(
  { facts = [] }: { readonly facts?: readonly FactSource[] },
  get: (path: string) => Promise<string | undefined>,
): Promise<CacheFacts> {
  let found: CacheFacts = {};
  for (const { paths, read } of facts) {
    for (const path of paths) {
      const answer = await get(path);
      if (answer === undefined) continue;
      found = { ...found, ...read(answer) };
      break;
    }
  }
  return found;
}

/** `GET /metrics` of vLLM: the labels of `vllm:cache_config_info`. */
export function readVllmMetrics(text: string): CacheFacts {
  const labels = /^vllm:cache_config_info\{(.*)\}/m.exec(text)?.[1] ?? '';
  const label = (name: string) => new RegExp(`(?:^|,)${name}="([^"]*)"`).exec(labels)?.[1];
  const caching = label('enable_prefix_caching');
  return {
    ...cacheSizeOf(label('num_gpu_blocks'), label('block_size')),
    ...(caching !== undefined && { isReused: caching !== 'False' }),
  };
}

/** `GET /kv_event_sources` of vLLM from 0.32 on: the publisher of each data-parallel rank. */
export function readVllmEventSources(text: string): CacheFacts {
  const ranks = parseObject(text);
  if (ranks === undefined) return {};
  const eventSources = Object.values(ranks).flatMap((publisher) => {
    if (!isObject(publisher) || publisher['enable_kv_cache_events'] !== true) return [];
    return sourceOf(publisher);
  });
  return { eventSources: eventSources.slice(0, MAX_SOURCES) };
}

/** `GET /server_info` of SGLang: its options, with defaults filled in. */
export function readSglangInfo(text: string): CacheFacts {
  const info = parseObject(text);
  if (info === undefined) return {};
  const { page_size: page, max_total_num_tokens: tokens, disable_radix_cache: isOff } = info;
  return {
    ...(typeof tokens === 'number' && typeof page === 'number' && cacheSizeOf(Math.floor(tokens / page), page)),
    ...(typeof isOff === 'boolean' && { isReused: !isOff }),
  };
}

/** `GET /props` of llama-server. */
export function readSlots(text: string): CacheFacts {
  const slots = parseObject(text)?.['total_slots'];
  return isCount(slots) && slots <= MAX_SLOTS ? { slots } : {};
}

/** `GET /kv` of the embedded engine. */
export function readReuse(text: string): CacheFacts {
  const reuse = parseObject(text)?.['reuse'];
  if (typeof reuse !== 'string') return {};
  return { isReused: reuse !== 'none', resumesAtCheckpoints: reuse === 'checkpoint' };
}

/**
 * The endpoints of a publisher, for a subscriber that reaches the engine at this URL; `undefined` if they are on
 * another host. An engine does not choose where the gateway connects.
 */
export function reachableSource({ endpoint, replayEndpoint }: EventSource, url: string): EventSource | undefined {
  const { hostname } = new URL(url);
  const reached = reachable(endpoint, hostname);
  if (reached === undefined) return undefined;
  return { endpoint: reached, replayEndpoint: replayEndpoint && reachable(replayEndpoint, hostname) };
}

/** Addresses at which a publisher listens on all interfaces. */
const ALL_INTERFACES = /^(?:\*|0\.0\.0\.0|::|\[::\])$/;

function reachable(endpoint: string, hostname: string): string | undefined {
  const [, host, port] = /^tcp:\/\/(.+):(\d{1,5})$/.exec(endpoint) ?? [];
  if (host === undefined || Number(port) === 0) return undefined;
  return host === hostname || ALL_INTERFACES.test(host) ? `tcp://${hostname}:${port}` : undefined;
}

function sourceOf({ endpoint, replay_endpoint: replay }: Readonly<Record<string, unknown>>): EventSource[] {
  if (typeof endpoint !== 'string') return [];
  return [{ endpoint, replayEndpoint: typeof replay === 'string' ? replay : undefined }];
}

function cacheSizeOf(blocks: unknown, blockTokens: unknown): Pick<CacheFacts, 'cacheSize'> {
  const [count, tokens] = [Number(blocks), Number(blockTokens)];
  return isCount(count) && isCount(tokens) ? { cacheSize: { blocks: count, blockTokens: tokens } } : {};
}

function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value > 0;
}

function parseObject(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
