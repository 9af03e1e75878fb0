import { randomUUID } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import { WarmpathError } from '@warmpath/core';
import { fingerprint, type TreeNode } from '@warmpath/core/internal';
import type {
  CollectionsStatus,
  EngineStatus,
  FeedSettings,
  FeedTick,
  HistoryTree,
  RequestSummary,
  TreeRow,
  TreeSnapshot,
} from '@warmpath/dashboard';
import type { OpenCollections } from '../collections/open-collections.js';
import type { GatewayConfig } from '../config/schema.js';
import type { Engine } from '../engines/engine.js';
import type { Engines } from '../engines/engines.js';
import type { ServedHistories, TenantModel } from '../memory/served-histories.js';
import type { CapturedBodies } from '../observe/captured-bodies.js';
import type { Metrics } from '../observe/metrics.js';
import type { RequestLog } from '../observe/request-log.js';
import { DAY_SLOT_MS, SLOT_MS, SLOTS, type TrafficSeries, TTFT_BOUNDS } from '../observe/traffic-series.js';
import { NO_GAIN_REASONS } from '../shapes/shapes.js';

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
  readonly captures: CapturedBodies;
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
      noGainReasons: Object.entries(NO_GAIN_REASONS).map(([name, message]) => ({ name, message })),
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
      capture: this.#parts.captures.state,
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
  if (kvResidency !== undefined) return kvResidency.isExact ? 'events' : 'events-lost';
  return dialect.reuse.kind === 'slots' ? 'slots' : 'served';
}

function event(name: string, data: object): string {
  return `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** Nodes and histories that are shown at most. */
const MAX_NODES = 10_000;
const MAX_HISTORIES = 256;
/** Characters of a label. */
const LABEL_LENGTH = 120;

/** Without it, a short hash of an id would be the same everywhere, and could be looked up. */
const SALT = randomUUID();

/**
 * What the engine is believed to hold, of all tenants and models. Bounded: small trees are shown whole, large ones
 * share what is left, each its most recently used nodes. O(nodes shown + histories).
 *
 * @param names whether documents and tenants are shown by name; else by a short hash that is this process's alone.
 */
function treeSnapshot(histories: ServedHistories, now: number, names: boolean): TreeSnapshot {
  const all = [...histories.values()].toSorted((a, b) => b.history.tree.nodes - a.history.tree.nodes);
  const shown = all.slice(0, MAX_HISTORIES).reverse();
  let left = MAX_NODES;
  const trees = shown.map((state, i) => {
    const tree = historyTree(state, { limit: Math.floor(left / (shown.length - i)), now, names });
    left -= tree.rows.length;
    return tree;
  });
  const nodes = sumOf(all, ({ history }) => history.tree.nodes);
  return {
    histories: trees.reverse(),
    omittedHistories: all.length - shown.length,
    omittedNodes: nodes - (MAX_NODES - left),
    nodes,
    tokens: sumOf(all, ({ history }) => history.tree.tokens),
  };
}

function historyTree(
  { tenant, model, engine, history }: TenantModel,
  { limit, now, names }: { readonly limit: number; readonly now: number; readonly names: boolean },
): HistoryTree {
  const placeOf = new Map<TreeNode | undefined, number>();
  const rows = history.tree.recentNodes(limit).map((node, place): TreeRow => {
    placeOf.set(node, place);
    return [
      placeOf.get(node.parent) ?? -1,
      node.tokens,
      node.hits,
      node.residency === 'confirmed' ? 1 : 0,
      Math.max(0, Math.round((now - node.lastUsedAt) / 1_000)),
      node.children.size,
      labelOf(node.key, names),
    ];
  });
  const { nodes, tokens } = history.tree;
  return {
    engine: engine.name,
    tenant: nameOf(tenant, names),
    model: cut(model),
    state: history.state,
    nodes,
    tokens,
    rows,
  };
}

/** A key is an id and fingerprints behind it, or what stands before the documents (`preamble`). */
function labelOf(key: string, names: boolean): string {
  if (key.startsWith('preamble#')) return `preamble ${shortHash(key)}`;
  if (!names) return shortHash(key);
  return cut(key.replace(/(?<=.)#[^#]*(?:#[^#]*)?$/, ''));
}

/** A name that may be a client's own. */
function nameOf(name: string, names: boolean): string {
  return names ? cut(name) : shortHash(name);
}

function shortHash(text: string): string {
  return fingerprint([SALT, text]).slice(0, 8);
}

function cut(text: string): string {
  return text.length > LABEL_LENGTH ? `${text.slice(0, LABEL_LENGTH)}…` : text;
}

function sumOf<Item>(items: readonly Item[], value: (item: Item) => number): number {
  return items.reduce((sum, item) => sum + value(item), 0);
}
