import type { Document } from '../document.js';
import type { ResidencyView } from '../residency/view.js';
import { BEST_PATH_MAX_OPERATIONS, CountedBudget, OPERATIONS_A_LOOK_UP } from '../tree/best-path.js';
import { CachedPaths } from './cached-paths.js';
import { collectDemand, type ForesightProblem, laterWeight, type PlannedOrder, waitingCost } from './demand.js';
import { CHAIN_MAX_DOCUMENTS, chainsCost, planByChains, planBySubsets, subsetsCost } from './foresight-plans.js';
import { ConstraintRule, retrievalOrder, withCachedPrefix } from './placement.js';
import type { Context, CutShort, Ordering, OrderingPolicy } from './policy.js';
import { planForSlots } from './slot-plan.js';
import { SUBSETS_MAX_DOCUMENTS } from './subset-plan.js';

/** Part of the operations for the search, if its order is looked up again because moving has a price. */
const PRICED_SEARCH_PART = 7 / 8;

/**
 * The cached path that saves most tokens, less the price of its moves. The rest follows in retrieval order. This is the
 * optimum of Eq. 1 in CacheWeaver §3.3, in tokens instead of documents. A search that reaches `maxOperations` returns
 * the best path so far.
 */
export function createExactPolicy(maxOperations: number = BEST_PATH_MAX_OPERATIONS): OrderingPolicy {
  return {
    name: 'exact',
    arrange(context, view) {
      const { documents, preamble } = context;
      const rule = new ConstraintRule(documents.length, context);
      const isPriced = rule.priceOf !== undefined;
      const searchOperations = isPriced ? PRICED_SEARCH_PART * maxOperations : maxOperations;
      const path = view.bestPath(documents, preamble, rule.isFree ? undefined : rule, searchOperations);
      const order = rule.complete(path.order);
      const budget = new CountedBudget(maxOperations - path.operations);
      const ordering = isPriced
        ? { ...withCachedPrefix(order, context, view, budget), laterTokens: 0 }
        : { order, cachedDocuments: path.order.length, cachedTokens: path.tokens, laterTokens: 0 };
      return path.isComplete && !budget.isExceeded ? ordering : { ...ordering, cutShort: 'partial' };
    },
  };
}

/** Parts of the operations for the look-ups in the tree. They add up to 1. */
const WAITING_PART = 5 / 8;
const PATHS_PART = 1 / 8;
const EXACT_PART = 1 / 4;
/** Part of the operations for the best path of one waiting request. */
const ONE_WAITING_PART = 1 / 8;

/**
 * Maximises the tokens that are cached now plus those that coming requests are expected to save with this prompt. It
 * reads the waiting requests (`Context.waiting`), and expects requests like recent ones only if documents differ in
 * length. Without any, or with more than 30 documents, it is `exact`. See docs/research/foresight.md.
 *
 * `maxOperations` bounds the look-ups in the tree, and separately the steps of the plan.
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

/** The order, if there are coming requests and enough operations to plan for them. */
interface Plan {
  readonly ordering: Ordering | undefined;
  readonly cutShort: CutShort | undefined;
}

const NO_PLAN: Plan = { ordering: undefined, cutShort: undefined };
const OVER_BUDGET: Plan = { ordering: undefined, cutShort: 'exact' };

function plan(context: Context, view: ResidencyView, maxOperations: number): Plan {
  const { documents, waiting = [] } = context;
  if (documents.length < 2 || documents.length > CHAIN_MAX_DOCUMENTS) return NO_PLAN;
  const isExpectationTrusted = haveUnequalLengths(documents);
  if (!isExpectationTrusted && waiting.length === 0) return NO_PLAN;
  let left = maxOperations - waitingCost(waiting);
  if (left <= 0) return OVER_BUDGET;
  const demand = collectDemand(context, view, {
    maxOperations: WAITING_PART * maxOperations,
    maxForOne: ONE_WAITING_PART * maxOperations,
  });
  // A tree that is too slow for the first waiting request is too slow for this one.
  if (!demand.isComplete && demand.waitingCount === 0) return OVER_BUDGET;
  if (demand.requests.length === 0 || (demand.waitingCount === 0 && !isExpectationTrusted)) return NO_PLAN;
  const rule = new ConstraintRule(documents.length, context);
  const maxLookUps = Math.min(left, PATHS_PART * maxOperations) / OPERATIONS_A_LOOK_UP;
  const paths = CachedPaths.collect(context, view, { rule: rule.isOpen ? undefined : rule, maxLookUps });
  if (paths === undefined) return OVER_BUDGET;
  left -= OPERATIONS_A_LOOK_UP * paths.lookUps;
  const problem: ForesightProblem = { documents, demand, rule };
  const isFew = documents.length <= SUBSETS_MAX_DOCUMENTS;
  const cutShort = demand.isComplete ? undefined : 'known';
  if (isFew && subsetsCost(problem) <= left) {
    return {
      ordering: withLaterTokens(planBySubsets(problem, paths), context, view, demand.waitingCount > 0),
      cutShort,
    };
  }
  if (chainsCost(problem, paths) > left) return OVER_BUDGET;
  const ordering = withLaterTokens(planByChains(problem, paths), context, view, demand.waitingCount > 0);
  return { ordering, cutShort: isFew ? 'chains' : cutShort };
}

/** Adds the tokens saved later, compared with retrieval order. They are only read where a hint has a price. */
function withLaterTokens(
  { order, laterTokens }: PlannedOrder,
  context: Context,
  view: ResidencyView,
  isQueueKnown: boolean,
): Ordering {
  const ordering = withCachedPrefix(order, context, view);
  if (context.hintTokens === undefined) return { ...ordering, laterTokens: 0 };
  const unmoved = withCachedPrefix(retrievalOrder(order.length), context, view);
  const gained = laterTokens(order, ordering.cachedDocuments) - laterTokens(unmoved.order, unmoved.cachedDocuments);
  return { ...ordering, laterTokens: laterWeight(isQueueKnown) * gained };
}

/** Standard deviation of lengths, as a share of their mean, from which on expected requests are trusted. */
const MIN_LENGTH_DEVIATION = 0.15;

/**
 * Whether the lengths of documents differ enough to plan for expected requests alone. Among documents of like length
 * such plans lost as often as they won (docs/research/foresight.md). O(k).
 */
function haveUnequalLengths(documents: readonly Document[]): boolean {
  let sum = 0;
  let squares = 0;
  for (const { tokens } of documents) {
    sum += tokens;
    squares += tokens * tokens;
  }
  const mean = sum / documents.length;
  return squares / documents.length - mean * mean >= (MIN_LENGTH_DEVIATION * mean) ** 2 && sum > 0;
}
