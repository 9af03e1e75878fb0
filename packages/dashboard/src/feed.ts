import type { CaptureState } from './capture.js';

/**
 * What the gateway tells the page. Every count of `metrics` is one of `GET /metrics` under the same name; nothing here
 * is a text of a request.
 */

/** Sent once to every viewer, as the event `start`: what does not change, and the past. */
export interface FeedStart {
  readonly settings: FeedSettings;
  /** Slots of the series, the oldest first. */
  readonly slots: readonly TrafficSlot[];
  /** Slots of the last day, which go by the wall clock. */
  readonly daySlots: readonly TrafficSlot[];
  /** The latest requests, the oldest first. */
  readonly requests: readonly RequestSummary[];
}

export interface FeedSettings {
  /** Whether names of documents and tenants are shown. */
  readonly names: boolean;
  /** Whether prompts are compared with earlier ones, to say why a prefix broke. */
  readonly comparesPrompts: boolean;
  /** Whether passages can be looked for in collections. */
  readonly hasCollections: boolean;
  /** Prompts that may wait for an engine. */
  readonly queueCapacity: number;
  /** Milliseconds of one slot of the series. */
  readonly slotMs: number;
  /** Milliseconds that the series reaches back. */
  readonly seriesMs: number;
  /** Milliseconds of one slot of the day. */
  readonly daySlotMs: number;
  /** Why prompts gain nothing, by the number of the reason. */
  readonly noGainReasons: readonly { readonly name: string; readonly message: string }[];
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
  readonly daySlots: readonly TrafficSlot[];
  /** Requests that ended since then; `omitted` more would not fit. */
  readonly requests: readonly RequestSummary[];
  readonly omitted: number;
  /** Everything that `GET /metrics` tells, but for the classes of histograms. */
  readonly metrics: Readonly<Record<string, number>>;
  readonly engines: readonly EngineStatus[];
  /** `null` before they were looked at, and where there can be none. */
  readonly collections: CollectionsStatus | null;
  /** Bodies of prompts that the operator has captured. */
  readonly capture: CaptureState;
  /** Histories whose predictions were mostly missed lately. */
  readonly degradedHistories: number;
}

/** Prompts that ended in one stretch of time. */
export interface TrafficSlot {
  /** Its number: its begin is `slot * slotMs`. */
  readonly slot: number;
  readonly requests: number;
  readonly errors: number;
  /**
   * Prompts of which the engine reported how many tokens it had cached, their tokens, and those cached and predicted.
   */
  readonly reported: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly predictedTokens: number;
  /** Tokens that engines wrote into their caches for a price of their own. */
  readonly cacheWriteTokens: number;
  /** What prompts with a baseline and a price cost, and would have cost without the gateway. */
  readonly cost: number;
  readonly baselineCost: number;
  /** Tokens of prompts with a baseline, and those that the gateway added to what would have been cached. */
  readonly measuredTokens: number;
  readonly gainTokens: number;
  /** Of these, prompts that went out as their clients wrote them: how far the baseline is off. */
  readonly unchanged: number;
  readonly unchangedPromptTokens: number;
  readonly unchangedCachedTokens: number;
  readonly unchangedBaselineTokens: number;
  /** Prompts that are left as they are, to compare with. */
  readonly heldOut: number;
  readonly heldOutPromptTokens: number;
  readonly heldOutCachedTokens: number;
  /** TTFT of prompts of which at least half was cached, and of the others: pairs of class and count. */
  readonly ttftCached: readonly number[];
  readonly ttftComputed: readonly number[];
  /** The same of prompts that are left as they are, and of all others. */
  readonly ttftHeldOut: readonly number[];
  readonly ttftOthers: readonly number[];
  /** Prompts that gained nothing: pairs of the reason's number and count. */
  readonly noGain: readonly number[];
}

/** The counts and tokens of a slot. */
export type TrafficSums = Omit<
  TrafficSlot,
  'slot' | 'ttftCached' | 'ttftComputed' | 'ttftHeldOut' | 'ttftOthers' | 'noGain'
>;

/** The sums of no prompts. */
export const NO_TRAFFIC: TrafficSums = {
  requests: 0,
  errors: 0,
  reported: 0,
  promptTokens: 0,
  cachedTokens: 0,
  predictedTokens: 0,
  cacheWriteTokens: 0,
  cost: 0,
  baselineCost: 0,
  measuredTokens: 0,
  gainTokens: 0,
  unchanged: 0,
  unchangedPromptTokens: 0,
  unchangedCachedTokens: 0,
  unchangedBaselineTokens: 0,
  heldOut: 0,
  heldOutPromptTokens: 0,
  heldOutCachedTokens: 0,
};

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
  /** Until the last stage of its search; `null` where nothing was looked for. */
  readonly retrievalMs: number | null;
  /** How long before that the engine got the prompt that was answered. */
  readonly aheadMs: number;
  /** Whether generation that started before the search was over was the right one. */
  readonly speculation: 'confirmed' | 'wrong' | null;
  readonly model: string | null;
  /** Its name, or a short hash. */
  readonly tenant: string;
  /** Which of several engines it went to. */
  readonly engine: string | null;
  readonly ttftMs: number | null;
  readonly documents: number | null;
  readonly promptTokens: number | null;
  readonly cachedTokens: number | null;
  readonly predictedTokens: number | null;
  /** Tokens that would have been cached without the gateway, and those that were cached beside them. */
  readonly baselineTokens: number | null;
  readonly gainTokens: number | null;
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
  /** What kind of engine it is, as far as that is known: `vllm`, `llama-server`, …, `generic`. */
  readonly kind: string;
  /**
   * How the gateway knows what it has cached: from its KV events, no longer from them because some were lost, from a
   * model of its slots, or from what was served and what it reports.
   */
  readonly cacheKnown: 'events' | 'events-lost' | 'slots' | 'served';
  readonly inFlight: number;
  /** Prompts that it may have at once. */
  readonly limit: number;
  readonly queued: number;
  /** Prompt tokens that it has to compute, estimated; 0 where there is one engine only. */
  readonly pendingTokens: number;
  /** Exchanges since the start, by their end, and times that it got no more requests. */
  readonly served: number;
  readonly failed: number;
  readonly ejections: number;
}

/** Collections in the folder of the gateway. */
export interface CollectionsStatus {
  readonly listed: readonly CollectionStatus[];
  /** Whether there are no others. */
  readonly isAll: boolean;
}

/** A collection, and the searches of this gateway in it since its start. Names are short hashes unless shown. */
export interface CollectionStatus {
  readonly tenant: string;
  readonly name: string;
  /** `null` where it cannot be read. */
  readonly documents: number | null;
  readonly passages: number | null;
  readonly tokens: number | null;
  readonly searches: number;
  readonly failedSearches: number;
  /** Sum over the searches that did not fail. */
  readonly searchMs: number;
}

/** What `GET /ui/tree` answers. */
export interface TreeSnapshot {
  readonly histories: readonly HistoryTree[];
  /** Histories and nodes that are left out because there are too many; the least recently used nodes are left out. */
  readonly omittedHistories: number;
  readonly omittedNodes: number;
  /** Of everything. */
  readonly nodes: number;
  readonly tokens: number;
}

/** What an engine is believed to hold for one tenant and model. */
export interface HistoryTree {
  /** The engine that holds it. */
  readonly engine: string;
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
