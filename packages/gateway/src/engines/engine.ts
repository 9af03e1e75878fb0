import { WarmpathError } from '@warmpath/core';
import type { FastifyRequest } from 'fastify';
import type { EngineSettings, GatewayConfig, KvEventSettings } from '../config/schema.js';
import { type CacheSize, type EventSource, reachableSource } from '../dialects/cache-facts.js';
import {
  beliefOf,
  configuredDialect,
  type Dialect,
  withBlocks,
  withCheckpoints,
  withReuse,
  withSlots,
} from '../dialects/dialects.js';
import {
  engineCredentials,
  forwardsClientKey,
  type HeaderOverrides,
  HOPS_HEADER,
  RESPONSE_HEADERS,
  requestHeaders,
  translatedHeaders,
} from '../intake/headers.js';
import type { EventLoopBudget } from '../limits/load.js';
import type { Call } from '../shapes/shapes.js';
import { DispatchQueue } from './dispatch-queue.js';
import { type ApiRoute, EngineApis } from './engine-apis.js';
import { EngineHealth, EngineWatch, HEALTH_SETTINGS, type HealthSettings } from './engine-health.js';
import { askModels, askText, type EngineReport, probeEngine } from './engine-probe.js';
import type { KvResidency } from './kv-residency.js';
import { Upstream } from './upstream.js';

interface AskedEngine {
  readonly upstream: Upstream;
  readonly dialect: Dialect;
  readonly queue: Pick<DispatchQueue, 'underWay' | 'limit' | 'reported'>;
  headers(): Record<string, string | string[]>;
}

/** Milliseconds between two requests for metrics, and after a failed one. */
const ASK_INTERVAL_MS = 1_000;
const UNANSWERED_INTERVAL_MS = 60_000;
/** Bytes of an engine's metrics that are read, at most. */
const MAX_METRICS_BYTES = 4_194_304;
/** Prompts under way from which on the metrics are read. Fewer prompts do not wait for each other. */
const MIN_ASK_PROMPTS = 2;

/**
 * Reads how many prompts wait inside an engine, where its dialect names a metric: once a second while the engine has
 * prompts. After an answer without the metric, it waits a minute and the limit is `upstream.maxConcurrent` again.
 */
export class QueueReports {
  readonly #engine: AskedEngine;
  readonly #now: () => number;
  readonly #timer: NodeJS.Timeout;
  #isAsking = false;
  #notBefore = Number.NEGATIVE_INFINITY;

  /** @param now The monotonic clock, in milliseconds. */
  constructor(engine: AskedEngine, now: () => number) {
    this.#engine = engine;
    this.#now = now;
    this.#timer = setInterval(() => void this.ask(), ASK_INTERVAL_MS);
    this.#timer.unref();
  }

  close(): void {
    clearInterval(this.#timer);
  }

  /** Reads the metrics now, unless the engine is idle or a read is under way. Never rejects. */
  async ask(): Promise<void> {
    const { upstream, queue, dialect } = this.#engine;
    const metric = dialect.waiting;
    if (metric === undefined || queue.underWay < Math.min(MIN_ASK_PROMPTS, queue.limit)) return;
    if (this.#isAsking || this.#now() < this.#notBefore) return;
    this.#isAsking = true;
    const headers = { ...this.#engine.headers(), 'accept-encoding': 'identity' };
    const bounds = { totalMs: upstream.connectMs, limitBytes: MAX_METRICS_BYTES };
    const answer = await askText(upstream, { path: '/metrics', headers }, bounds);
    this.#isAsking = false;
    const waiting = 'code' in answer || answer.status !== 200 ? undefined : sumOfMetric(answer.text, metric);
    if (waiting === undefined) this.#notBefore = this.#now() + UNANSWERED_INTERVAL_MS;
    queue.reported(waiting);
  }
}

/** The sum of a metric's samples in Prometheus text, over all labels; `undefined` where there is none. O(text). */
export function sumOfMetric(text: string, name: string): number | undefined {
  let sum: number | undefined;
  for (let at = text.indexOf(name); at >= 0; at = text.indexOf(name, at + name.length)) {
    if (at > 0 && text[at - 1] !== '\n') continue;
    const end = text.indexOf('\n', at);
    const line = text.slice(at + name.length, end < 0 ? text.length : end);
    // A label's value may hold a brace. A timestamp may follow the value.
    const value = /^(?:\{.*\})?\s+(\S+)/.exec(line)?.[1];
    if (value === undefined || !Number.isFinite(Number(value))) continue;
    sum = (sum ?? 0) + Number(value);
  }
  return sum;
}

/** A change of an engine, for the operator's log. */
export interface EngineChange {
  readonly kind:
    | 'added'
    | 'removed'
    | 'changed'
    | 'draining'
    | 'resumed'
    | 'ejected'
    | 'up'
    | 'events-exact'
    | 'events-lost'
    | 'events-unreadable'
    | 'events-unavailable';
  readonly reason?: string;
}

/** Parts that all engines of a gateway share. */
export interface EngineParts {
  readonly config: GatewayConfig;
  readonly health?: HealthSettings | undefined;
  /** How requests of Messages and Responses reach the engine. The engine is asked if left out. */
  readonly apiRoute?: ApiRoute | undefined;
  /** Name of this gateway in `x-warmpath-via`. */
  readonly hopName: string;
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
  readonly eventLoopBudget: EventLoopBudget;
  readonly waited: (ms: number) => void;
  readonly changed: (engine: Engine, change: EngineChange) => void;
  /** Whether another engine can take over the work of this one. */
  readonly hasReplacement: (engine: Engine) => boolean;
  /** Called when a drained engine has answered all its requests. */
  readonly drained: (engine: Engine) => void;
  /** Called when the engine turns out to cache in another way than was assumed. */
  readonly cachesOtherwise: (engine: Engine) => void;
}

/** Different counts of cached tokens that show the size of a block, where the engine does not state it. */
const COUNTS_FOR_BLOCK_SIZE = 8;

function greatestCommonDivisor(one: number, other: number): number {
  return other === 0 ? one : greatestCommonDivisor(other, one % other);
}

/** Requests that an engine got, by outcome. */
export interface EngineRequests {
  served: number;
  failed: number;
  /** Failed requests that another engine got before the client received a byte. */
  retriedElsewhere: number;
}

/** vLLM and SGLang send a request with this header to one of their data-parallel ranks. */
const RANK_HEADER = 'x-data-parallel-rank';

/**
 * One engine behind the gateway: its HTTP client, queue, health, APIs and KV events. `ServedHistories` holds what it
 * was served, under its number.
 */
export class Engine {
  /** Never used again for another engine. */
  readonly number: number;
  readonly name: string;
  readonly upstream: Upstream;
  readonly queue: DispatchQueue;
  readonly health: EngineHealth;
  readonly apis: EngineApis;
  /** Headers of every request to it: keys that are added or removed (`engineCredentials`), the hop's name, the rank. */
  readonly credentials: HeaderOverrides;
  /** Whether clients' own keys are forwarded to it. */
  readonly forwardsClientKey: boolean;
  readonly requests: EngineRequests = { served: 0, failed: 0, retriedElsewhere: 0 };
  /** Estimated prompt tokens that it has got and not computed yet. */
  pendingTokens = 0;
  /** Prompts that it has got and not begun to answer. */
  prefilling = 0;
  /** Whether it takes `stream_options.include_usage`, as far as it was tried. */
  streamUsage: 'untried' | 'taken' | 'refused' = 'untried';
  /** Whether it gets no new requests: the operator drained it, or the configuration no longer lists it. */
  isDraining = false;
  isRemoved = false;
  #settings: EngineSettings;
  #dialect: Dialect;
  #models: ReadonlySet<string> | undefined;
  #cacheSize: CacheSize | undefined;
  /** Tokens of a block, by its metrics or events. */
  #blockTokens: number | undefined;
  /** The first different counts of cached tokens, and the greatest common divisor of all. */
  readonly #counts = new Set<number>();
  #divisor = 0;
  #kvResidency: KvResidency | undefined;
  /** Where `#kvResidency` is read. */
  #eventSource: string | undefined;
  /** Whether its events were ever connected. */
  #hasEvents = false;
  #isClosed = false;
  #watch: EngineWatch | undefined;
  readonly #queueReports: QueueReports;
  readonly #parts: EngineParts;

  private constructor(number: number, settings: EngineSettings, parts: EngineParts) {
    const { config, now, health = HEALTH_SETTINGS } = parts;
    this.number = number;
    this.name = settings.name;
    this.#settings = settings;
    this.#parts = parts;
    this.#models = settings.models && new Set(settings.models);
    this.#dialect = configuredDialect({ dialect: config.upstream.dialect, url: settings.url });
    this.health = new EngineHealth(health, {
      now,
      hasReplacement: () => parts.hasReplacement(this),
      changed: (kind, reason) => parts.changed(this, { kind, reason }),
    });
    this.upstream = new Upstream(settings.url, config.upstream, {
      ended: (end) => {
        this.requests[end.kind]++;
        this.health.ended(end);
      },
      isQuiet: () => {
        if (this.isDraining) parts.drained(this);
      },
    });
    this.queue = new DispatchQueue(config.upstream.maxConcurrent, config.queue, {
      now,
      eventLoopBudget: parts.eventLoopBudget,
      waited: parts.waited,
      needsLeader: () => this.#dialect.needsLeader,
    });
    this.#queueReports = new QueueReports(this, now);
    const rank = settings.kvEvents?.rank;
    this.credentials = {
      ...engineCredentials(settings, config, this.#dialect.keyHeader ?? 'authorization'),
      [HOPS_HEADER]: parts.hopName,
      ...(rank !== undefined && { [RANK_HEADER]: String(rank) }),
    };
    this.forwardsClientKey = forwardsClientKey(settings, config);
    this.apis = new EngineApis(this, parts.apiRoute, now);
  }

  /** @throws WarmpathError `WARMPATH_CONFIG_INVALID`: see `ZmqSubscriber.open`. */
  static async open(number: number, settings: EngineSettings, parts: EngineParts): Promise<Engine> {
    const engine = new Engine(number, settings, parts);
    const { kvEvents } = settings;
    if (kvEvents === undefined) return engine;
    try {
      engine.#kvResidency = await engine.#openEvents(kvEvents);
    } catch (error) {
      await engine.close();
      throw error;
    }
    return engine;
  }

  async #openEvents(source: EventSource & Partial<KvEventSettings>): Promise<KvResidency> {
    const { now, changed } = this.#parts;
    // Loaded on demand: most engines publish no events.
    const { KvResidency } = await import('./kv-residency.js');
    return KvResidency.open(source, {
      upstream: this.upstream,
      now,
      changed: (state, reason) => changed(this, { kind: `events-${state}`, ...(reason !== undefined && { reason }) }),
      blockSize: (tokens) => this.#learnBlockSize(tokens),
      connection: (state) => this.#eventConnection(state),
    });
  }

  /**
   * Follows the events that the engine says it publishes, unless the configuration says where they are. They count once
   * they are connected. Never rejects.
   */
  async #followFoundEvents(sources: readonly EventSource[]): Promise<void> {
    if (this.#settings.kvEvents !== undefined) return;
    const [first] = sources;
    const source = first && sources.length === 1 ? reachableSource(first, this.url) : undefined;
    const found = JSON.stringify([sources.length, source]);
    if (found === this.#eventSource) return;
    this.#eventSource = found;
    this.#hasEvents = false;
    const earlier = this.#kvResidency;
    this.#kvResidency = undefined;
    await earlier?.close();
    try {
      if (sources.length > 1) throw new Error('It has several data-parallel ranks: set `upstream.kvEvents`.');
      const residency = source && (await this.#openEvents(source));
      if (this.#isClosed || this.#eventSource !== found) await residency?.close();
      else this.#kvResidency = residency;
      this.#tellCacheSize();
    } catch (error) {
      this.changed({ kind: 'events-unavailable', reason: error instanceof Error ? error.message : String(error) });
    }
  }

  #eventConnection(state: 'up' | 'broken'): void {
    const isFirst = state === 'up' && !this.#hasEvents;
    if (!isFirst) {
      // It may have restarted with other settings.
      this.watchAgain();
      return;
    }
    this.#hasEvents = true;
    if (this.#settings.kvEvents === undefined) this.#parts.cachesOtherwise(this);
  }

  /** Its address, without credentials. */
  get url(): string {
    return this.upstream.url;
  }

  /** The kind of engine, as configured or as found. */
  get dialect(): Dialect {
    return this.#dialect;
  }

  /** Tokens that its cache holds; `undefined` if the engine does not report it. */
  get capacityTokens(): number | undefined {
    return this.#cacheSize && this.#cacheSize.blocks * this.#cacheSize.blockTokens;
  }

  get weight(): number {
    return this.#settings.weight;
  }

  /** Models that it is configured to serve; `undefined`: all. */
  get models(): ReadonlySet<string> | undefined {
    return this.#models;
  }

  /** Only for engines whose KV events are configured, or were found and connected. */
  get kvResidency(): KvResidency | undefined {
    return this.#hasEvents || this.#settings.kvEvents !== undefined ? this.#kvResidency : undefined;
  }

  /** Whether it serves a model. True for a request that names none. */
  serves(model: string): boolean {
    return this.#models === undefined || model === '' || this.#models.has(model);
  }

  /** Whether the configuration still describes this engine. Weight and models may have changed. */
  isOf({ name, url, apiKey, kvEvents }: EngineSettings): boolean {
    const own = this.#settings;
    const isSame = name === own.name && url === own.url && apiKey === own.apiKey;
    return isSame && JSON.stringify(kvEvents) === JSON.stringify(own.kvEvents);
  }

  /** Takes over settings that may change while the engine is in use. @returns whether any changed */
  update(settings: EngineSettings): boolean {
    const isChanged = JSON.stringify(settings) !== JSON.stringify(this.#settings);
    this.#settings = settings;
    this.#models = settings.models && new Set(settings.models);
    return isChanged;
  }

  /** Headers of the gateway's own requests. */
  headers(): Record<string, string | string[]> {
    return requestHeaders({}, this.credentials);
  }

  /** Finds out which engine is at its address. Never rejects. */
  probe(): Promise<EngineReport> {
    const { upstream, dialect } = this;
    return probeEngine(upstream, { headers: this.headers(), totalMs: upstream.connectMs, dialect });
  }

  /** Requests its list of models, within `connectMs`. @returns the failure. A status below 500 is none. */
  async ping(requestId: string): Promise<WarmpathError | undefined> {
    const headers = requestHeaders({}, this.credentials, { [RESPONSE_HEADERS.requestId]: requestId });
    const answer = await askModels(this.upstream, headers, this.upstream.connectMs);
    if ('code' in answer) return answer;
    return answer.status < 500 ? undefined : unhealthy(answer.status);
  }

  /** Watches its address from now on: until the engine is up, or always with `isChecked`, for the engine's health. */
  watch(report: (report: EngineReport) => void, isChecked: boolean): void {
    const { checkMs } = this.#parts.health ?? HEALTH_SETTINGS;
    const reported = (report: EngineReport) => {
      this.#learnDialect(report);
      if (isChecked)
        this.health.checked(report.problem !== undefined && report.state !== 'wants-key' ? report.state : undefined);
    };
    this.#watch = new EngineWatch(() => this.probe(), {
      changed: report,
      reported,
      againMs: () => (isChecked ? checkMs : undefined),
    });
    this.#watch.start();
  }

  /** Keeps what is configured or known by the address, and what the engine does not report. */
  #learnDialect({ dialect, facts }: EngineReport): void {
    const { slots, cacheSize, isReused, resumesAtCheckpoints, eventSources } = facts;
    const { upstream } = this.#parts.config;
    const isOpen = upstream.dialect === 'auto' && this.#dialect.name === 'generic';
    let found = isOpen && dialect !== undefined ? dialect : this.#dialect;
    if (resumesAtCheckpoints !== undefined) found = withCheckpoints(found, resumesAtCheckpoints);
    if (isReused !== undefined) found = withReuse(found, isReused);
    if (slots !== undefined) found = withSlots(found, slots);
    if (cacheSize !== undefined) {
      this.#cacheSize = cacheSize;
      this.#blockTokens = cacheSize.blockTokens;
      this.#tellCacheSize();
    }
    if (this.#blockTokens !== undefined) found = withBlocks(found, this.#blockTokens);
    const [before, now] = [this.#dialect, found].map(({ reuse }) => JSON.stringify(beliefOf(reuse)));
    this.#dialect = found;
    if (now !== before) this.#parts.cachesOtherwise(this);
    if (eventSources !== undefined) void this.#followFoundEvents(eventSources);
  }

  #tellCacheSize(): void {
    if (this.#cacheSize !== undefined) this.#kvResidency?.events.setEngineBlocks(this.#cacheSize.blocks);
  }

  /** The engine has reported cached tokens of a prompt: a multiple of its block size. */
  counted(cachedTokens: number): void {
    if (this.#blockTokens !== undefined || cachedTokens === 0) return;
    this.#divisor = greatestCommonDivisor(this.#divisor, cachedTokens);
    if (this.#counts.size < COUNTS_FOR_BLOCK_SIZE) this.#counts.add(cachedTokens);
    else this.#dialect = withBlocks(this.#dialect, this.#divisor);
  }

  #learnBlockSize(tokens: number): void {
    this.#blockTokens = tokens;
    this.#dialect = withBlocks(this.#dialect, tokens);
  }

  /** Watches for it again, after a request could not reach it. */
  watchAgain(): void {
    this.#watch?.start();
  }

  /** Aborts all exchanges. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#watch?.close();
    this.#queueReports.close();
    await this.#kvResidency?.close();
    await this.upstream.destroy();
  }

  /** Stops watching. Requests under way go on. */
  rest(): void {
    this.#watch?.close();
  }

  /** Whether it has requests to answer. */
  get isQuiet(): boolean {
    return this.upstream.exchanges === 0 && this.queue.depth === 0;
  }

  /** A change as the log writes it. */
  changed(change: EngineChange): void {
    this.#parts.changed(this, change);
  }
}

/** The error for an engine that answers with this status. */
export function unhealthy(status: number): WarmpathError {
  return new WarmpathError('WARMPATH_UPSTREAM_UNREACHABLE', { detail: `The engine answers with status ${status}.` });
}

/** A client's headers for an engine, with the engine's credentials and `overrides`. */
export function engineHeaders(
  { credentials }: Engine,
  { headers, report }: Pick<FastifyRequest, 'headers' | 'report'>,
  ...overrides: readonly (HeaderOverrides | undefined)[]
): Record<string, string | string[]> {
  const outgoing = requestHeaders(headers, credentials, ...overrides);
  outgoing[RESPONSE_HEADERS.requestId] = report.requestId;
  return outgoing;
}

/** For answers that the gateway reads: it cannot read compressed ones. */
export const IDENTITY = { 'accept-encoding': 'identity' };

/** Headers of a prompt that replace the client's. */
export function promptHeaders(engine: Engine, { request, translation }: Call): HeaderOverrides | undefined {
  return translation && translatedHeaders(request.headers, engine.forwardsClientKey);
}
