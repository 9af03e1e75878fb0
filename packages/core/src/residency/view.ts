import type { Document } from '../document.js';
import type { Preamble } from '../preamble.js';
import type { OperationBudget } from '../tree/operation-budget.js';
import type { CachedPath, KnowledgeTreeView, PlacementRule } from '../tree/view.js';

/** How well a view knows what the engine holds (DESIGN, vocabulary). */
export type ResidencyState = 'exact' | 'modelled' | 'history' | 'degraded';

/** Access statistics of documents in the sliding window of recent requests (the CA-Table of the CP-Tree paper). */
export interface HotnessView {
  /** Requests in the window that held this document. O(1). */
  frequency(key: string): number;
  /** Requests since the start that held this document, as far as the bounded table remembers. O(1). */
  total(key: string): number;
  /** Number of the request that held this document last, counted from 1; 0 if never seen. O(1). */
  lastSeen(key: string): number;
}

/** What recent requests tell about coming ones. Learned in `observe` alone. */
export interface RecentRequestsView {
  /**
   * For each recent request behind the same preamble that held some of `documents`: which ones, as a bit mask by index
   * (documents from index 30 on are left out). Fills `masks` from the front and returns how many there are. O(window ×
   * k).
   */
  overlaps(documents: readonly Document[], preamble: Preamble | undefined, masks: Int32Array): number;
  /**
   * Of the 20 requests that follow one, how many keep exactly these retrieval ranks of it (a bit mask of the first 8).
   * O(1).
   */
  survival(ranks: number): number;
  /** Of the 20 requests that follow one, how many keep any of its first 8 ranks. O(1). */
  readonly recurrence: number;
  /** The requests that look-ahead reckons with, as a share of those that `overlaps` looks at. */
  readonly horizonShare: number;
}

/** What an engine that keeps whole prompts in slots would give (`PromptSlots`). */
export interface SlotsView {
  /**
   * Tokens that the engine would reuse of a prompt with the documents in this order, by those held prompts that the
   * budget leaves room to look at. Cost: that of `PromptSlots`.
   */
  predict(documents: readonly Document[], preamble: Preamble | undefined, budget: OperationBudget): number;
  /**
   * The starts that held prompts and these documents have in common, in any order that `rule` allows: retrieval ranks
   * in prompt order, each start once, the longest of tokens first; at most 64 are returned, of the prompts that the
   * budget leaves room to look at. O(prompts + starts × k).
   */
  starts(
    documents: readonly Document[],
    preamble: Preamble | undefined,
    rule: PlacementRule | undefined,
    budget: OperationBudget,
  ): readonly (readonly number[])[];
  /** Least share of a held prompt that a new one must keep for it to be reused at all. */
  readonly leastKept: number;
}

/** Read-only state that an ordering policy may look at. */
export interface ResidencyView {
  readonly state: ResidencyState;
  /** Present where the engine keeps whole prompts in slots: it tells what is reused, and the tree what was sent. */
  readonly slots?: SlotsView | undefined;
  readonly tree: KnowledgeTreeView;
  readonly hotness: HotnessView;
  readonly recent: RecentRequestsView;
  /** Requests observed so far; a deterministic source for seeded policies. */
  readonly requests: number;
  /**
   * The resident path of `documents`, in any order that `rule` allows, that saves most tokens; among equals the first
   * in lexicographic order of ranks. Takes at most `maxOperations`; see tree/best-path.ts. Default 65,536.
   */
  bestPath(
    documents: readonly Document[],
    preamble: Preamble | undefined,
    rule: PlacementRule | undefined,
    maxOperations?: number,
  ): CachedPath;
}
