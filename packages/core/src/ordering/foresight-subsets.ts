import type { CachedPaths } from './cached-paths.js';
import {
  cachedTokensOf,
  type ForesightProblem,
  gainShare,
  laterWeight,
  type PlannedOrder,
  reuseShare,
} from './demand.js';
import type { ConstraintRule } from './placement.js';
import { lowestRank, rankCount, SubsetPlan } from './subset-plan.js';

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
    price: (rule?.shiftPrice ?? 0) / weight,
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
  { weight, rule }: { readonly weight: number; readonly rule: ConstraintRule | undefined },
): readonly number[] {
  const price = rule?.shiftPrice ?? 0;
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
