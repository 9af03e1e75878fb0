/**
 * What the gateway tells the page. Every count of `metrics` is one of `GET /metrics` under the same name; nothing here
 * is a text of a request.
 */

/** Sent once to every viewer, as the event `start`: what does not change, and the past. */
export interface FeedStart {
  readonly settings: FeedSettings;
  /** Slots of the series, the oldest first. */
  readonly slots: readonly TrafficSlot[];
  /** The latest requests, the oldest first. */
  readonly requests: readonly RequestSummary[];
}

export interface FeedSettings {
  /** Whether names of documents and tenants are shown. */
  readonly names: boolean;
  /** Whether prompts are compared with earlier ones, to say why a prefix broke. */
  readonly comparesPrompts: boolean;
  /** What a million prompt tokens that need not be computed save; `null` where nobody said. */
  readonly savedPerMillionTokens: number | null;
  readonly savedUnit: string;
  /** Prompts that may wait. */
  readonly queueCapacity: number;
  /** Milliseconds of one slot of the series. */
  readonly slotMs: number;
  /** Milliseconds that the series reaches back. */
  readonly seriesMs: number;
  /** Upper ends of the classes of TTFT, in milliseconds; each class begins where the one before ends. */
  readonly ttftBounds: readonly number[];
}

/** Sent every second to every viewer, as the event `tick`. */
export interface FeedTick {
  /** The gateway's wall clock, and its monotonic one, which all other times are of; milliseconds. */
  readonly time: number;
  readonly now: number;
  /** The slots that changed since the tick before. */
  readonly slots: readonly TrafficSlot[];
  /** Requests that ended since then; `omitted` more would not fit. */
  readonly requests: readonly RequestSummary[];
  readonly omitted: number;
  /** Everything that `GET /metrics` tells, but for the classes of histograms. */
  readonly metrics: Readonly<Record<string, number>>;
  readonly engines: readonly EngineStatus[];
  /** Histories whose predictions were mostly missed lately. */
  readonly degradedHistories: number;
}

/** Prompts that ended in one stretch of time. */
export interface TrafficSlot {
  /** Its number: its begin is `slot * slotMs`. */
  readonly slot: number;
  readonly requests: number;
  readonly errors: number;
  /** Prompts of which the engine told how many tokens it had cached, their tokens, and those cached and predicted. */
  readonly reported: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly predictedTokens: number;
  /** TTFT of prompts of which at least half was cached, and of the others: pairs of class and count. */
  readonly ttftCached: readonly number[];
  readonly ttftComputed: readonly number[];
}

/** One request that is over. Times are milliseconds. */
export interface RequestSummary {
  /** 1, 2, 3, … in the order in which requests ended. */
  readonly sequence: number;
  readonly id: string;
  readonly route: string;
  readonly status: number;
  /** When its headers had come, on the monotonic clock. */
  readonly arrivedAt: number;
  /** From there until the answer's end. */
  readonly durationMs: number;
  /** Until its body was complete. */
  readonly receivedMs: number;
  readonly overheadMs: number | null;
  readonly queuedMs: number | null;
  readonly ttftMs: number | null;
  readonly documents: number | null;
  readonly promptTokens: number | null;
  readonly cachedTokens: number | null;
  readonly predictedTokens: number | null;
  /** Documents referred to and not repeated. */
  readonly references: number;
  /** Why its prefix broke (`BREAK_CAUSES`), where prompts are compared. */
  readonly broke: string | null;
  /** An error's code of the table. */
  readonly error: string | null;
  /** Whether a defect cost it an order. */
  readonly failedOpen: boolean;
}

export interface EngineStatus {
  readonly name: string;
  readonly url: string;
  /** `ejected`, `draining`: it answers and gets no new requests, because it failed or because the operator said so. */
  readonly state: 'unknown' | 'ready' | 'failing' | 'ejected' | 'draining';
  /** Why it fails: a code of the table with a detail. */
  readonly reason: string | null;
  readonly inFlight: number;
  /** Prompts that it may have at once. */
  readonly limit: number;
  readonly queued: number;
}

/** What `GET /ui/tree` answers. */
export interface TreeSnapshot {
  readonly histories: readonly HistoryTree[];
  /** Histories and nodes that are not told because there are too many; the least recently used nodes are left out. */
  readonly omittedHistories: number;
  readonly omittedNodes: number;
  /** Of everything. */
  readonly nodes: number;
  readonly tokens: number;
}

/** What the engine is believed to hold for one tenant and model. */
export interface HistoryTree {
  /** Its name, or a short hash. */
  readonly tenant: string;
  readonly model: string;
  /** `degraded` where most predictions were missed lately. */
  readonly state: string;
  readonly nodes: number;
  readonly tokens: number;
  /** Each behind its parent, the most recently used first. */
  readonly rows: readonly TreeRow[];
}

/** Place of the parent among the rows, -1 for none; tokens; hits; 1 if confirmed; seconds unused; children; label. */
export type TreeRow = readonly [
  parent: number,
  tokens: number,
  hits: number,
  confirmed: 0 | 1,
  idleS: number,
  children: number,
  label: string,
];
