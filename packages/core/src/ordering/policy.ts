import type { Document } from '../document.js';
import type { Preamble } from '../preamble.js';
import type { ResidencyView } from '../residency/view.js';

/** The ordering policies, by the names that requests and configurations use. The lab has more, for experiments. */
export const POLICY_NAMES = ['retrieval', 'sorted', 'hotness', 'greedy', 'exact', 'foresight'] as const;

export type PolicyName = (typeof POLICY_NAMES)[number];

/**
 * The policy of requests that name none: never measurably worse than `exact`, and better where there is something to
 * win.
 */
export const DEFAULT_POLICY = 'foresight' satisfies PolicyName;

/** One request's documents, how far they may move, and what that costs. */
export interface Context {
  /** In retrieval order, without duplicates. */
  readonly documents: readonly Document[];
  readonly preamble: Preamble | undefined;
  /** Places a document may move from its retrieval rank; `undefined` for any number. */
  readonly maxShift: number | undefined;
  /** Retrieval ranks whose documents keep their place; sorted ascending. */
  readonly pinned: readonly number[];
  /**
   * Tokens that each place costs by which a document moves from its retrieval rank; nothing where left out. `greedy`,
   * `exact` and `foresight` weigh it against the tokens that an order saves; the other policies weigh nothing.
   */
  readonly shiftPrice?: number | undefined;
  /**
   * The documents of requests known to be waiting for the same engine behind the same preamble, in the order they will
   * be served. Only `foresight` reads them, and only the first 64.
   */
  readonly waiting?: readonly (readonly Document[])[] | undefined;
  /** Tokens of the hint that an order needs; absent where no hint is written. O(k). */
  readonly hintTokens?: ((order: readonly number[]) => number) | undefined;
}

/**
 * What the answer is where the policy's search would have taken more operations than it may: planned by `chains`
 * instead of subsets of the documents; by `known` waiting requests, the first ones, instead of all; that of `exact`; or
 * `partial`, the best path found until then.
 */
export type CutShort = 'chains' | 'known' | 'exact' | 'partial';

/** A policy's answer. */
export interface Ordering {
  /** `order[p]` is the retrieval rank of the document at place `p` of the prompt: a permutation of 0..k-1. */
  readonly order: readonly number[];
  /** How many leading documents of `order` the view holds as a path behind the preamble. */
  readonly cachedDocuments: number;
  /** Tokens of that path, the preamble's included. */
  readonly cachedTokens: number;
  /** Present where the search was cut short. */
  readonly cutShort?: CutShort | undefined;
  /**
   * Tokens that later requests are expected to save by this order, above what retrieval order would leave them; 0 for a
   * policy that does not look ahead. Left out by policies whose order is a convention: it is kept whatever its hint
   * costs.
   */
  readonly laterTokens?: number;
}

/**
 * Chooses a document order. Pure: same context, view and now, same answer. A policy never invents or loses a document,
 * and always keeps within `maxShift` and `pinned` (the conformance suite holds every policy to it).
 */
export interface OrderingPolicy {
  /** Stands in the trace. */
  readonly name: string;
  arrange(context: Context, view: ResidencyView, now: number): Ordering;
}
