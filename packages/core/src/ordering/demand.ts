import type { Document } from '../document.js';
import { SURVIVAL_RANKS } from '../residency/request-statistics.js';
import type { ResidencyView } from '../residency/view.js';
import { BEST_PATH_MAX_OPERATIONS } from '../tree/operation-budget.js';
import type { CachedPaths } from './cached-paths.js';
import type { ConstraintRule } from './placement.js';
import type { Context } from './policy.js';
import { ranksIn } from './subset-plan.js';

/** Waiting requests that are looked at, the first ones. */
const MAX_WAITING = 64;
/** Documents of a waiting request that are looked at, the highest ranked ones. */
const MAX_WAITING_DOCUMENTS = 64;
/** Recent requests of which the overlap is looked at. */
const MAX_RECENT = 128;
/** Weight of the recent requests in the horizon beside rank survival; tuned, see docs/research/foresight.md. */
const RECENT_WEIGHT = 0.3;
/** Sets that fewer requests are expected to keep are left out. */
const MIN_EXPECTED_REQUESTS = 1e-4;

/** A coming request, as far as it shares documents with the context. */
export interface Wish {
  /** The shared documents: a bit mask by retrieval rank. */
  readonly set: number;
  /** How many requests it counts as. */
  readonly weight: number;
  /** Tokens that it will find cached without this context; `undefined` for expected requests. */
  readonly heldTokens: number | undefined;
}

/** What coming requests will want of a context. */
export interface Demand {
  /** Known requests first, then those that recent requests let expect. */
  readonly wishes: readonly Wish[];
  /** How many of `wishes` are of waiting requests. */
  readonly waiting: number;
  /** Whether all waiting requests are in it. */
  readonly isComplete: boolean;
}

/** What the planners of `foresight` plan for. */
export interface ForesightProblem {
  /** In retrieval order. */
  readonly documents: readonly Document[];
  readonly demand: Demand;
  readonly rule: ConstraintRule | undefined;
}

export interface PlannedOrder {
  /** Retrieval ranks in prompt order. */
  readonly order: readonly number[];
  /** Tokens that later requests are expected to save with what an order leaves behind its first `cached` documents. */
  laterTokens(order: readonly number[], cached: number): number;
}

export interface DemandLimits {
  /** Operations of the waiting requests' best paths together. */
  readonly maxOperations?: number;
  /** Operations of one of them. */
  readonly maxForOne?: number;
}

/**
 * Collects what coming requests will want of a context. Waiting requests beyond the limits are left out. O(waiting² × k
 * + window × k + 256) beside the best paths.
 */
export function collectDemand(context: Context, view: ResidencyView, limits: DemandLimits = {}): Demand {
  const wishes: Wish[] = [];
  const isComplete = collectWaiting(wishes, context, view, limits);
  const waiting = wishes.length;
  // No other request follows what stands before a later turn of a conversation.
  if (context.preamble?.steps === undefined) collectExpected(wishes, context, view);
  return { wishes, waiting, isComplete };
}

/** Steps that comparing the waiting requests takes. O(waiting). */
export function waitingCost(waiting: readonly (readonly Document[])[]): number {
  const looked = waiting.slice(0, MAX_WAITING);
  const documents = looked.reduce((sum, request) => sum + Math.min(request.length, MAX_WAITING_DOCUMENTS), 0);
  return documents * (looked.length + 1);
}

/** Tokens that a request will find cached without this context. */
export function heldTokensOf({ heldTokens, set }: Wish, paths: CachedPaths): number {
  return heldTokens ?? paths.longestWithin(set);
}

/**
 * A waiting request may follow another waiting one instead of this context: it weighs `shared / (shared + most tokens
 * shared with another)`, 1 if it shares nothing with another.
 */
function collectWaiting(wishes: Wish[], context: Context, view: ResidencyView, limits: DemandLimits): boolean {
  const { documents, waiting = [], preamble } = context;
  const { maxOperations = BEST_PATH_MAX_OPERATIONS, maxForOne = maxOperations } = limits;
  let operationsLeft = maxOperations;
  const requests = new WaitingRequests(documents, waiting);
  for (let i = 0; i < requests.count; i++) {
    const set = requests.sharedSet(i);
    if (set === 0) continue;
    const request = waiting[i]!;
    const path = view.bestPath(request, preamble, undefined, Math.min(operationsLeft, maxForOne));
    operationsLeft -= path.operations;
    if (!path.isComplete) return false;
    const elsewhere = requests.mostShared(i);
    const shared = ranksIn(set).reduce((sum, rank) => sum + documents[rank]!.tokens, 0);
    wishes.push({
      set,
      weight: elsewhere === 0 ? 1 : 1 - elsewhere / (elsewhere + shared),
      heldTokens: path.order.reduce((sum, rank) => sum + request[rank]!.tokens, 0),
    });
  }
  return true;
}

function collectExpected(wishes: Wish[], { documents, preamble }: Context, { recent }: ResidencyView): void {
  const ranks = 2 ** documents.length - 1;
  for (let kept = 1; kept < 1 << SURVIVAL_RANKS; kept++) {
    const expected = recent.survival(kept);
    // Learned from longer contexts too, of which this one has the first ranks.
    const set = kept & ranks;
    if (expected > MIN_EXPECTED_REQUESTS && set !== 0) wishes.push({ set, weight: expected, heldTokens: undefined });
  }
  // Where documents seldom come back, older requests say nothing about coming ones.
  const weight = RECENT_WEIGHT * recent.horizonShare * Math.min(1, recent.recurrence);
  if (weight === 0) return;
  const overlaps = new Int32Array(MAX_RECENT);
  const found = recent.overlaps(documents, preamble, overlaps);
  for (const set of overlaps.subarray(0, found)) wishes.push({ set, weight, heldTokens: undefined });
}

/** Documents that waiting requests share with a context and with each other, compared by number. */
class WaitingRequests {
  readonly #ranks: number;
  readonly #requests: readonly (readonly { readonly number: number; readonly tokens: number }[])[];
  /** By number: tokens of one request's documents while others are compared with it, else 0. */
  readonly #tokensOf: number[];

  /** Documents of the context are numbered by rank. O(documents of all). */
  constructor(documents: readonly Document[], waiting: readonly (readonly Document[])[]) {
    const numbers = new Map(documents.map(({ key }, rank) => [key, rank]));
    this.#ranks = documents.length;
    this.#requests = waiting.slice(0, MAX_WAITING).map((request) =>
      request.slice(0, MAX_WAITING_DOCUMENTS).map(({ key, tokens }) => {
        const number = numbers.get(key) ?? numbers.size;
        numbers.set(key, number);
        return { number, tokens };
      }),
    );
    this.#tokensOf = new Array(numbers.size).fill(0);
  }

  get count(): number {
    return this.#requests.length;
  }

  /** The documents of the context that a request wants too, as a bit mask by rank. O(k). */
  sharedSet(request: number): number {
    let set = 0;
    for (const { number } of this.#requests[request]!) if (number < this.#ranks) set |= 1 << number;
    return set;
  }

  /** Tokens that a request shares with the other request with which it shares most. O(waiting × k). */
  mostShared(request: number): number {
    const tokensOf = this.#tokensOf;
    for (const { number, tokens } of this.#requests[request]!) tokensOf[number] = tokens;
    let most = 0;
    for (const [other, documents] of this.#requests.entries()) {
      if (other === request) continue;
      let shared = 0;
      for (const { number } of documents) shared += tokensOf[number]!;
      most = Math.max(most, shared);
    }
    for (const { number } of this.#requests[request]!) tokensOf[number] = 0;
    return most;
  }
}

/** What the worth of reuse by expected requests counts beside that of waiting ones, which are certain. */
const EXPECTED_BESIDE_WAITING = 0.05;

/** How fast the worth of a path saturates with the requests that wait for it. */
const WAITING_RATE = 2;

/** What later reuse counts against tokens that are cached now, when it is only expected. */
const EXPECTED_LATER = 0.8;

/**
 * Share of a path's tokens that leaving it behind will save, when so many requests could use it and find nothing as
 * long. It saturates: of all who would use the path only the first would have had to create it. In [0, 1.1). O(1).
 */
export function worthOf(waiting: number, expected: number, queueKnown: boolean): number {
  const byExpected = expected === 0 ? 0 : 1 - Math.exp(-expected);
  if (!queueKnown) return byExpected;
  return (waiting === 0 ? 0 : 1 - Math.exp(-WAITING_RATE * waiting)) + EXPECTED_BESIDE_WAITING * byExpected;
}

/**
 * How much a request counts that finds `held` tokens cached anyway, for a path of `tokens`: fully if the path takes it
 * a document of mean length further, else in part, and not at all if it takes it no further. In [0, 1]. O(1).
 */
export function shareGained(tokens: number, held: number, meanLength: number): number {
  const gained = tokens - held;
  if (gained <= 0) return 0;
  return gained >= meanLength ? 1 : gained / meanLength;
}

/** What a token saved later counts, when a token saved now counts 1. */
export function weightOfLater(queueKnown: boolean): number {
  return queueKnown ? 1 : EXPECTED_LATER;
}

/** Deviation of lengths, as a share of their mean, from which on a guessed demand is trusted. */
const MIN_LENGTH_DEVIATION = 0.15;

/**
 * Whether the lengths of documents differ enough to plan by what recent requests let expect alone. What differs in
 * length is known; which documents come back is a guess, and among documents of like length plans by it lost as often
 * as they won (docs/research/foresight.md). O(k).
 */
export function lengthsDiffer(documents: readonly Document[]): boolean {
  let sum = 0;
  let squares = 0;
  for (const { tokens } of documents) {
    sum += tokens;
    squares += tokens * tokens;
  }
  const mean = sum / documents.length;
  return squares / documents.length - mean * mean >= (MIN_LENGTH_DEVIATION * mean) ** 2 && sum > 0;
}
