import type { Document } from '../document.js';
import { SURVIVAL_RANKS } from '../residency/request-statistics.js';
import type { ResidencyView } from '../residency/view.js';
import { BEST_PATH_MAX_OPERATIONS } from '../tree/best-path.js';
import type { CachedPaths } from './cached-paths.js';
import type { ConstraintRule } from './placement.js';
import type { Context } from './policy.js';
import { ranksIn } from './subset-plan.js';

/** Waiting requests that are read, the first ones. */
const MAX_WAITING = 64;
/** Documents of a waiting request that are read, those ranked highest. */
const MAX_WAITING_DOCUMENTS = 64;
/** Recent requests that are read. */
const MAX_RECENT = 128;
/** Weight of a recent request beside rank survival. Tuned: docs/research/foresight.md. */
const RECENT_WEIGHT = 0.3;
/** Sets of ranks that fewer requests are expected to keep are ignored. */
const MIN_EXPECTED_REQUESTS = 1e-4;

/** The documents that a coming request shares with the context. */
export interface ComingRequest {
  /** The shared documents: a bit mask by retrieval rank. */
  readonly set: number;
  /** How many requests it counts as. */
  readonly weight: number;
  /** Tokens that it will find cached without this context; `undefined` for an expected request. */
  readonly cachedTokens: number | undefined;
}

/** The coming requests that share documents with a context. */
export interface Demand {
  /** The waiting requests first, then expected ones. */
  readonly requests: readonly ComingRequest[];
  /** How many of `requests` wait. */
  readonly waitingCount: number;
  /** Whether no waiting request was left out. */
  readonly isComplete: boolean;
}

/** Input of the planners of `foresight`. */
export interface ForesightProblem {
  /** In retrieval order. */
  readonly documents: readonly Document[];
  readonly demand: Demand;
  readonly rule: ConstraintRule;
}

export interface PlannedOrder {
  /** Retrieval ranks in prompt order. */
  readonly order: readonly number[];
  /** Tokens that later requests are expected to save by the documents behind the first `cached` of an order. */
  laterTokens(order: readonly number[], cached: number): number;
}

export interface DemandLimits {
  /** Operations for the best paths of all waiting requests. */
  readonly maxOperations?: number;
  /** Operations for the best path of one waiting request. */
  readonly maxForOne?: number;
}

/**
 * Collects the coming requests that share documents with a context, within the limits. O(waiting² × k + window × k +
 * 256) beside the best paths.
 */
export function collectDemand(context: Context, view: ResidencyView, limits: DemandLimits = {}): Demand {
  const requests: ComingRequest[] = [];
  const isComplete = collectWaiting(requests, context, view, limits);
  const waitingCount = requests.length;
  // No other request has the preamble of a later turn of a conversation.
  if (context.preamble?.steps === undefined) collectExpected(requests, context, view);
  return { requests, waitingCount, isComplete };
}

/** Operations that comparing the waiting requests takes. O(waiting). */
export function waitingCost(waiting: readonly (readonly Document[])[]): number {
  const compared = waiting.slice(0, MAX_WAITING);
  const documents = compared.reduce((sum, request) => sum + Math.min(request.length, MAX_WAITING_DOCUMENTS), 0);
  return documents * (compared.length + 1);
}

/** Tokens that a coming request will find cached without this context. */
export function cachedTokensOf({ cachedTokens, set }: ComingRequest, paths: CachedPaths): number {
  return cachedTokens ?? paths.longestWithin(set);
}

/**
 * Collects the waiting requests. One that could also reuse the prompt of another waiting request weighs `shared /
 * (shared + most tokens shared with another)`.
 */
function collectWaiting(
  requests: ComingRequest[],
  context: Context,
  view: ResidencyView,
  limits: DemandLimits,
): boolean {
  const { documents, waiting = [], preamble } = context;
  const { maxOperations = BEST_PATH_MAX_OPERATIONS, maxForOne = maxOperations } = limits;
  let operationsLeft = maxOperations;
  const compared = new WaitingRequests(documents, waiting);
  for (let i = 0; i < compared.count; i++) {
    const set = compared.sharedSet(i);
    if (set === 0) continue;
    const request = waiting[i]!;
    const path = view.bestPath(request, preamble, undefined, Math.min(operationsLeft, maxForOne));
    operationsLeft -= path.operations;
    if (!path.isComplete) return false;
    const sharedElsewhere = compared.mostShared(i);
    const shared = ranksIn(set).reduce((sum, rank) => sum + documents[rank]!.tokens, 0);
    requests.push({
      set,
      weight: sharedElsewhere === 0 ? 1 : 1 - sharedElsewhere / (sharedElsewhere + shared),
      cachedTokens: path.order.reduce((sum, rank) => sum + request[rank]!.tokens, 0),
    });
  }
  return true;
}

function collectExpected(requests: ComingRequest[], { documents, preamble }: Context, { recent }: ResidencyView): void {
  const ranks = 2 ** documents.length - 1;
  for (let kept = 1; kept < 1 << SURVIVAL_RANKS; kept++) {
    const expected = recent.survival(kept);
    // Survival is learned from longer contexts too. This context has the first ranks of these.
    const set = kept & ranks;
    if (expected > MIN_EXPECTED_REQUESTS && set !== 0)
      requests.push({ set, weight: expected, cachedTokens: undefined });
  }
  // Where documents seldom recur, older requests predict nothing.
  const weight = RECENT_WEIGHT * recent.horizonShare * Math.min(1, recent.recurrence);
  if (weight === 0) return;
  const overlaps = new Int32Array(MAX_RECENT);
  const found = recent.overlaps(documents, preamble, overlaps);
  for (const set of overlaps.subarray(0, found)) requests.push({ set, weight, cachedTokens: undefined });
}

/** The documents that waiting requests share with a context and with each other. Compares numbers. */
class WaitingRequests {
  readonly #ranks: number;
  readonly #requests: readonly (readonly { readonly number: number; readonly tokens: number }[])[];
  /** By number: tokens of the documents of the request being compared, else 0. */
  readonly #tokensOf: number[];

  /** Numbers the documents; those of the context by rank. O(documents of all). */
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

  /** The documents that a request shares with the context, as a bit mask by rank. O(k). */
  sharedSet(request: number): number {
    let set = 0;
    for (const { number } of this.#requests[request]!) if (number < this.#ranks) set |= 1 << number;
    return set;
  }

  /** The most tokens that a request shares with another request. O(waiting × k). */
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

/** Weight of reuse by expected requests beside reuse by waiting ones, which is certain. */
const EXPECTED_BESIDE_WAITING = 0.05;

/** How fast the value of a path saturates with the waiting requests that can use it. */
const WAITING_RATE = 2;

/** Weight of a token saved later beside a token cached now, when later reuse is only expected. */
const EXPECTED_LATER = 0.8;

/**
 * Expected reuse of a path that a prompt leaves in the cache, as a share of its tokens. In [0, 1.1). O(1).
 *
 * @param waiting waiting requests that could use it and find no path as long; `expected` likewise
 *
 * The value saturates, because only the first of these requests would have to compute the path.
 */
export function reuseShare(waiting: number, expected: number, queueKnown: boolean): number {
  const byExpected = expected === 0 ? 0 : 1 - Math.exp(-expected);
  if (!queueKnown) return byExpected;
  return (waiting === 0 ? 0 : 1 - Math.exp(-WAITING_RATE * waiting)) + EXPECTED_BESIDE_WAITING * byExpected;
}

/**
 * Weight of a request that finds `cached` tokens without a path of `tokens`: 1 if the path is longer by a document of
 * mean length, less if it is longer by less, 0 if it is no longer. O(1).
 */
export function gainShare(tokens: number, held: number, meanLength: number): number {
  const gained = tokens - held;
  if (gained <= 0) return 0;
  return gained >= meanLength ? 1 : gained / meanLength;
}

/** Weight of a token saved later beside a token saved now. */
export function laterWeight(queueKnown: boolean): number {
  return queueKnown ? 1 : EXPECTED_LATER;
}
