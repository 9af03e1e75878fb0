import type { Document } from '../document.js';
import type { Preamble } from '../preamble.js';
import { bestPath } from '../tree/best-path.js';
import { type Insertion, KnowledgeTree, type KnowledgeTreeOptions, type ServedPath } from '../tree/knowledge-tree.js';
import type { CachedPath, KnowledgeTreeView, PlacementRule } from '../tree/view.js';
import { CapacityEstimate, type EngineReport, PredictionRecord } from './engine-report.js';
import type { PromptSlots } from './prompt-slots.js';
import { DocumentStatistics, type DocumentStatisticsOptions, RecentRequests } from './request-statistics.js';
import { SlotResidency } from './slot-residency.js';
import type { HotnessView, RecentRequestsView, ResidencyState, ResidencyView, SlotsView } from './view.js';

/** What a request that the engine was alone with says of its cache. Tokens as Warmpath counts them. */
export interface TimedPrompt {
  /** Tokens at its start that completed requests had brought into the cache, as it was believed. */
  readonly believedTokens: number;
  readonly promptTokens: number;
  /** Milliseconds to the first token. */
  readonly ttftMs: number;
}

/** Cold requests remembered, of which the median counts. */
const MAX_COLD_REQUESTS = 15;
/** Fewer cold requests than this say nothing. */
const MIN_COLD_REQUESTS = 5;
/** A request that is believed to find less than this share of its prompt is cold. */
const MAX_COLD_SHARE = 0.05;
/** With a smaller share than this, what is saved is lost in the noise (CacheWeaver's implementation has .3, too). */
const MIN_JUDGED_SHARE = 0.3;
/** A miss: less of the time was saved than this part of what should have been. */
const MAX_MISSED_PART = 0.4;

/**
 * Infers from the time to the first token whether an engine that reports no cached tokens still held what it was
 * believed to hold (CacheWeaver §3.4). A request that should have found much, and took as long a token as a cold one,
 * found nothing. Only the second miss in a row counts. O(1), bounded.
 */
export class TtftFeedback {
  /** Milliseconds a token of the last cold requests, a ring. */
  readonly #cold: number[] = [];
  #next = 0;
  #missedBefore = false;

  /**
   * Tokens that the engine seems to have reused of the prompt: those believed, or after a second miss in a row only
   * what the time tells; `undefined` where it tells nothing. Call for one request after another.
   */
  cachedTokens({ believedTokens, promptTokens, ttftMs }: TimedPrompt): number | undefined {
    if (!isPositive(promptTokens) || !isPositive(ttftMs)) return undefined;
    const share = Math.min(1, believedTokens / promptTokens);
    if (share < MAX_COLD_SHARE) {
      this.#cold[this.#next] = ttftMs / promptTokens;
      this.#next = (this.#next + 1) % MAX_COLD_REQUESTS;
      return undefined;
    }
    if (this.#cold.length < MIN_COLD_REQUESTS || share < MIN_JUDGED_SHARE) return undefined;
    const saved = 1 - ttftMs / (median(this.#cold) * promptTokens);
    const isMissed = saved < MAX_MISSED_PART * share;
    const isSecond = isMissed && this.#missedBefore;
    this.#missedBefore = isMissed;
    if (!isMissed) return believedTokens;
    return isSecond ? Math.max(0, saved * promptTokens) : undefined;
  }

  clear(): void {
    this.#cold.length = 0;
    this.#next = 0;
    this.#missedBefore = false;
  }
}

function isPositive(value: number): boolean {
  return value > 0 && Number.isFinite(value);
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[values.length >> 1]!;
}

/** What the engine's own events say of a history. */
export interface FollowedEvents {
  /** Whether they tell all that the engine holds, and name what this history's prompts are made of. */
  isExactFor(history: ServedHistory): boolean;
  /** Leading steps of the request's path of which the events tell. */
  followedSteps(history: ServedHistory, request: ServedRequest): number;
}

export interface ServedHistoryOptions {
  /** Bounds of the knowledge tree. */
  readonly tree?: KnowledgeTreeOptions;
  /** Window and bound of the access statistics. */
  readonly hotness?: DocumentStatisticsOptions;
  /**
   * Paths not used for so many milliseconds are forgotten, for engines that keep a cache for a limited time. Default:
   * never.
   */
  readonly maxAgeMs?: number;
  /**
   * Whether the engine evicts what it used least recently (vLLM, SGLang and the embedded engine do): then a document
   * found missing shows that everything last used before it is gone too. Default true; set false for engines that cache
   * by slot (llama-server) and for hosted APIs, where a miss may only mean another machine.
   */
  readonly evictsLeastRecent?: boolean;
  /**
   * The engine's slots, where it keeps whole prompts in them (llama-server). Histories of the same engine share them,
   * each under a name of its own, because the engine's requests push each other's prompts out.
   */
  readonly slots?: { readonly prompts: PromptSlots; readonly name: string };
  /** The engine's own events, where it publishes them (`EventResidency`): they decide then what is resident. */
  readonly events?: FollowedEvents;
}

/** What a history needs of an arrangement, which is also the identity of the request. */
export interface ServedRequest {
  /** In prompt order. */
  readonly documents: readonly Document[];
  readonly preamble: Preamble | undefined;
  /** `order[p]` is the retrieval rank of `documents[p]`; without it, prompt order counts as retrieval order. */
  readonly order?: readonly number[];
}

/**
 * Residency from what was recently served: works with every engine, and is the least certain source. One instance per
 * engine replica, tenant and model.
 *
 * A path counts as resident from its dispatch; it is taken back if the request fails. Cached tokens that the engine
 * reports correct the history. State changes through `observe` alone. Everything is bounded.
 */
export class ServedHistory implements ResidencyView {
  readonly #tree: KnowledgeTree;
  readonly #statistics: DocumentStatistics;
  readonly #recent = new RecentRequests();
  readonly #predictions = new PredictionRecord();
  readonly #capacity = new CapacityEstimate();
  readonly #ttft = new TtftFeedback();
  readonly #dispatches = new WeakMap<ServedRequest, Insertion>();
  readonly #maxAgeMs: number;
  readonly #evictsLeastRecent: boolean;
  readonly #events: FollowedEvents | undefined;
  readonly #slots: SlotResidency | undefined;

  constructor(options: ServedHistoryOptions = {}) {
    this.#tree = new KnowledgeTree(options.tree);
    this.#statistics = new DocumentStatistics(options.hotness);
    this.#maxAgeMs = options.maxAgeMs ?? Number.POSITIVE_INFINITY;
    this.#evictsLeastRecent = options.evictsLeastRecent ?? true;
    this.#events = options.events;
    if (options.slots !== undefined) this.#slots = new SlotResidency(options.slots.prompts, options.slots.name);
  }

  /**
   * `exact` while the engine's events tell what it holds of this history's prompts; `degraded` while most of the recent
   * predictions that could be checked were missed; `modelled` where the engine's slots are followed; else `history`.
   */
  get state(): ResidencyState {
    if (this.#isExact) return 'exact';
    if (this.#slots !== undefined) return this.#slots.mostlyMissed ? 'degraded' : 'modelled';
    return this.#predictions.mostlyMissed ? 'degraded' : 'history';
  }

  get slots(): SlotsView | undefined {
    return this.#slots;
  }

  get tree(): KnowledgeTreeView {
    return this.#tree;
  }

  get hotness(): HotnessView {
    return this.#statistics;
  }

  get recent(): RecentRequestsView {
    return this.#recent;
  }

  /** Bytes held: the tree, and estimates of the statistics and of the recent requests. O(1). */
  get bytes(): number {
    return this.#tree.bytes + this.#statistics.bytes + this.#recent.bytes;
  }

  /** Requests dispatched so far. */
  get requests(): number {
    return this.#statistics.requests;
  }

  bestPath(
    documents: readonly Document[],
    preamble: Preamble | undefined,
    rule: PlacementRule | undefined,
    maxOperations?: number,
  ): CachedPath {
    const bySlots = this.#slots?.bestPath(documents, preamble, rule, maxOperations);
    return bySlots ?? bestPath(this.#tree, documents, { preamble, rule, maxOperations });
  }

  /** The request goes to the engine: its path will be resident, and its documents were accessed. O(path). */
  dispatched(request: ServedRequest, now: number): void {
    this.#statistics.record(request.documents.map((document) => document.key));
    this.#recent.record(request);
    this.#dispatches.set(request, this.#tree.insert(pathOf(request), 'expected', now));
    this.#slots?.dispatched(request, pathOf(request));
    this.#pruneToCapacity();
    if (this.#maxAgeMs !== Number.POSITIVE_INFINITY) this.#tree.pruneUsedBefore(now - this.#maxAgeMs);
  }

  /**
   * The engine has prefilled the prompt: the path is resident. Reported cached tokens, else the time to the first token
   * (`TtftFeedback`), judge the part of the path that was confirmed before the dispatch. If the engine evicts what is
   * least recent, everything last used before the first missing document is forgotten, and the capacity is learned
   * (`CapacityEstimate`). While the engine's events are exact, only steps that they do not cover are judged. O(path +
   * forgotten).
   */
  completed(request: ServedRequest, now: number, report: EngineReport): void {
    if (!this.#dispatches.has(request)) this.dispatched(request, now);
    const dispatch = this.#dispatches.get(request)!;
    this.#dispatches.delete(request);
    const path = pathOf(request);
    if (this.#slots !== undefined) this.#slots.completed(request, path, report);
    else if (!this.#isExact) this.#learnFrom(report, path, dispatch);
    else this.#judgeUnfollowed(request, report, dispatch);
    this.#tree.insert(path, 'confirmed', now);
    this.#pruneToCapacity();
  }

  /**
   * The prompt never reached the cache: the part of the path that only this request had promised is taken back.
   * O(path).
   */
  failed(request: ServedRequest): void {
    const dispatch = this.#dispatches.get(request);
    if (dispatch === undefined) return;
    this.#dispatches.delete(request);
    this.#slots?.failed(request);
    this.#tree.withdraw(pathOf(request).keys, dispatch.access);
  }

  /** The engine has prefilled this path without a request: it is resident, and nothing is learned from it. O(path). */
  prewarmed(path: ServedRequest, now: number): void {
    this.#tree.insert(pathOf(path), 'confirmed', now);
    this.#slots?.dispatched(path, pathOf(path));
    this.#slots?.completed(path, pathOf(path), {});
    this.#pruneToCapacity();
  }

  /**
   * Another gateway sent this request to the engine: its documents were accessed, and its path counts as resident until
   * a request of our own finds otherwise. Where the engine's events are followed, these alone say what is there.
   * O(path).
   */
  received(request: ServedRequest, now: number): void {
    this.#statistics.record(request.documents.map((document) => document.key));
    this.#recent.record(request);
    const path = pathOf(request);
    if (!this.#isExact) this.#tree.insert(path, 'expected', now);
    this.#slots?.dispatched(request, path);
    this.#slots?.completed(request, path, {});
    this.#pruneToCapacity();
  }

  /** The engine's events say that this path is resident again. O(path). */
  restored(path: ServedPath, now: number): void {
    this.#tree.insert(path, 'confirmed', now);
  }

  /** The engine's events say that the end of this path is gone, and so is all behind it. O(path + removed). */
  removed(keys: readonly string[]): void {
    this.#tree.removePath(keys);
  }

  /** Forgets everything, for an engine that was restarted or whose cache was reset. */
  clear(): void {
    this.#tree.clear();
    this.#statistics.clear();
    this.#recent.clear();
    this.#predictions.clear();
    this.#ttft.clear();
    this.#slots?.clear();
    this.#capacity.clear();
  }

  #learnFrom(report: EngineReport, { tokens }: ServedPath, dispatch: Insertion): void {
    const total = sum(tokens);
    const { promptTokens, ttftMs } = report;
    let { cachedTokens } = report;
    if (cachedTokens === undefined && ttftMs !== undefined) {
      const believedTokens = PredictionRecord.confirmedTokens(tokens, dispatch);
      cachedTokens = this.#ttft.cachedTokens({ believedTokens, promptTokens: promptTokens ?? total, ttftMs });
    }
    if (cachedTokens === undefined) return;
    const { missing, exceeded } = this.#predictions.judge(tokens, dispatch, { cachedTokens, promptTokens });
    if (exceeded) this.#capacity.exceeded();
    if (this.#evictsLeastRecent) this.#learnCapacity(missing, total - cachedTokens);
  }

  /**
   * Events tell of the leading steps alone: what is missing behind them leaves the tree. It says nothing of other
   * paths, which events tell of.
   */
  #judgeUnfollowed(request: ServedRequest, { promptTokens, cachedTokens }: EngineReport, dispatch: Insertion): void {
    if (cachedTokens === undefined) return;
    const followed = this.#events!.followedSteps(this, request);
    if (followed >= dispatch.depth || dispatch.confirmedAt[followed] === 0) return;
    const { keys, tokens } = pathOf(request);
    const { missing, missingStep } = this.#predictions.judge(tokens, dispatch, { cachedTokens, promptTokens });
    if (missing > 0 && missingStep >= followed) this.#tree.removePath(keys.slice(0, missingStep + 1));
  }

  get #isExact(): boolean {
    return this.#events?.isExactFor(this) === true;
  }

  #pruneToCapacity(): void {
    if (!this.#isExact) this.#tree.pruneToTokens(this.#capacity.tokens);
  }

  /** `missing`: the access number of the last use of what was not there any more, 0 if all was. */
  #learnCapacity(missing: number, newTokens: number): void {
    if (missing === 0) {
      this.#capacity.served(Math.max(0, newTokens));
      return;
    }
    const believed = this.#tree.tokens;
    this.#tree.pruneUpTo(missing);
    this.#capacity.missed(believed, this.#tree.tokens);
  }
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

/** The path of a request in the knowledge tree: the preamble's steps, the preamble, the documents. O(k). */
export function pathOf(request: ServedRequest): ServedPath {
  const { documents, preamble } = request;
  const keys = documents.map((document) => document.key);
  const tokens = documents.map((document) => document.tokens);
  if (preamble === undefined) return { keys, tokens };
  const { steps = [] } = preamble;
  const before = sum(steps.map((step) => step.tokens));
  return {
    keys: [...steps.map(({ key }) => key), preamble.key, ...keys],
    tokens: [...steps.map((step) => step.tokens), preamble.tokens - before, ...tokens],
  };
}
