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

/** Which prompts of a history the KV events of the engine cover. */
export interface EventCoverage {
  /** Whether the events are complete, and name the blocks of the prompts of this history. */
  isExactFor(history: ServedHistory): boolean;
  /** Leading steps of the request's path that the events cover. */
  followedSteps(history: ServedHistory, request: ServedRequest): number;
}

export interface ServedHistoryOptions {
  /** Bounds of the knowledge tree. */
  readonly tree?: KnowledgeTreeOptions;
  /** Window and bound of the access statistics. */
  readonly hotness?: DocumentStatisticsOptions;
  /**
   * Milliseconds after which unused paths are forgotten, for engines that keep a cache for a limited time. Default:
   * never.
   */
  readonly maxAgeMs?: number;
  /**
   * Whether the engine evicts the least recently used tokens (vLLM, SGLang, the embedded engine). Then a missing
   * document shows that everything used before it is gone too. Default true; false for engines that cache by slot
   * (llama-server) and for hosted APIs, where a miss may only mean another machine.
   */
  readonly evictsLeastRecent?: boolean;
  /**
   * The slots of an engine that keeps whole prompts in them (llama-server). Histories of one engine share them, each
   * under its own name, because their requests evict each other's prompts.
   */
  readonly slots?: { readonly prompts: PromptSlots; readonly name: string };
  /** The engine's KV events (`EventResidency`), if it publishes them. They decide what is resident. */
  readonly events?: EventCoverage;
}

/** The part of an arrangement that a history needs. Also the identity of the request. */
export interface ServedRequest {
  /** In prompt order. */
  readonly documents: readonly Document[];
  readonly preamble: Preamble | undefined;
  /** `order[p]` is the retrieval rank of `documents[p]`. Default: prompt order is retrieval order. */
  readonly order?: readonly number[];
}

/**
 * Residency by the requests served recently. Works with every engine; the least certain source. One instance for each
 * engine, tenant and model.
 *
 * A path counts as resident from its dispatch until the request fails. Cached tokens that the engine reports correct
 * the history. State changes through `observe` only. Everything is bounded.
 */
export class ServedHistory implements ResidencyView {
  readonly #tree: KnowledgeTree;
  readonly #statistics: DocumentStatistics;
  readonly #recent = new RecentRequests();
  readonly #predictions = new PredictionRecord();
  readonly #capacity = new CapacityEstimate();
  readonly #dispatches = new WeakMap<ServedRequest, Insertion>();
  readonly #maxAgeMs: number;
  readonly #evictsLeastRecent: boolean;
  readonly #events: EventCoverage | undefined;
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
   * `exact` while KV events cover this history; `degraded` while most of the checked predictions were wrong; `modelled`
   * with slots; else `history`.
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

  /** Estimated bytes held. O(1). */
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

  /** A request is sent to the engine: its path becomes resident, and its documents were used. O(path). */
  dispatched(request: ServedRequest, now: number): void {
    this.#statistics.record(request.documents.map((document) => document.key));
    this.#recent.record(request);
    this.#dispatches.set(request, this.#tree.insert(pathOf(request), 'expected', now));
    this.#slots?.dispatched(request, pathOf(request));
    this.#pruneToCapacity();
    if (this.#maxAgeMs !== Number.POSITIVE_INFINITY) this.#tree.pruneUsedBefore(now - this.#maxAgeMs);
  }

  /**
   * The engine has prefilled the prompt: its path is resident. The reported cached tokens, if any, are compared with
   * the prediction. If the engine evicts by last use, everything used before the first missing document is removed, and
   * the capacity is learned (`CapacityEstimate`). While events are exact, only steps that they do not cover are
   * compared. O(path + removed).
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

  /** The prompt was not prefilled: removes the part of the path that only this request added. O(path). */
  failed(request: ServedRequest): void {
    const dispatch = this.#dispatches.get(request);
    if (dispatch === undefined) return;
    this.#dispatches.delete(request);
    this.#slots?.failed(request);
    this.#tree.withdraw(pathOf(request).keys, dispatch.access);
  }

  /** The engine has prefilled this path without a request. Nothing is learned from it. O(path). */
  prefilled(path: ServedRequest, now: number): void {
    this.#tree.insert(pathOf(path), 'confirmed', now);
    this.#slots?.dispatched(path, pathOf(path));
    this.#slots?.completed(path, pathOf(path), {});
    this.#pruneToCapacity();
  }

  /**
   * Another gateway sent this request to the engine: its documents were used, and its path counts as resident until an
   * own request finds otherwise. While events are exact, only they decide what is resident. O(path).
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

  /** KV events say that this path is resident again. O(path). */
  restored(path: ServedPath, now: number): void {
    this.#tree.insert(path, 'confirmed', now);
  }

  /** KV events say that the last step of this path, and all behind it, is gone. O(path + removed). */
  removed(keys: readonly string[]): void {
    this.#tree.removePath(keys);
  }

  /** Forgets everything, for an engine that was restarted or whose cache was reset. */
  clear(): void {
    this.#tree.clear();
    this.#statistics.clear();
    this.#recent.clear();
    this.#predictions.clear();
    this.#slots?.clear();
    this.#capacity.clear();
  }

  #learnFrom(report: EngineReport, { tokens }: ServedPath, dispatch: Insertion): void {
    const { cachedTokens } = report;
    if (cachedTokens === undefined) return;
    const { missing, exceeded } = this.#predictions.judge(tokens, dispatch, { ...report, cachedTokens });
    if (exceeded) this.#capacity.exceeded();
    if (this.#evictsLeastRecent) this.#learnCapacity(missing, sum(tokens) - cachedTokens);
  }

  /** Compares steps that KV events do not cover. Missing steps leave the tree; other paths are not affected. */
  #judgeUnfollowed(request: ServedRequest, report: EngineReport, dispatch: Insertion): void {
    const { cachedTokens } = report;
    if (cachedTokens === undefined) return;
    const followed = this.#events!.followedSteps(this, request);
    if (followed >= dispatch.depth || dispatch.confirmedAt[followed] === 0) return;
    const { keys, tokens } = pathOf(request);
    const { missing, missingStep } = this.#predictions.judge(tokens, dispatch, { ...report, cachedTokens });
    if (missing > 0 && missingStep >= followed) this.#tree.removePath(keys.slice(0, missingStep + 1));
  }

  get #isExact(): boolean {
    return this.#events?.isExactFor(this) === true;
  }

  #pruneToCapacity(): void {
    if (!this.#isExact) this.#tree.pruneToTokens(this.#capacity.tokens);
  }

  /** @param missing access number of the last use of the missing step; 0 if none was missing */
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

/** The path of a request in the knowledge tree: steps of the preamble, the preamble, the documents. O(k). */
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
