import { CountedBudget } from '../residency/prompt-slots.js';
import type { ResidencyView } from '../residency/view.js';
import { BEST_PATH_MAX_OPERATIONS, OPERATIONS_A_LOOK_UP } from '../tree/best-path.js';
import { CachedPaths } from './cached-paths.js';
import { Demand } from './demand.js';
import { CHAIN_MAX_DOCUMENTS, ChainSearch } from './foresight-chain.js';
import { SUBSETS_MAX_DOCUMENTS, SubsetSearch } from './foresight-subsets.js';
import { ConstraintRule, isFree } from './placement.js';
import type { Context, CutShort, Ordering, OrderingPolicy } from './policy.js';
import { followedByRetrievalOrder, retrievalOrder, withCachedPrefix } from './retrieval-order.js';
import { lengthsDiffer, weightOfLater } from './reuse-worth.js';
import { SlotPlanner } from './slot-plan.js';
import { WaitingRequests } from './waiting-requests.js';

/** What the search may take where its order is looked up once more, because moving has a price. */
const PRICED_SEARCH_PART = 7 / 8;

/**
 * The cached path that saves most tokens (less what it costs to move documents, where that has a price), then the rest
 * in retrieval order: the optimum of Eq. 1 in CacheWeaver §3.3
 * with tokens for documents, at a cost near that of the greedy walk. What the search cannot finish in `maxOperations`
 * (a hostile tree; those of real requests take a tenth) is answered by the best path until then. See
 * `tree/best-path.ts`.
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
      const budget = new CountedBudget(Math.max(0, maxOperations - path.operations));
      const ordering = isPriced
        ? { ...withCachedPrefix(order, context, view, budget), laterTokens: 0 }
        : { order, cachedDocuments: path.order.length, cachedTokens: path.tokens, laterTokens: 0 };
      return path.isComplete && !budget.isExceeded ? ordering : { ...ordering, cutShort: 'partial' };
    },
  };
}

/**
 * What may wait for memory, as parts of the budget that are 1 together: best paths of waiting requests, of which none
 * may take more than an eighth; paths of the plan; `exact` where the plan is given up. Of 65,536, the heaviest workload
 * takes 35,200, for one request 4,064; 4,000; 4,064 (zipf, 15 documents, 32 requests ahead).
 */
const WAITING_PART = 5 / 8;
const ONE_WAITING_PART = 1 / 8;
const PATHS_PART = 1 / 8;
const EXACT_PART = 1 / 4;

/**
 * Looks ahead: maximises the tokens that are cached now and those that coming requests will save with what this prompt
 * leaves behind. It knows the requests waiting (`Context.waiting`), and expects what recent requests and their rank
 * survival let it expect (`RecentRequestsView`); that alone it trusts only where documents differ in length. With
 * neither, and for more than 30 documents, the answer is that of `exact`. It gives up cached tokens only where the
 * reuse it expects is worth more, and moves documents only where that is worth the price of moving them
 * (`Context.shiftPrice`). Method, constants and figures: docs/research/foresight.md.
 *
 * Up to 8 documents the plan is optimal under its estimate, above it grows the best of 8 chains. `maxOperations` bounds
 * the counted operations, never time, so that the same state gives the same answer everywhere: once what may wait for
 * memory (the best paths of waiting requests, of which the first are known that fit, the paths of the plan, and the
 * search of `exact` where the plan is given up), and once the steps of the plan (comparisons, subsets, steps of a
 * chain), which is made by chains, or else left to `exact`. Where there is nothing to plan, `exact` has all of it.
 *
 * Cost: some ten microseconds (see `bench/`), and a search of the best path for each waiting request that shares a
 * document. One instance reuses its scratch memory between calls, which no answer depends on.
 */
export function createForesightPolicy(maxOperations: number = BEST_PATH_MAX_OPERATIONS): OrderingPolicy {
  const exact = createExactPolicy(maxOperations);
  const exactBehindPlan = createExactPolicy(EXACT_PART * maxOperations);
  const planner = new ForesightPlanner(maxOperations);
  const slots = new SlotPlanner();
  return {
    name: 'foresight',
    arrange(context, view, now) {
      if (view.slots !== undefined) return slots.plan(context, view, view.slots, maxOperations);
      const { ordering, cutShort } = planner.plan(context, view);
      if (ordering !== undefined) return cutShort === undefined ? ordering : { ...ordering, cutShort };
      const exactly = (cutShort === undefined ? exact : exactBehindPlan).arrange(context, view, now);
      return exactly.cutShort === undefined && cutShort !== undefined ? { ...exactly, cutShort } : exactly;
    },
  };
}

/** The order, if there is something to look ahead to and budget enough for it; and what the budget cut short. */
interface Plan {
  readonly ordering: Ordering | undefined;
  readonly cutShort: CutShort | undefined;
}

const NO_PLAN: Plan = { ordering: undefined, cutShort: undefined };
const TOO_MUCH: Plan = { ordering: undefined, cutShort: 'exact' };

class ForesightPlanner {
  readonly #maxOperations: number;
  readonly #paths = new CachedPaths();
  readonly #demand = new Demand();
  readonly #subsets = new SubsetSearch();
  readonly #chains = new ChainSearch();

  constructor(maxOperations: number) {
    this.#maxOperations = maxOperations;
  }

  plan(context: Context, view: ResidencyView): Plan {
    const { documents } = context;
    if (documents.length < 2 || documents.length > CHAIN_MAX_DOCUMENTS) return NO_PLAN;
    const demand = this.#demand;
    const paths = this.#paths;
    const isGuessTrusted = lengthsDiffer(documents);
    if (!isGuessTrusted && (context.waiting ?? []).length === 0) return NO_PLAN;
    let left = this.#maxOperations - WaitingRequests.cost(context.waiting ?? []);
    if (left <= 0) return TOO_MUCH;
    const most = this.#maxOperations;
    const knowsAll = demand.collect(context, view, WAITING_PART * most, ONE_WAITING_PART * most);
    // A tree that takes more than the budget for the first of them takes more for this request too.
    if (!knowsAll && demand.waiting === 0) return TOO_MUCH;
    if (demand.count === 0 || (demand.waiting === 0 && !isGuessTrusted)) return NO_PLAN;
    const rule = isFree(context) ? undefined : new ConstraintRule(documents.length, context);
    const limits = rule?.isOpen === false ? rule : undefined;
    const lookUps = Math.min(left, PATHS_PART * most) / OPERATIONS_A_LOOK_UP;
    if (!paths.collect(context, view, limits, lookUps)) return TOO_MUCH;
    left -= OPERATIONS_A_LOOK_UP * paths.lookUps;
    const isFew = documents.length <= SUBSETS_MAX_DOCUMENTS;
    if (isFew && SubsetSearch.cost(documents.length, demand, rule) <= left) {
      demand.weigh(paths);
      const order = this.#subsets.find(documents, demand, paths, rule);
      const laterOf = (of: readonly number[], cached: number) => this.#subsets.laterTokens(of, cached);
      return { ordering: weighed(order, { context, view, demand }, laterOf), cutShort: knowsAll ? undefined : 'known' };
    }
    if (ChainSearch.cost(documents.length, demand, paths, rule) > left) return TOO_MUCH;
    demand.weigh(paths);
    const order = this.#chains.find(documents, demand, paths, rule);
    const laterOf = (of: readonly number[], cached: number) => this.#chains.laterTokens(of, cached, demand);
    const ordering = weighed(order, { context, view, demand }, laterOf);
    if (isFew) return { ordering, cutShort: 'chains' };
    return { ordering, cutShort: knowsAll ? undefined : 'known' };
  }
}

/** The order with what it is worth later, beside retrieval order; that is only asked for where a hint has a price. */
function weighed(
  order: readonly number[],
  { context, view, demand }: { readonly context: Context; readonly view: ResidencyView; readonly demand: Demand },
  laterOf: (order: readonly number[], cached: number) => number,
): Ordering {
  const ordering = withCachedPrefix(order, context, view);
  if (context.hintTokens === undefined) return { ...ordering, laterTokens: 0 };
  const unmoved = withCachedPrefix(retrievalOrder(order.length), context, view);
  const gained = laterOf(order, ordering.cachedDocuments) - laterOf(unmoved.order, unmoved.cachedDocuments);
  return { ...ordering, laterTokens: weightOfLater(demand.waiting > 0) * gained };
}
