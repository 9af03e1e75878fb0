import type { CachedPaths } from './cached-paths.js';
import {
  type ForesightProblem,
  heldTokensOf,
  type PlannedOrder,
  shareGained,
  weightOfLater,
  worthOf,
} from './demand.js';
import type { ConstraintRule } from './placement.js';
import { lowestRank, rankCount, SubsetPlan } from './subset-plan.js';

/** Steps that `planBySubsets` takes. O(demand). */
export function subsetsCost({ documents, demand, rule }: ForesightProblem): number {
  const steps = SubsetPlan.cost(documents.length, rule);
  return demand.wishes.reduce((sum, { set }) => sum + 2 ** rankCount(set), steps);
}

/**
 * The best order by what it reuses and leaves behind, for up to 8 documents. A prompt that starts with the documents of
 * a set leaves a path over them. The order starts with the cached path whose tokens and best way on are worth most;
 * each further document is worth its tokens times the worth of the longer path. Among equals, the first in
 * lexicographic order of ranks.
 */
export function planBySubsets(problem: ForesightProblem, paths: CachedPaths): PlannedOrder {
  const { documents, demand, rule } = problem;
  const worths = worthBySet(problem, paths);
  const weight = weightOfLater(demand.waiting > 0);
  const plan = new SubsetPlan({
    count: documents.length,
    valueOfStep: (set, rank) => documents[rank]!.tokens * worths[set | (1 << rank)]!,
    rule,
    price: (rule?.shiftPrice ?? 0) / weight,
  });
  return {
    order: plan.complete(bestStart(paths, plan, { weight, rule })),
    laterTokens: (order, cached) => plan.valueBehind(order, cached),
  };
}

/** Every request wants each subset of its documents that reaches further than what it will find anyway. */
function worthBySet({ documents, demand }: ForesightProblem, paths: CachedPaths): readonly number[] {
  const sets = 2 ** documents.length;
  const tokens: number[] = new Array(sets).fill(0);
  for (let set = 1; set < sets; set++) tokens[set] = tokens[set & (set - 1)]! + documents[lowestRank(set)]!.tokens;
  const meanLength = tokens[sets - 1]! / documents.length;
  const waiting: number[] = new Array(sets).fill(0);
  const expected: number[] = new Array(sets).fill(0);
  for (const [place, wish] of demand.wishes.entries()) {
    const heldTokens = heldTokensOf(wish, paths);
    const requests = place < demand.waiting ? waiting : expected;
    for (let set = wish.set; set !== 0; set = (set - 1) & wish.set) {
      requests[set]! += wish.weight * shareGained(tokens[set]!, heldTokens, meanLength);
    }
  }
  return waiting.map((requests, set) => worthOf(requests, expected[set]!, demand.waiting > 0));
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
