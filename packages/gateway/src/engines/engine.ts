import { WarmpathError } from '@warmpath/core';
import type { ServedRequest } from '@warmpath/core/internal';
import type { FastifyRequest } from 'fastify';
import type { EngineSettings, GatewayConfig } from '../config/schema.js';
import { beliefOf, configuredDialect, type Dialect, withBlocks, withSlots } from '../dialects/dialects.js';
import {
  engineCredentials,
  forwardsClientKey,
  type HeaderOverrides,
  HOPS_HEADER,
  RESPONSE_HEADERS,
  requestHeaders,
  translatedHeaders,
} from '../intake/headers.js';
import type { ParsedRequest } from '../intake/parse-request.js';
import type { EventLoopBudget } from '../limits/event-loop-budget.js';
import type { TenantModel } from '../memory/served-histories.js';
import type { Call } from '../shapes/shapes.js';
import { DispatchQueue } from './dispatch-queue.js';
import { EngineApis, type Way } from './engine-apis.js';
import { EngineHealth, EngineWatch, HEALTH_SETTINGS, type HealthSettings } from './engine-health.js';
import { askModels, askText, type EngineReport, probeEngine } from './engine-probe.js';
import type { KvResidency } from './kv-residency.js';
import { Upstream, type UpstreamRequest } from './upstream.js';

/** The engine that is asked. */
interface AskedEngine {
  readonly upstream: Upstream;
  readonly dialect: Dialect;
  readonly queue: Pick<DispatchQueue, 'underWay' | 'limit' | 'reported'>;
  headers(): Record<string, string | string[]>;
}

/** Milliseconds between two questions, and after one that was not answered. */
const ASK_INTERVAL_MS = 1_000;
const UNANSWERED_INTERVAL_MS = 60_000;
/** Bytes of an engine's metrics that are read. */
const MAX_METRICS_BYTES = 4_194_304;
/** Prompts that an engine has, at least, before it is asked: fewer do not wait for each other. */
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

  /** Asks now, unless the engine is idle or a question is under way. Never rejects. */
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
    // A label's value may hold a brace, and a time may stand behind the value.
    const value = /^(?:\{.*\})?\s+(\S+)/.exec(line)?.[1];
    if (value === undefined || !Number.isFinite(Number(value))) continue;
    sum = (sum ?? 0) + Number(value);
  }
  return sum;
}

/** Something about an engine that the operator should read. */
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
    | 'events-lost';
  readonly reason?: string;
}

/** A request that was answered, with what it takes to prefill another prompt behind the same preamble. */
export interface ServedPrompt {
  readonly parsed: ParsedRequest;
  readonly served: ServedRequest;
  readonly state: TenantModel;
  readonly headers: UpstreamRequest['headers'];
  /** Bytes that are kept alive with it, roughly. */
  readonly bytes: number;
}

/** Prefills prompts ahead while the engine is idle. */
export interface EnginePrewarmer {
  /** Bytes of the prompts that it remembers. */
  readonly bytes: number;
  served(prompt: ServedPrompt): void;
  close(): void;
}

/** What every engine of a gateway is made with. */
export interface EngineParts {
  readonly config: GatewayConfig;
  readonly health?: HealthSettings | undefined;
  /** How requests of Messages and Responses go to it; it is asked if left out. */
  readonly way?: Way | undefined;
  /** What this gateway is called in `x-warmpath-via`. */
  readonly hopName: string;
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
  readonly eventLoopBudget: EventLoopBudget;
  readonly waited: (ms: number) => void;
  readonly changed: (engine: Engine, change: EngineChange) => void;
  /** Whether another engine is there to do the work of this one. */
  readonly isSpare: (engine: Engine) => boolean;
  /** A drained engine has answered everything. */
  readonly quiet: (engine: Engine) => void;
  /** It caches otherwise than was believed. */
  readonly cachesOtherwise: (engine: Engine) => void;
  /** Makes what prefills ahead on it, where that is enabled. */
  readonly createPrewarmer: (engine: Engine) => EnginePrewarmer | undefined;
}

/** Requests that an engine was given, by what became of them. */
export interface EngineRequests {
  served: number;
  failed: number;
  /** Failed requests that another engine got before the client received a byte. */
  retriedElsewhere: number;
}

/** By this vLLM and SGLang send a request to one of their data-parallel ranks. */
const RANK_HEADER = 'x-data-parallel-rank';

/**
 * One engine behind the gateway: the way to it, what waits for it, how it is, and what is known of its cache. What is
 * remembered of served requests stands in `ServedHistories`, under its number.
 */
export class Engine {
  /** Its own, and never another one's. */
  readonly number: number;
  readonly name: string;
  readonly upstream: Upstream;
  readonly queue: DispatchQueue;
  readonly health: EngineHealth;
  readonly apis: EngineApis;
  /** What every request to it carries, or does not carry, of keys (`engineCredentials`), the hop's name, its rank. */
  readonly credentials: HeaderOverrides;
  /** Whether it gets the keys that clients send. */
  readonly forwardsClientKey: boolean;
  readonly prewarmer: EnginePrewarmer | undefined;
  readonly requests: EngineRequests = { served: 0, failed: 0, retriedElsewhere: 0 };
  /** Prompts that were sent to it, since the start. */
  sentPrompts = 0;
  /** Estimated prompt tokens that it was given and has not computed yet. */
  pendingTokens = 0;
  /** Prompts that it was given and has not begun to answer. */
  prefilling = 0;
  /** Whether it gets no new requests because the operator said so, or because the configuration lists it no more. */
  isDraining = false;
  isRemoved = false;
  #settings: EngineSettings;
  #dialect: Dialect;
  #models: ReadonlySet<string> | undefined;
  #capacityTokens: number | undefined;
  #kvResidency: KvResidency | undefined;
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
      isSpare: () => parts.isSpare(this),
      changed: (kind, reason) => parts.changed(this, { kind, reason }),
    });
    this.upstream = new Upstream(settings.url, config.upstream, {
      ended: (end) => {
        this.requests[end.kind]++;
        this.health.ended(end);
      },
      isQuiet: () => {
        if (this.isDraining) parts.quiet(this);
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
    this.apis = new EngineApis(this, parts.way, now);
    this.prewarmer = parts.createPrewarmer(this);
  }

  /** @throws WarmpathError `WARMPATH_CONFIG_INVALID`: see `ZmqSubscriber.open`. */
  static async open(number: number, settings: EngineSettings, parts: EngineParts): Promise<Engine> {
    const engine = new Engine(number, settings, parts);
    const { kvEvents } = settings;
    if (kvEvents === undefined) return engine;
    const changed = (state: 'exact' | 'lost') => parts.changed(engine, { kind: `events-${state}` });
    try {
      // What reads events takes 2 MB, and few engines publish any.
      const { KvResidency } = await import('./kv-residency.js');
      engine.#kvResidency = await KvResidency.open(kvEvents, { upstream: engine.upstream, now: parts.now, changed });
    } catch (error) {
      await engine.close();
      throw error;
    }
    return engine;
  }

  /** Where it is, without credentials. */
  get url(): string {
    return this.upstream.url;
  }

  /** What kind of engine it is, as far as that is configured or was found. */
  get dialect(): Dialect {
    return this.#dialect;
  }

  /** Tokens that it holds; `undefined` where it does not say. */
  get capacityTokens(): number | undefined {
    return this.#capacityTokens;
  }

  get weight(): number {
    return this.#settings.weight;
  }

  /** Names of the models that it is configured to serve; `undefined` for any. */
  get models(): ReadonlySet<string> | undefined {
    return this.#models;
  }

  /** Only where it publishes KV events. */
  get kvResidency(): KvResidency | undefined {
    return this.#kvResidency;
  }

  /** Whether it serves a model; of a request that names none, nothing is known. */
  serves(model: string): boolean {
    return this.#models === undefined || model === '' || this.#models.has(model);
  }

  /** Whether it is this engine that the configuration describes now; weight and models may have changed. */
  isOf({ name, url, apiKey, kvEvents }: EngineSettings): boolean {
    const own = this.#settings;
    const isSame = name === own.name && url === own.url && apiKey === own.apiKey;
    return isSame && JSON.stringify(kvEvents) === JSON.stringify(own.kvEvents);
  }

  /** Takes what may change while it runs. Answers whether anything did. */
  update(settings: EngineSettings): boolean {
    const isChanged = JSON.stringify(settings) !== JSON.stringify(this.#settings);
    this.#settings = settings;
    this.#models = settings.models && new Set(settings.models);
    return isChanged;
  }

  /** Headers of a request of the gateway's own. */
  headers(): Record<string, string | string[]> {
    return requestHeaders({}, this.credentials);
  }

  /** Asks what is at its address. Never rejects. */
  probe(): Promise<EngineReport> {
    const { upstream, dialect } = this;
    return probeEngine(upstream, { headers: this.headers(), totalMs: upstream.connectMs, dialect });
  }

  /** Asks for its models, within `connectMs`. Resolves with the failure. A status below 500 is none. */
  async ping(requestId: string): Promise<WarmpathError | undefined> {
    const headers = requestHeaders({}, this.credentials, { [RESPONSE_HEADERS.requestId]: requestId });
    const answer = await askModels(this.upstream, headers, this.upstream.connectMs);
    if ('code' in answer) return answer;
    return answer.status < 500 ? undefined : unhealthy(answer.status);
  }

  /** Asks from now on what is there: until it is up, or, where `isChecked`, for ever, and its health hears of it. */
  watch(tell: (report: EngineReport) => void, isChecked: boolean): void {
    const { checkMs } = this.#parts.health ?? HEALTH_SETTINGS;
    const reported = (report: EngineReport) => {
      this.#learnDialect(report);
      if (isChecked)
        this.health.checked(report.problem !== undefined && report.state !== 'wants-key' ? report.state : undefined);
    };
    this.#watch = new EngineWatch(() => this.probe(), {
      tell,
      reported,
      againMs: () => (isChecked ? checkMs : undefined),
    });
    this.#watch.look();
  }

  /** What is configured, or known by its address, is not asked for; what is not said stays as it was known. */
  #learnDialect({ dialect, slots, cacheSize }: EngineReport): void {
    const { upstream } = this.#parts.config;
    const isOpen = upstream.dialect === 'auto' && this.#dialect.name === 'generic';
    let found = isOpen && dialect !== undefined ? dialect : this.#dialect;
    if (slots !== undefined) found = withSlots(found, slots);
    if (cacheSize !== undefined) {
      found = withBlocks(found, cacheSize.blockTokens);
      this.#capacityTokens = cacheSize.blocks * cacheSize.blockTokens;
    }
    const [before, now] = [this.#dialect, found].map(({ reuse }) => JSON.stringify(beliefOf(reuse)));
    this.#dialect = found;
    if (now !== before) this.#parts.cachesOtherwise(this);
  }

  /** A request found it gone: it is asked for again. */
  look(): void {
    this.#watch?.look();
  }

  /** Cuts what is under way. */
  async close(): Promise<void> {
    this.#watch?.close();
    this.#queueReports.close();
    this.prewarmer?.close();
    await this.#kvResidency?.close();
    await this.upstream.destroy();
  }

  /** It stops asking and prefilling ahead, and goes on with the requests that it has. */
  rest(): void {
    this.#watch?.close();
    this.prewarmer?.close();
  }

  /** Whether it has anything to answer. */
  get isQuiet(): boolean {
    return this.upstream.exchanges === 0 && this.queue.depth === 0;
  }

  /** What the log says of a change. */
  changed(change: EngineChange): void {
    this.#parts.changed(this, change);
  }
}

/** The error for an engine that answers with that status. */
export function unhealthy(status: number): WarmpathError {
  return new WarmpathError('WARMPATH_UPSTREAM_UNREACHABLE', { detail: `The engine answers with status ${status}.` });
}

/** A client's headers for an engine, with what every request to it carries from the gateway, and `overrides`. */
export function engineHeaders(
  { credentials }: Engine,
  { headers, report }: Pick<FastifyRequest, 'headers' | 'report'>,
  ...overrides: readonly (HeaderOverrides | undefined)[]
): Record<string, string | string[]> {
  const outgoing = requestHeaders(headers, credentials, ...overrides);
  outgoing[RESPONSE_HEADERS.requestId] = report.requestId;
  return outgoing;
}

/** For answers that are read on the way through: a compressed one would hide what the engine counted. */
export const IDENTITY = { 'accept-encoding': 'identity' };

/** What a prompt's request to the engine carries in place of the client's headers. */
export function promptHeaders(engine: Engine, { request, translation }: Call): HeaderOverrides | undefined {
  return translation && translatedHeaders(request.headers, engine.forwardsClientKey);
}
