import type { CachedPaths, ContextPath } from './cached-paths.js';
import {
  type ComingRequest,
  cachedTokensOf,
  type ForesightProblem,
  gainShare,
  laterWeight,
  type PlannedOrder,
  reuseShare,
} from './demand.js';
import type { ConstraintRule } from './placement.js';
import { lowestRank, rankCount, SubsetPlan, setOf } from './subset-plan.js';

/** Documents at most, because a set is a 32-bit mask. */
export const CHAIN_MAX_DOCUMENTS = 30;

/** Cached paths that are extended, those of the highest value. */
const MAX_STARTS = 8;

/** Operations that `planByChains` takes at most. O(1). */
export function chainsCost({ documents, demand, rule }: ForesightProblem, paths: CachedPaths): number {
  const steps = Math.min(MAX_STARTS, paths.all.length) * documents.length;
  const prices = rule.priceOf === undefined ? 0 : documents.length * (paths.all.length + steps * documents.length);
  return steps * (demand.requests.length + documents.length) + demand.requests.length * paths.all.length + prices;
}

/**
 * Plans contexts with too many subsets. Extends each of the most valuable cached paths by the document of the highest
 * value, until no coming request shares what is left. The rest follows in retrieval order. Returns the most valuable
 * chain; among equals, the first.
 */
export function planByChains(problem: ForesightProblem, paths: CachedPaths): PlannedOrder {
  const { demand, rule } = problem;
  const values = new StepValues(problem, paths);
  const weight = laterWeight(demand.waitingCount > 0);
  let most = Number.NEGATIVE_INFINITY;
  let best: readonly number[] = [];
  for (const start of bestStarts(paths, rule)) {
    const chain = [...start.path.ranks];
    const value = start.value + weight * extendChain(chain, values, { rule, weight });
    if (value <= most) continue;
    most = value;
    best = chain;
  }
  return {
    order: rule.complete(best),
    laterTokens: (order, cached) => values.laterTokens(order, cached),
  };
}

interface Start {
  readonly path: ContextPath;
  /** Tokens of the path, less its price. */
  readonly value: number;
}

/** The allowed paths of the highest value, best first; among equals, the earlier first. */
function bestStarts(paths: CachedPaths, rule: ConstraintRule): readonly Start[] {
  return paths.all
    .filter(({ isAllowed }) => isAllowed)
    .map((path) => ({ path, value: path.tokens - (rule.priceOf?.(path.ranks) ?? 0) }))
    .sort((a, b) => b.value - a.value)
    .slice(0, MAX_STARTS);
}

/**
 * Appends documents to the chain while a coming request shares one of positive value. Returns the value of these
 * documents in tokens saved later.
 *
 * @param options.weight of a token saved later
 */
function extendChain(
  chain: number[],
  values: StepValues,
  { rule, weight }: { readonly rule: ConstraintRule; readonly weight: number },
): number {
  const { priceOf } = rule;
  let total = 0;
  let requests = values.all;
  for (;;) {
    const step = values.behind(chain, requests);
    requests = step.requests;
    const price = priceOf?.(chain) ?? 0;
    let most = 0;
    let next = -1;
    for (let left = step.shared; left !== 0; left &= left - 1) {
      const rank = lowestRank(left);
      let value = step.valueOfNext(rank);
      if (value <= most) continue;
      if (priceOf !== undefined) value -= (priceOf([...chain, rank]) - price) / weight;
      if (value <= most || !rule.allows(chain, rank)) continue;
      most = value;
      next = rank;
    }
    if (next < 0) return total;
    chain.push(next);
    total += most;
  }
}

interface KnownRequest extends ComingRequest {
  readonly cachedTokens: number;
  readonly isWaiting: boolean;
}

/** The value of adding a document to a chain. */
class StepValues {
  readonly all: readonly KnownRequest[];
  readonly #problem: ForesightProblem;
  readonly #meanLength: number;

  constructor(problem: ForesightProblem, paths: CachedPaths) {
    const { documents, demand } = problem;
    this.#problem = problem;
    this.#meanLength = documents.reduce((sum, { tokens }) => sum + tokens, 0) / documents.length;
    this.all = demand.requests.map((request, place) => ({
      set: request.set,
      weight: request.weight,
      cachedTokens: cachedTokensOf(request, paths),
      isWaiting: place < demand.waitingCount,
    }));
  }

  /**
   * Returns the requests that share the whole chain, the other documents that they share, and the value of adding one.
   *
   * @param requests those that share the chain without its last document
   */
  behind(chain: readonly number[], requests: readonly KnownRequest[]) {
    const { documents, demand } = this.#problem;
    const set = setOf(chain);
    const before = chain.reduce((sum, rank) => sum + documents[rank]!.tokens, 0);
    /** By rank: requests that could use the chain up to it. */
    const waiting: number[] = new Array(documents.length).fill(0);
    const expected: number[] = new Array(documents.length).fill(0);
    const sharing: KnownRequest[] = [];
    let shared = 0;
    for (const request of requests) {
      if ((set & ~request.set) !== 0) continue;
      sharing.push(request);
      shared |= request.set & ~set;
      const counts = request.isWaiting ? waiting : expected;
      for (let left = request.set & ~set; left !== 0; left &= left - 1) {
        const rank = lowestRank(left);
        const share = gainShare(before + documents[rank]!.tokens, request.cachedTokens, this.#meanLength);
        counts[rank]! += request.weight * share;
      }
    }
    const valueOfNext = (rank: number) =>
      documents[rank]!.tokens * reuseShare(waiting[rank]!, expected[rank]!, demand.waitingCount > 0);
    return { requests: sharing, shared, valueOfNext };
  }

  /** Tokens that the documents behind the first `cached` of an order are expected to save later. */
  laterTokens(order: readonly number[], cached: number): number {
    let later = 0;
    let { all: requests } = this;
    for (const [place, rank] of order.entries()) {
      const step = this.behind(order.slice(0, place), requests);
      requests = step.requests;
      if (place >= cached) later += step.valueOfNext(rank);
    }
    return later;
  }
}

/** Operations that `planBySubsets` takes. O(demand). */
export function subsetsCost({ documents, demand, rule }: ForesightProblem): number {
  const steps = SubsetPlan.cost(documents.length, rule);
  return demand.requests.reduce((sum, { set }) => sum + 2 ** rankCount(set), steps);
}

/**
 * Finds the order that saves most tokens now and later, for up to 8 documents. It starts with the best cached path. The
 * value of each further document is its tokens times the expected reuse of the longer path. Among equals, the first in
 * lexicographic order of ranks.
 */
export function planBySubsets(problem: ForesightProblem, paths: CachedPaths): PlannedOrder {
  const { documents, demand, rule } = problem;
  const reuse = reuseBySet(problem, paths);
  const weight = laterWeight(demand.waitingCount > 0);
  const plan = new SubsetPlan({
    count: documents.length,
    valueOfStep: (set, rank) => documents[rank]!.tokens * reuse[set | (1 << rank)]!,
    rule,
    price: rule.shiftPrice / weight,
  });
  return {
    order: plan.complete(bestStart(paths, plan, { weight, rule })),
    laterTokens: (order, cached) => plan.valueBehind(order, cached),
  };
}

/** By set: the expected reuse of a path over its documents. A request can reuse any subset of its documents. */
function reuseBySet({ documents, demand }: ForesightProblem, paths: CachedPaths): readonly number[] {
  const sets = 2 ** documents.length;
  const tokens: number[] = new Array(sets).fill(0);
  for (let set = 1; set < sets; set++) tokens[set] = tokens[set & (set - 1)]! + documents[lowestRank(set)]!.tokens;
  const meanLength = tokens[sets - 1]! / documents.length;
  const waiting: number[] = new Array(sets).fill(0);
  const expected: number[] = new Array(sets).fill(0);
  for (const [place, request] of demand.requests.entries()) {
    const cachedTokens = cachedTokensOf(request, paths);
    const counts = place < demand.waitingCount ? waiting : expected;
    for (let set = request.set; set !== 0; set = (set - 1) & request.set) {
      counts[set]! += request.weight * gainShare(tokens[set]!, cachedTokens, meanLength);
    }
  }
  return waiting.map((requests, set) => reuseShare(requests, expected[set]!, demand.waitingCount > 0));
}

function bestStart(
  paths: CachedPaths,
  plan: SubsetPlan,
  { weight, rule }: { readonly weight: number; readonly rule: ConstraintRule },
): readonly number[] {
  const price = rule.shiftPrice;
  let most = Number.NEGATIVE_INFINITY;
  let best: readonly number[] = [];
  for (const { ranks, set, tokens, moves, isAllowed } of paths.all) {
    if (!isAllowed) continue;
    let value = tokens + weight * plan.laterValues[set]!;
    if (price !== 0) value -= price * (moves + plan.laterMoves[set]!);
    if (value <= most) continue;
    most = value;
    best = ranks;
  }
  return best;
}
