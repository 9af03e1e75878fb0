import type { ResidencyView } from '../residency/view.js';
import { BEST_PATH_MAX_OPERATIONS, CountedBudget, OPERATIONS_A_LOOK_UP } from '../tree/operation-budget.js';
import { CachedPaths } from './cached-paths.js';
import {
  collectDemand,
  type ForesightProblem,
  lengthsDiffer,
  type PlannedOrder,
  waitingCost,
  weightOfLater,
} from './demand.js';
import { CHAIN_MAX_DOCUMENTS, chainsCost, planByChains } from './foresight-chain.js';
import { planBySubsets, subsetsCost } from './foresight-subsets.js';
import { ConstraintRule, followedByRetrievalOrder, isFree, retrievalOrder, withCachedPrefix } from './placement.js';
import type { Context, CutShort, Ordering, OrderingPolicy } from './policy.js';
import { planForSlots } from './slot-plan.js';
import { SUBSETS_MAX_DOCUMENTS } from './subset-plan.js';

/** Part of the operations for the search where its order is looked up once more, because moving has a price. */
const PRICED_SEARCH_PART = 7 / 8;

/**
 * The cached path that saves most tokens (less the price of its moves), then the rest in retrieval order: the optimum
 * of Eq. 1 in CacheWeaver §3.3, with tokens for documents. A search that would take more than `maxOperations` answers
 * with the best path until then; see `tree/best-path.ts`.
 */
export function createExactPolicy(maxOperations: number = BEST_PATH_MAX_OPERATIONS): OrderingPolicy {
  return {
    name: 'exact',
    arrange(context, view) {
      const { documents, preamble } = context;
      const rule = isFree(context) ? undefined : new ConstraintRule(documents.length, context);
      const isPriced = rule?.priceOf !== undefined;
      const path = view.bestPath(
        documents,
        preamble,
        rule,
        isPriced ? PRICED_SEARCH_PART * maxOperations : maxOperations,
      );
      const order =
        rule === undefined ? followedByRetrievalOrder(path.order, documents.length) : rule.complete(path.order);
      const budget = new CountedBudget(maxOperations - path.operations);
      const ordering = isPriced
        ? { ...withCachedPrefix(order, context, view, budget), laterTokens: 0 }
        : { order, cachedDocuments: path.order.length, cachedTokens: path.tokens, laterTokens: 0 };
      return path.isComplete && !budget.isExceeded ? ordering : { ...ordering, cutShort: 'partial' };
    },
  };
}

/** Parts of the operations for what looks up the tree; together they are 1. */
const WAITING_PART = 5 / 8;
const PATHS_PART = 1 / 8;
const EXACT_PART = 1 / 4;
/** Part of the operations for the best path of one waiting request. */
const ONE_WAITING_PART = 1 / 8;

/**
 * Looks ahead: maximises the tokens that are cached now and those that coming requests will save with this prompt.
 * Knows the waiting requests (`Context.waiting`); trusts what recent requests let expect only where documents differ in
 * length. With neither, and for more than 30 documents, the answer is that of `exact`. See docs/research/foresight.md.
 *
 * `maxOperations` bounds look-ups in the tree, and once more the steps of the plan. Deterministic.
 */
export function createForesightPolicy(maxOperations: number = BEST_PATH_MAX_OPERATIONS): OrderingPolicy {
  const exact = createExactPolicy(maxOperations);
  const exactBehindPlan = createExactPolicy(EXACT_PART * maxOperations);
  return {
    name: 'foresight',
    arrange(context, view, now) {
      if (view.slots !== undefined) return planForSlots(context, view, view.slots, maxOperations);
      const { ordering, cutShort } = plan(context, view, maxOperations);
      if (ordering !== undefined) return cutShort === undefined ? ordering : { ...ordering, cutShort };
      const exactly = (cutShort === undefined ? exact : exactBehindPlan).arrange(context, view, now);
      return exactly.cutShort === undefined && cutShort !== undefined ? { ...exactly, cutShort } : exactly;
    },
  };
}

/** The order, if there is something to look ahead to and enough operations for it; and what was cut short. */
interface Plan {
  readonly ordering: Ordering | undefined;
  readonly cutShort: CutShort | undefined;
}

const NO_PLAN: Plan = { ordering: undefined, cutShort: undefined };
const TOO_MUCH: Plan = { ordering: undefined, cutShort: 'exact' };

function plan(context: Context, view: ResidencyView, maxOperations: number): Plan {
  const { documents, waiting = [] } = context;
  if (documents.length < 2 || documents.length > CHAIN_MAX_DOCUMENTS) return NO_PLAN;
  const isGuessTrusted = lengthsDiffer(documents);
  if (!isGuessTrusted && waiting.length === 0) return NO_PLAN;
  let left = maxOperations - waitingCost(waiting);
  if (left <= 0) return TOO_MUCH;
  const demand = collectDemand(context, view, {
    maxOperations: WAITING_PART * maxOperations,
    maxForOne: ONE_WAITING_PART * maxOperations,
  });
  // A tree that takes too much for the first of them takes too much for this request too.
  if (!demand.isComplete && demand.waiting === 0) return TOO_MUCH;
  if (demand.wishes.length === 0 || (demand.waiting === 0 && !isGuessTrusted)) return NO_PLAN;
  const rule = isFree(context) ? undefined : new ConstraintRule(documents.length, context);
  const maxLookUps = Math.min(left, PATHS_PART * maxOperations) / OPERATIONS_A_LOOK_UP;
  const paths = CachedPaths.collect(context, view, { rule: rule?.isOpen === false ? rule : undefined, maxLookUps });
  if (paths === undefined) return TOO_MUCH;
  left -= OPERATIONS_A_LOOK_UP * paths.lookUps;
  const problem: ForesightProblem = { documents, demand, rule };
  const isFew = documents.length <= SUBSETS_MAX_DOCUMENTS;
  const cutShort = demand.isComplete ? undefined : 'known';
  if (isFew && subsetsCost(problem) <= left) {
    return { ordering: weighed(planBySubsets(problem, paths), context, view, demand.waiting > 0), cutShort };
  }
  if (chainsCost(problem, paths) > left) return TOO_MUCH;
  const ordering = weighed(planByChains(problem, paths), context, view, demand.waiting > 0);
  return { ordering, cutShort: isFew ? 'chains' : cutShort };
}

/** The order with its later tokens beside retrieval order, which count only where a hint has a price. */
function weighed(
  { order, laterTokens }: PlannedOrder,
  context: Context,
  view: ResidencyView,
  isQueueKnown: boolean,
): Ordering {
  const ordering = withCachedPrefix(order, context, view);
  if (context.hintTokens === undefined) return { ...ordering, laterTokens: 0 };
  const unmoved = withCachedPrefix(retrievalOrder(order.length), context, view);
  const gained = laterTokens(order, ordering.cachedDocuments) - laterTokens(unmoved.order, unmoved.cachedDocuments);
  return { ...ordering, laterTokens: weightOfLater(isQueueKnown) * gained };
}
