import type { Document } from '../document.js';
import type { Preamble } from '../preamble.js';
import type { OperationBudget } from '../tree/best-path.js';
import type { CachedPath, KnowledgeTreeView, PlacementRule } from '../tree/view.js';

/** How a view knows what the engine holds. */
export type ResidencyState = 'exact' | 'modelled' | 'history' | 'degraded';

/** Access statistics of documents in the sliding window of recent requests (the CA-Table of the CP-Tree paper). */
export interface HotnessView {
  /** Requests in the window that had this document. O(1). */
  frequency(key: string): number;
  /** Requests that had this document since the table remembers it. O(1). */
  total(key: string): number;
  /** Number of the last request that had this document, from 1; 0 if none. O(1). */
  lastSeen(key: string): number;
}

/** Statistics of recent requests, to predict coming ones. */
export interface RecentRequestsView {
  /**
   * The documents that each recent request with the same preamble shares with `documents`, as bit masks by index (below
   * 30). Writes to the start of `masks`; returns how many there are. O(window × k).
   */
  overlaps(documents: readonly Document[], preamble: Preamble | undefined, masks: Int32Array): number;
  /**
   * Of the 20 requests after one, how many keep exactly these retrieval ranks of it (a bit mask of the first 8). O(1).
   */
  survival(ranks: number): number;
  /** Of the 20 requests after one, how many keep any of its first 8 ranks. O(1). */
  readonly recurrence: number;
  /** Requests that `survival` covers, as a share of those that `overlaps` covers. */
  readonly horizonShare: number;
}

/** Predictions for an engine that keeps whole prompts in slots (`PromptSlots`). */
export interface SlotsView {
  /**
   * Tokens that the engine would reuse of a prompt with the documents in this order. Only reads as many stored prompts
   * as the budget allows.
   */
  predict(documents: readonly Document[], preamble: Preamble | undefined, budget: OperationBudget): number;
  /**
   * Orders of documents with which a stored prompt begins and which `rule` allows: retrieval ranks, each start once,
   * those of most tokens first, at most 64. Only reads as many stored prompts as the budget allows. O(prompts + starts
   * × k).
   */
  starts(
    documents: readonly Document[],
    preamble: Preamble | undefined,
    rule: PlacementRule | undefined,
    budget: OperationBudget,
  ): readonly (readonly number[])[];
  /** Least share of a stored prompt that a new one must keep to reuse it. */
  readonly leastKept: number;
}

/** The state that an ordering policy reads. */
export interface ResidencyView {
  readonly state: ResidencyState;
  /** Present for an engine that keeps whole prompts in slots. It predicts reuse; the tree only has what was sent. */
  readonly slots?: SlotsView | undefined;
  readonly tree: KnowledgeTreeView;
  readonly hotness: HotnessView;
  readonly recent: RecentRequestsView;
  /** Requests dispatched so far. A deterministic seed for policies. */
  readonly requests: number;
  /**
   * The resident path over `documents`, in any order that `rule` allows, that saves most tokens; among equals the first
   * in lexicographic order of ranks. Takes at most `maxOperations` (default 65,536).
   */
  bestPath(
    documents: readonly Document[],
    preamble: Preamble | undefined,
    rule: PlacementRule | undefined,
    maxOperations?: number,
  ): CachedPath;
}
