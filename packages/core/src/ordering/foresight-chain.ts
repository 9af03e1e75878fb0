import type { CachedPaths, ContextPath } from './cached-paths.js';
import {
  type ForesightProblem,
  heldTokensOf,
  type PlannedOrder,
  shareGained,
  type Wish,
  weightOfLater,
  worthOf,
} from './demand.js';
import type { ConstraintRule } from './placement.js';
import { followedByRetrievalOrder } from './placement.js';
import { lowestRank, setOf } from './subset-plan.js';

/** Documents at most: a set must fit a bit mask. */
export const CHAIN_MAX_DOCUMENTS = 30;

/** Cached paths from which a chain is grown, those with most tokens. */
const MAX_STARTS = 8;

/** Steps that `planByChains` takes at most. O(1). */
export function chainsCost({ documents, demand, rule }: ForesightProblem, paths: CachedPaths): number {
  const steps = Math.min(MAX_STARTS, paths.all.length) * documents.length;
  const prices = rule?.priceOf === undefined ? 0 : documents.length * (paths.all.length + steps * documents.length);
  return steps * (demand.wishes.length + documents.length) + demand.wishes.length * paths.all.length + prices;
}

/**
 * Plans contexts with too many subsets: from each of the longest cached paths, adds the document that is worth most
 * next, until no coming request wants what is left. The rest follows in retrieval order. The best of these chains wins;
 * among equals the first found. Where moving has a price, a path and a step count what they are worth less the price.
 */
export function planByChains(problem: ForesightProblem, paths: CachedPaths): PlannedOrder {
  const { documents, demand, rule } = problem;
  const values = new StepValues(problem, paths);
  const weight = weightOfLater(demand.waiting > 0);
  let most = Number.NEGATIVE_INFINITY;
  let best: readonly number[] = [];
  for (const { path, worth } of longestPaths(paths, rule)) {
    const chain = [...path.ranks];
    const value = worth + weight * grow(chain, values, { rule, weight });
    if (value <= most) continue;
    most = value;
    best = chain;
  }
  return {
    order: rule === undefined ? followedByRetrievalOrder(best, documents.length) : rule.complete(best),
    laterTokens: (order, cached) => values.laterTokens(order, cached),
  };
}

interface Start {
  readonly path: ContextPath;
  /** Tokens of the path, less what it costs to begin with it. */
  readonly worth: number;
}

/** The allowed paths that are worth most now, those first, the earlier first among equals. */
function longestPaths(paths: CachedPaths, rule: ConstraintRule | undefined): readonly Start[] {
  return paths.all
    .filter(({ isAllowed }) => isAllowed)
    .map((path) => ({ path, worth: path.tokens - (rule?.priceOf?.(path.ranks) ?? 0) }))
    .sort((a, b) => b.worth - a.worth)
    .slice(0, MAX_STARTS);
}

/**
 * Appends to the chain while a coming request wants more of it at its price. Returns the worth of what was appended, in
 * tokens that are saved later, of which each counts `weight`.
 */
function grow(
  chain: number[],
  values: StepValues,
  { rule, weight }: { readonly rule: ConstraintRule | undefined; readonly weight: number },
): number {
  const limits = rule?.isOpen === false ? rule : undefined;
  const priceOf = rule?.priceOf;
  let worth = 0;
  let wishes = values.all;
  for (;;) {
    const step = values.behind(chain, wishes);
    wishes = step.wishes;
    const price = priceOf?.(chain) ?? 0;
    let most = 0;
    let next = -1;
    for (let left = step.wanted; left !== 0; left &= left - 1) {
      const rank = lowestRank(left);
      let value = step.valueOfNext(rank);
      if (value <= most) continue;
      if (priceOf !== undefined) value -= (priceOf([...chain, rank]) - price) / weight;
      if (value <= most || (limits !== undefined && !limits.allows(chain, rank))) continue;
      most = value;
      next = rank;
    }
    if (next < 0) return worth;
    chain.push(next);
    worth += most;
  }
}

interface HeldWish extends Wish {
  readonly heldTokens: number;
  readonly isWaiting: boolean;
}

/** What it is worth to add a document behind a chain. */
class StepValues {
  readonly all: readonly HeldWish[];
  readonly #problem: ForesightProblem;
  readonly #meanLength: number;

  constructor(problem: ForesightProblem, paths: CachedPaths) {
    const { documents, demand } = problem;
    this.#problem = problem;
    this.#meanLength = documents.reduce((sum, { tokens }) => sum + tokens, 0) / documents.length;
    this.all = demand.wishes.map((wish, place) => ({
      set: wish.set,
      weight: wish.weight,
      heldTokens: heldTokensOf(wish, paths),
      isWaiting: place < demand.waiting,
    }));
  }

  /**
   * The wishes that hold all documents of the chain, the other documents that they want, and what adding one is worth.
   *
   * @param wishes those that hold all documents of the chain but the last
   */
  behind(chain: readonly number[], wishes: readonly HeldWish[]) {
    const { documents, demand } = this.#problem;
    const set = setOf(chain);
    const before = chain.reduce((sum, rank) => sum + documents[rank]!.tokens, 0);
    /** By rank: requests that could use the chain up to it. */
    const waiting: number[] = new Array(documents.length).fill(0);
    const expected: number[] = new Array(documents.length).fill(0);
    const interested: HeldWish[] = [];
    let wanted = 0;
    for (const wish of wishes) {
      if ((set & ~wish.set) !== 0) continue;
      interested.push(wish);
      wanted |= wish.set & ~set;
      const requests = wish.isWaiting ? waiting : expected;
      for (let left = wish.set & ~set; left !== 0; left &= left - 1) {
        const rank = lowestRank(left);
        const share = shareGained(before + documents[rank]!.tokens, wish.heldTokens, this.#meanLength);
        requests[rank]! += wish.weight * share;
      }
    }
    const valueOfNext = (rank: number) =>
      documents[rank]!.tokens * worthOf(waiting[rank]!, expected[rank]!, demand.waiting > 0);
    return { wishes: interested, wanted, valueOfNext };
  }

  /** Worth of what an order leaves behind its first `cached` documents, in tokens. */
  laterTokens(order: readonly number[], cached: number): number {
    let later = 0;
    let { all: wishes } = this;
    for (const [place, rank] of order.entries()) {
      const step = this.behind(order.slice(0, place), wishes);
      wishes = step.wishes;
      if (place >= cached) later += step.valueOfNext(rank);
    }
    return later;
  }
}
