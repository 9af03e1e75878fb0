import type { Document } from '../document.js';
import type { Preamble } from '../preamble.js';
import type { ResidencyView } from '../residency/view.js';

/** Names of the ordering policies. The lab has more, for experiments. */
export const POLICY_NAMES = ['retrieval', 'sorted', 'hotness', 'greedy', 'exact', 'foresight'] as const;

export type PolicyName = (typeof POLICY_NAMES)[number];

/** Default policy: never measurably worse than `exact`, and better with waiting requests or unequal documents. */
export const DEFAULT_POLICY = 'foresight' satisfies PolicyName;

/** Input of a policy: one request's documents and constraints. */
export interface Context {
  /** In retrieval order, without duplicates. */
  readonly documents: readonly Document[];
  readonly preamble: Preamble | undefined;
  /** Places that a document may move from its retrieval rank; `undefined` for any number. */
  readonly maxShift: number | undefined;
  /** Retrieval ranks whose documents keep their place; sorted ascending. */
  readonly pinned: readonly number[];
  /** Price in tokens of each place that a document moves. Default 0. Only `greedy`, `exact` and `foresight` use it. */
  readonly shiftPrice?: number | undefined;
  /**
   * Documents of requests that wait for the same engine with the same preamble, in the order in which they will be
   * served. Only `foresight` reads them, the first 64.
   */
  readonly waiting?: readonly (readonly Document[])[] | undefined;
  /** Tokens of the hint that an order needs; absent if no hint is written. O(k). */
  readonly hintTokens?: ((order: readonly number[]) => number) | undefined;
}

/**
 * What a policy returned because its search reached the limit of operations: a plan by `chains` instead of subsets; a
 * plan for the first (`known`) waiting requests only; the order of `exact`; or `partial`, the best path so far.
 */
export type CutShort = 'chains' | 'known' | 'exact' | 'partial';

/** Result of a policy. */
export interface Ordering {
  /** `order[p]` is the retrieval rank of the document at place `p` of the prompt: a permutation of 0..k-1. */
  readonly order: readonly number[];
  /** Leading documents of `order` that are cached behind the preamble. */
  readonly cachedDocuments: number;
  /** Tokens of these and of the preamble. */
  readonly cachedTokens: number;
  /** Set if the search reached its limit of operations. */
  readonly cutShort?: CutShort | undefined;
  /**
   * Tokens that later requests are expected to save, compared with retrieval order. 0 for a policy that does not look
   * ahead. A policy without it keeps its order whatever the hint costs.
   */
  readonly laterTokens?: number;
}

/**
 * Chooses a document order. Pure: same context, view and now, same result. Never loses or adds a document; respects
 * `maxShift` and `pinned` (held by the conformance suite).
 */
export interface OrderingPolicy {
  /** Name in the trace. */
  readonly name: string;
  arrange(context: Context, view: ResidencyView, now: number): Ordering;
}
