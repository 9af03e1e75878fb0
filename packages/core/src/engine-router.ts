import { contextOf, policyOf } from './arrange.js';
import type { ArrangeRequest } from './arrangement.js';
import { ConstraintRule, isFree } from './ordering/placement.js';
import type { ResidencyView } from './residency/view.js';

/** Policies whose order follows the cached path that saves most, or gives it up for more. */
const CACHE_AWARE: ReadonlySet<string> = new Set(['exact', 'foresight']);

/**
 * What each of several engines would reuse of a request if it were arranged for that engine, without arranging it:
 * tokens of the best path under its residency that the request's policy and constraints allow, before what the order's
 * hint costs. The answer is a function of an engine's view. Cost of an answer: that of the best path
 * (`tree/best-path.ts`); the documents' keys are hashed once for all engines.
 *
 * @throws what `arrange` throws for the same request
 */
export function expectedCachedTokens(request: ArrangeRequest, now: number): (view: ResidencyView) => number {
  const policy = policyOf(request);
  const context = contextOf(request);
  const { documents, preamble } = context;
  if (!CACHE_AWARE.has(policy.name)) return (view) => policy.arrange(context, view, now).cachedTokens;
  const rule = isFree(context) ? undefined : new ConstraintRule(documents.length, context);
  return (view) => view.bestPath(documents, preamble, rule).tokens;
}

/** One engine that could take a request. Tokens are estimates, all in the same unit. */
export interface RouteCandidate {
  /** The engine's number, which is never another one's. */
  readonly engine: number;
  /** Prompt tokens that it was given and has still to compute. */
  readonly pendingTokens: number;
  /** How fast it is beside the others; 1 if left out. */
  readonly weight?: number;
}

/** Where a request goes, and what was weighed. */
export interface Route {
  /** Place of the chosen engine among the candidates. */
  readonly place: number;
  /** Tokens of the request that it has to compute. */
  readonly newTokens: number;
  /** Tokens that stand before the end of its prefill, with what they push out of the cache, at a weight of 1. */
  readonly cost: number;
}

/** Requests of one engine that count as recent, and those over which the cached share is a moving average. */
const RECENT_REQUESTS = 32;
const SHARE_REQUESTS = 100;
/** Before anything is known. */
const FIRST_CACHED_SHARE = 0.5;

/**
 * Chooses the engine of each request: where the fewest tokens stand between the request and its first token, those
 * pending and its own, counting what its own push out of that cache. A token pushed out is worth as much as tokens are
 * reused, and the more the faster the cache turns over (`bench:fleet` of the lab compares it with other rules). Equals
 * are taken in turn. Deterministic: the same requests, the same engines.
 *
 * It is its own memory of what each engine was given, which `choose` alone changes.
 */
export class EngineRouter {
  /** New tokens that each engine was given of late, by its number. */
  readonly #recent = new Map<number, number>();
  #cachedShare = FIRST_CACHED_SHARE;
  #last = -1;

  /**
   * @param candidates One or more, in ascending order of their numbers.
   * @param newTokens Tokens of the request that a candidate, by its place, would have to compute. Asked for only where
   *   the answer may matter: not of an engine that has more to compute already than another one for everything.
   * @param promptTokens All tokens of the request.
   * Cost: O(candidates log candidates), and the calls of `newTokens`.
   */
  choose(candidates: readonly RouteCandidate[], promptTokens: number, newTokens: (place: number) => number): Route {
    const count = candidates.length;
    const mean = this.#meanOf(candidates);
    const first = this.#firstTurn(candidates);
    let best = -1;
    let least = Number.POSITIVE_INFINITY;
    let leastTurn = 0;
    let bestNewTokens = 0;
    for (const turn of turnsByPending(candidates, first)) {
      const place = (first + turn) % count;
      const { engine, pendingTokens, weight = 1 } = candidates[place]!;
      if (pendingTokens / weight > least) break;
      const own = newTokens(place);
      const pressure = mean === 0 ? 1 : this.#recentOf(engine) / weight / mean;
      const cost = (pendingTokens + own * (1 + this.#cachedShare * pressure)) / weight;
      if (cost > least || (cost === least && turn > leastTurn)) continue;
      [best, least, leastTurn, bestNewTokens] = [place, cost, turn, own];
    }
    this.#took(candidates, best, { newTokens: bestNewTokens, promptTokens });
    return { place: best, newTokens: bestNewTokens, cost: least };
  }

  /** The engine of this number is gone. */
  forget(engine: number): void {
    this.#recent.delete(engine);
  }

  #recentOf(engine: number): number {
    return this.#recent.get(engine) ?? 0;
  }

  #meanOf(candidates: readonly RouteCandidate[]): number {
    let sum = 0;
    for (const { engine, weight = 1 } of candidates) sum += this.#recentOf(engine) / weight;
    return sum / candidates.length;
  }

  /** The place behind that of the engine chosen last. */
  #firstTurn(candidates: readonly RouteCandidate[]): number {
    const next = candidates.findIndex(({ engine }) => engine > this.#last);
    return next < 0 ? 0 : next;
  }

  #took(
    candidates: readonly RouteCandidate[],
    place: number,
    { newTokens, promptTokens }: { readonly newTokens: number; readonly promptTokens: number },
  ): void {
    const { engine } = candidates[place]!;
    this.#last = engine;
    const kept = 1 - 1 / (RECENT_REQUESTS * candidates.length);
    for (const { engine: each } of candidates) this.#recent.set(each, this.#recentOf(each) * kept);
    this.#recent.set(engine, this.#recentOf(engine) + newTokens);
    if (promptTokens > 0) this.#cachedShare += (1 - newTokens / promptTokens - this.#cachedShare) / SHARE_REQUESTS;
  }
}

/** Turns from `first` on, those of the engines with the least to compute first, of equals in turn. */
function turnsByPending(candidates: readonly RouteCandidate[], first: number): number[] {
  const pending = candidates.map((_, turn) => {
    const { pendingTokens, weight = 1 } = candidates[(first + turn) % candidates.length]!;
    return pendingTokens / weight;
  });
  return pending.map((_, turn) => turn).sort((a, b) => pending[a]! - pending[b]! || a - b);
}
