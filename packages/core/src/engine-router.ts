import { contextOf, policyOf } from './arrange.js';
import type { ArrangeRequest } from './arrangement.js';
import { ConstraintRule } from './ordering/placement.js';
import type { ResidencyView } from './residency/view.js';

/** Policies whose order follows the best cached path. */
const CACHE_AWARE: ReadonlySet<string> = new Set(['exact', 'foresight']);

/**
 * Returns a function that predicts the cached tokens of a request under the view of an engine, without arranging it:
 * tokens of the best path that its policy and constraints allow. The cost of a hint is not subtracted. Hashes the
 * documents once for all engines.
 *
 * @throws the errors of `arrange`
 */
export function expectedCachedTokens(request: ArrangeRequest, now: number): (view: ResidencyView) => number {
  const policy = policyOf(request);
  const context = contextOf(request);
  const { documents, preamble } = context;
  if (!CACHE_AWARE.has(policy.name)) return (view) => policy.arrange(context, view, now).cachedTokens;
  const rule = new ConstraintRule(documents.length, context);
  return (view) => view.bestPath(documents, preamble, rule.isFree ? undefined : rule).tokens;
}

/** An engine that could serve a request. Tokens are estimates, all in the same unit. */
export interface RouteCandidate {
  /** A number that no other engine has. */
  readonly engine: number;
  /** Prompt tokens that it has still to compute. */
  readonly pendingTokens: number;
  /** Speed compared with the others. Default 1. */
  readonly weight?: number;
}

/** The chosen engine, and the figures behind the choice. */
export interface Route {
  /** Index of the chosen engine among the candidates. */
  readonly place: number;
  /** Tokens of the request that it has to compute. */
  readonly newTokens: number;
  /** Tokens to compute until the end of its prefill, plus those that it evicts, at weight 1. */
  readonly cost: number;
}

/** Requests of an engine that count as recent, and requests that the moving average of the cached share covers. */
const RECENT_REQUESTS = 32;
const SHARE_REQUESTS = 100;
/** Cached share before the first request. */
const FIRST_CACHED_SHARE = 0.5;

/**
 * Chooses the engine of each request: the one with the fewest tokens to compute before the first token. The pending
 * tokens, the own ones, and those that the own ones evict count. An evicted token costs as much as tokens are reused,
 * more where the cache turns over faster. Among equals, engines take turns. Deterministic. `bench:fleet` of the lab
 * compares it with other rules.
 */
export class EngineRouter {
  /** By engine: new tokens of recent requests. */
  readonly #recent = new Map<number, number>();
  #cachedShare = FIRST_CACHED_SHARE;
  #last = -1;

  /**
   * Chooses an engine and counts the request as its own. O(candidates log candidates), and the calls of `newTokens`.
   *
   * @param candidates one or more, in ascending order of `engine`
   * @param promptTokens all tokens of the request
   * @param newTokens tokens that the candidate at an index would have to compute; only called where the result matters
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

  /** Removes an engine. */
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

  /** Index behind the engine chosen last. */
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

/** Turns from `first` on, by pending tokens; among equals in turn. */
function turnsByPending(candidates: readonly RouteCandidate[], first: number): number[] {
  const pending = candidates.map((_, turn) => {
    const { pendingTokens, weight = 1 } = candidates[(first + turn) % candidates.length]!;
    return pendingTokens / weight;
  });
  return pending.map((_, turn) => turn).sort((a, b) => pending[a]! - pending[b]! || a - b);
}
