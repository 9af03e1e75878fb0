import type { ResidencyView } from '../residency/view.js';
import { CachedPaths } from './cached-paths.js';
import { withCachedPrefix } from './cached-prefix.js';
import { Demand } from './demand.js';
import { createExactPolicy } from './exact.js';
import { CHAIN_MAX_DOCUMENTS, ChainSearch } from './foresight-chain.js';
import { SUBSETS_MAX_DOCUMENTS, SubsetSearch } from './foresight-subsets.js';
import { ConstraintRule, isFree } from './placement.js';
import type { Context, Ordering, OrderingPolicy } from './policy.js';
import { retrievalOrder } from './retrieval-order.js';
import { lengthsDiffer, weightOfLater } from './reuse-worth.js';
import { SlotPlanner } from './slot-plan.js';
import { WaitingRequests } from './waiting-requests.js';

/** Operations one call may take, where nothing else is asked for; a fraction of a millisecond. */
const DEFAULT_MAX_OPERATIONS = 65_536;

/** A look-up in the tree waits for memory: it takes as long as some eight steps of arithmetic (measured). */
const OPERATIONS_A_LOOK_UP = 8;

/**
 * Looks ahead: maximises the tokens that are cached now and those that coming requests will save with what this prompt
 * leaves behind. It knows the requests waiting (`Context.waiting`), and expects what recent requests and their rank
 * survival let it expect (`RecentRequestsView`); that alone it trusts only where documents differ in length. With
 * neither, and for more than 30 documents, the answer is that of `exact`. It gives up cached tokens only where the
 * reuse it expects is worth more. Method, constants and figures: docs/research/foresight.md.
 *
 * Up to 8 documents the plan is optimal under its estimate, above it grows the best of 8 chains. `maxOperations` bounds
 * the counted operations of one call (look-ups, subsets, steps of a chain), never time, so that the same state gives
 * the same answer everywhere: what does not fit is planned by chains, or else answered by `exact`.
 *
 * Cost: some ten microseconds (see `bench/`), and a search of the best path for each waiting request that shares a
 * document. One instance reuses its scratch memory between calls, which no answer depends on.
 */
export function createForesightPolicy(maxOperations: number = DEFAULT_MAX_OPERATIONS): OrderingPolicy {
  const exact = createExactPolicy();
  const planner = new ForesightPlanner(maxOperations);
  const slots = new SlotPlanner();
  return {
    name: 'foresight',
    arrange(context, view, now) {
      if (view.slots !== undefined) return slots.plan(context, view, view.slots);
      return planner.plan(context, view) ?? exact.arrange(context, view, now);
    },
  };
}

class ForesightPlanner {
  readonly #maxOperations: number;
  readonly #paths = new CachedPaths();
  readonly #demand = new Demand();
  readonly #subsets = new SubsetSearch();
  readonly #chains = new ChainSearch();

  constructor(maxOperations: number) {
    this.#maxOperations = maxOperations;
  }

  /** The order, or `undefined` when there is nothing to look ahead to or too little budget for it. */
  plan(context: Context, view: ResidencyView): Ordering | undefined {
    const { documents } = context;
    if (documents.length < 2 || documents.length > CHAIN_MAX_DOCUMENTS) return undefined;
    const demand = this.#demand;
    const paths = this.#paths;
    const isGuessTrusted = lengthsDiffer(documents);
    if (!isGuessTrusted && (context.waiting ?? []).length === 0) return undefined;
    let left = this.#maxOperations - WaitingRequests.cost(context.waiting ?? []);
    if (left <= 0) return undefined;
    demand.collect(context, view);
    if (demand.count === 0 || (demand.waiting === 0 && !isGuessTrusted)) return undefined;
    const rule = isFree(context) ? undefined : new ConstraintRule(documents.length, context);
    if (!paths.collect(context, view, rule, left / OPERATIONS_A_LOOK_UP)) return undefined;
    left -= OPERATIONS_A_LOOK_UP * paths.lookUps;
    if (documents.length <= SUBSETS_MAX_DOCUMENTS && SubsetSearch.cost(documents.length, demand, rule) <= left) {
      demand.weigh(paths);
      const order = this.#subsets.find(documents, demand, paths, rule);
      return weighed(order, { context, view, demand }, (of, cached) => this.#subsets.laterTokens(of, cached));
    }
    if (ChainSearch.cost(documents.length, demand, paths) > left) return undefined;
    demand.weigh(paths);
    const order = this.#chains.find(documents, demand, paths, rule);
    return weighed(order, { context, view, demand }, (of, cached) => this.#chains.laterTokens(of, cached, demand));
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
