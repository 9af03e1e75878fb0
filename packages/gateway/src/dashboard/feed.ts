import type { ServerResponse } from 'node:http';
import { WarmpathError } from '@warmpath/core';
import type {
  CollectionsStatus,
  EngineStatus,
  FeedSettings,
  FeedTick,
  RequestSummary,
  TreeSnapshot,
} from '@warmpath/dashboard';
import type { OpenCollections } from '../collections/open-collections.js';
import type { GatewayConfig } from '../config/schema.js';
import type { Engine } from '../engines/engine.js';
import type { Engines } from '../engines/engines.js';
import type { ServedHistories } from '../memory/served-histories.js';
import type { Metrics } from '../observe/metrics.js';
import type { RequestLog } from '../observe/request-log.js';
import { DAY_SLOT_MS, SLOT_MS, SLOTS, type TrafficSeries, TTFT_BOUNDS } from '../observe/traffic-series.js';
import { NO_GAIN_REASONS } from '../shapes/shapes.js';
import { nameOf, treeSnapshot } from './tree-snapshot.js';

const TICK_MS = 1_000;
/** Ticks between two looks at engines and collections. */
const LOOK_TICKS = 5;
const MAX_VIEWERS = 16;
/** Bytes that wait for a viewer; beyond, the viewer is disconnected. */
const MAX_BEHIND_BYTES = 2_097_152;
/** Requests in one tick. */
const MAX_REQUESTS = 250;
/** The latest requests that a new viewer gets. */
const START_REQUESTS = 1_000;
/** Milliseconds for which a snapshot of the tree is used again. */
const TREE_TTL_MS = 2_000;

/** What the dashboard shows. */
export interface DashboardParts {
  readonly config: Pick<GatewayConfig, 'collections' | 'dashboard' | 'explain' | 'queue'>;
  readonly engines: Engines;
  readonly collections: OpenCollections | undefined;
  readonly histories: ServedHistories;
  readonly requests: RequestLog;
  readonly traffic: TrafficSeries;
  /** By the wall clock. */
  readonly dayTraffic: TrafficSeries;
  readonly metrics: Metrics;
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
}

/**
 * Sends the dashboard's data to its viewers once a second, computed once for all of them. Slow viewers are
 * disconnected: their page connects again.
 */
export class DashboardFeed {
  readonly #parts: DashboardParts;
  readonly #viewers = new Set<ServerResponse>();
  #timer: NodeJS.Timeout | undefined;
  #ticks = 0;
  #isBusy = false;
  #collections: CollectionsStatus | null = null;
  #isListing = false;
  /** Where the last tick ended: a slot of time, and the number of a request. */
  #slot = 0;
  #sequence = 0;
  /** The last probe of each engine. */
  readonly #probed = new Map<Engine, Pick<EngineStatus, 'state' | 'reason'>>();
  #tree: { readonly at: number; readonly json: string } | undefined;

  constructor(parts: DashboardParts) {
    this.#parts = parts;
  }

  /**
   * Adds a viewer, who gets the last quarter of an hour at once.
   *
   * @throws WarmpathError `WARMPATH_OVERLOADED` beyond `MAX_VIEWERS`.
   */
  watch(viewer: ServerResponse): void {
    if (this.#viewers.size >= MAX_VIEWERS) {
      throw new WarmpathError('WARMPATH_OVERLOADED', { detail: `${MAX_VIEWERS} viewers watch the dashboard already.` });
    }
    viewer.writeHead(200, {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
      // Buffering proxies would hold events back.
      'x-accel-buffering': 'no',
    });
    viewer.once('close', () => this.#leave(viewer));
    this.#viewers.add(viewer);
    viewer.write(this.#start());
    if (this.#timer !== undefined) return;
    this.#timer = setInterval(() => this.#tickOnce(), TICK_MS);
    this.#slot = this.#parts.traffic.slotOf(this.#parts.now());
    this.#sequence = this.#parts.requests.sequence;
    this.#tickOnce();
  }

  /** The knowledge tree as JSON (`TreeSnapshot`), at most two seconds old. */
  tree(): string {
    const { histories, config, now } = this.#parts;
    const at = now();
    if (this.#tree === undefined || at - this.#tree.at >= TREE_TTL_MS) {
      const snapshot: TreeSnapshot = treeSnapshot(histories, at, config.dashboard.names);
      this.#tree = { at, json: JSON.stringify(snapshot) };
    }
    return this.#tree.json;
  }

  /** Disconnects all viewers. */
  endAll(): void {
    for (const viewer of this.#viewers) viewer.end();
  }

  #leave(viewer: ServerResponse): void {
    this.#viewers.delete(viewer);
    if (this.#viewers.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#tree = undefined;
    this.#ticks = 0;
    this.#probed.clear();
    this.#collections = null;
  }

  #start(): string {
    const { traffic, dayTraffic, requests, now } = this.#parts;
    return event('start', {
      settings: this.#settings(),
      slots: traffic.since(0, now()),
      daySlots: dayTraffic.since(0, Date.now()),
      requests: this.#named(requests.latest(0, START_REQUESTS)),
    });
  }

  #named(summaries: readonly RequestSummary[]): RequestSummary[] {
    const { names } = this.#parts.config.dashboard;
    return summaries.map((summary) => ({ ...summary, tenant: nameOf(summary.tenant, names) }));
  }

  #settings(): FeedSettings {
    const { dashboard, explain, queue, collections } = this.#parts.config;
    return {
      names: dashboard.names,
      comparesPrompts: explain.prompts !== 'off',
      hasCollections: collections !== undefined,
      queueCapacity: queue.capacity,
      slotMs: SLOT_MS,
      seriesMs: SLOTS * SLOT_MS,
      daySlotMs: DAY_SLOT_MS,
      noGainReasons: Object.values(NO_GAIN_REASONS),
      ttftBounds: TTFT_BOUNDS,
    };
  }

  #tickOnce(): void {
    if (this.#ticks++ % LOOK_TICKS === 0) {
      void this.#probe();
      void this.#listCollections();
    }
    if (this.#isBusy) return;
    this.#isBusy = true;
    void this.#tick().finally(() => {
      this.#isBusy = false;
    });
  }

  async #tick(): Promise<void> {
    const { traffic, dayTraffic, requests, metrics, histories, now: clock } = this.#parts;
    const values = await metrics.values();
    const now = clock();
    const ended = requests.sequence - this.#sequence;
    const shown = this.#named(requests.latest(this.#sequence, MAX_REQUESTS));
    let degradedHistories = 0;
    for (const { history } of histories.values()) if (history.state === 'degraded') degradedHistories++;
    const tick: FeedTick = {
      time: Date.now(),
      now,
      slots: traffic.since(this.#slot, now),
      daySlots: dayTraffic.since(dayTraffic.slotOf(Date.now()) - 1, Date.now()),
      requests: shown,
      omitted: ended - shown.length,
      metrics: values,
      engines: this.#parts.engines.all.map((engine) => this.#statusOf(engine)),
      collections: this.#collections,
      degradedHistories,
    };
    this.#slot = traffic.slotOf(now);
    this.#sequence += ended;
    this.#send(event('tick', tick));
  }

  #send(text: string): void {
    for (const viewer of this.#viewers) {
      if (viewer.writableLength > MAX_BEHIND_BYTES) viewer.destroy();
      else viewer.write(text);
    }
  }

  #statusOf(engine: Engine): EngineStatus {
    const { name, url, queue, health, isDraining, dialect, pendingTokens, requests } = engine;
    const { state, reason } = this.#probed.get(engine) ?? { state: 'unknown', reason: null };
    const takesNone = isDraining ? 'draining' : health.state === 'up' ? undefined : 'ejected';
    return {
      name,
      url,
      state: state === 'failing' ? state : (takesNone ?? state),
      reason: reason ?? health.reason ?? null,
      kind: dialect.name,
      cacheKnown: cacheKnownOf(engine),
      inFlight: queue.underWay,
      limit: queue.limit,
      queued: queue.depth,
      pendingTokens: Math.round(pendingTokens),
      served: requests.served,
      failed: requests.failed,
      ejections: health.ejections,
    };
  }

  /** A folder that cannot be read shows as no collections; the log names it when it is searched. */
  async #listCollections(): Promise<void> {
    const { collections, config } = this.#parts;
    if (collections === undefined || this.#isListing) return;
    this.#isListing = true;
    try {
      const { listed, isAll } = await collections.list();
      const { names } = config.dashboard;
      const shown = listed.map((each) => ({
        ...each,
        tenant: nameOf(each.tenant, names),
        name: nameOf(each.name, names),
      }));
      if (this.#viewers.size > 0) this.#collections = { listed: shown, isAll };
    } catch {
      this.#collections = null;
    } finally {
      this.#isListing = false;
    }
  }

  async #probe(): Promise<void> {
    const { all } = this.#parts.engines;
    const failures = await Promise.all(all.map((engine) => engine.ping(`dashboard-${this.#ticks}`)));
    this.#probed.clear();
    if (this.#viewers.size === 0) return;
    for (const [place, failure] of failures.entries()) {
      const isFailing = failure !== undefined;
      this.#probed.set(all[place]!, {
        state: isFailing ? 'failing' : 'ready',
        reason: isFailing ? failure.message : null,
      });
    }
  }
}

function cacheKnownOf({ kvResidency, dialect }: Engine): EngineStatus['cacheKnown'] {
  if (kvResidency !== undefined) return kvResidency.events.isExact ? 'events' : 'events-lost';
  return dialect.reuse.kind === 'slots' ? 'slots' : 'served';
}

function event(name: string, data: object): string {
  return `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
}
