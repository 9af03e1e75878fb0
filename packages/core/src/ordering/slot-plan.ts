import type { ResidencyView, SlotsView } from '../residency/view.js';
import { CountedBudget, type OperationBudget } from '../tree/operation-budget.js';
import { ConstraintRule, followedByRetrievalOrder, isFree, retrievalOrder, withCachedPrefix } from './placement.js';
import type { Context, Ordering } from './policy.js';
import { lowestRank, rankCount, SUBSETS_MAX_DOCUMENTS, SubsetPlan } from './subset-plan.js';

/** Starts that are weighed with what they leave behind, those that save most now first. */
const MAX_STARTS = 6;
/** Part of the look-ups for finding and weighing starts, and part of that for finding them. */
const SEARCH_PART = 3 / 4;
const STARTS_PART = 1 / 2;
/** Recent requests that are looked at. */
const MAX_RECENT = 256;

/** How fast the chance that a start is used again grows with the recent requests that held all its documents. */
const RECENT_RATE = 0.8;
/** Chance that a document comes again of which nothing is known. */
const UNKNOWN_CHANCE = 0.6;
/** Factor for what the question, the answer and errors of counts may add to a prompt's length. */
const LENGTH_MARGIN = 1.2;
/** Weight of a token that may be saved later beside one that is saved now. */
const LATER_WEIGHT = 0.5;

/** How starts are found, and completed to orders. */
interface StartSearch {
  readonly slots: SlotsView;
  readonly rule: ConstraintRule | undefined;
  readonly completed: (start: readonly number[]) => readonly number[];
}

/**
 * Orders for an engine that keeps whole prompts in slots. A prompt that is left behind serves one later request, and
 * only one that keeps a good part of it: documents come first that reach that part soonest and are likely to come again
 * together. An order counts what it reuses now, less its hint and the price of its moves, and part of what it may save
 * later. For more than 8 documents, those behind a start keep their retrieval order.
 *
 * `maxOperations` bounds what is looked up in the slots, and once more the steps of the plan.
 */
export function planForSlots(context: Context, view: ResidencyView, slots: SlotsView, maxOperations: number): Ordering {
  const { documents } = context;
  const rule = isFree(context) ? undefined : new ConstraintRule(documents.length, context);
  const count = documents.length;
  const budget = new CountedBudget(maxOperations);
  const unmoved = withCachedPrefix(retrievalOrder(count), context, view, budget);
  const completed = (start: readonly number[]) =>
    rule === undefined ? followedByRetrievalOrder(start, count) : rule.complete(start);
  const starts = budget
    .share(SEARCH_PART, (part) => predictStarts(context, view, { slots, rule, completed }, part))
    .sort((a, b) => b.ordering.cachedTokens - a.ordering.cachedTokens)
    .slice(0, MAX_STARTS);
  const steps = new CountedBudget(maxOperations);
  const plan = planReuse(context, view, { leastKept: slots.leastKept, rule }, steps);
  const laterOf = (order: readonly number[]) => (plan === undefined ? 0 : LATER_WEIGHT * plan.valueBehind(order, 0));
  const unmovedLater = laterOf(unmoved.order);
  const priceOf = (order: readonly number[]) => (context.hintTokens?.(order) ?? 0) + (rule?.priceOf?.(order) ?? 0);
  let best: Ordering = { ...unmoved, laterTokens: 0 };
  let most = unmoved.cachedTokens;
  const consider = (ordering: Ordering) => {
    const laterTokens = laterOf(ordering.order) - unmovedLater;
    const value = ordering.cachedTokens + laterTokens - priceOf(ordering.order);
    if (value <= most) return;
    most = value;
    best = { ...ordering, laterTokens };
  };
  for (const { start, ordering } of [{ start: [], ordering: unmoved }, ...starts]) {
    consider(ordering);
    if (plan === undefined || budget.isExceeded) continue;
    // The more of the best way on is followed, the longer the hint: each length of it is tried.
    let grown: readonly number[] | undefined;
    let mostGrown = Number.NEGATIVE_INFINITY;
    const way = plan.complete(start);
    for (let length = start.length + 1; length <= count; length++) {
      const order = completed(way.slice(0, length));
      const value = laterOf(order) - priceOf(order);
      if (value > mostGrown) [grown, mostGrown] = [order, value];
    }
    if (grown === undefined) continue;
    const grownOrdering = withCachedPrefix(grown, context, view, budget);
    if (!budget.isExceeded) consider(grownOrdering);
  }
  return budget.isCutShort || steps.isExceeded ? { ...best, cutShort: 'partial' } : best;
}

/** The starts, each completed to an order, with what is reused of it. */
function predictStarts(
  context: Context,
  view: ResidencyView,
  { slots, rule, completed }: StartSearch,
  budget: OperationBudget,
): { readonly start: readonly number[]; readonly ordering: Ordering }[] {
  const { documents, preamble } = context;
  const predicted = [];
  for (const start of budget.share(STARTS_PART, (part) => slots.starts(documents, preamble, rule, part))) {
    if (!budget.take(documents.length * (1 + start.length))) break;
    const ordering = withCachedPrefix(completed(start), context, view, budget);
    if (budget.isExceeded) break;
    predicted.push({ start, ordering });
  }
  return predicted;
}

/**
 * Plans by what later requests are expected to reuse of the prompt. Nothing of a prompt is reused until the least part
 * of it is reached; the step that reaches it brings all before it. `undefined` where there are too many documents, or
 * too few steps left.
 */
function planReuse(
  { documents, preamble }: Context,
  view: ResidencyView,
  { leastKept, rule }: { readonly leastKept: number; readonly rule: ConstraintRule | undefined },
  steps: OperationBudget,
): SubsetPlan | undefined {
  const count = documents.length;
  if (count < 2 || count > SUBSETS_MAX_DOCUMENTS) return undefined;
  const overlaps = new Int32Array(MAX_RECENT);
  const recent = overlaps.subarray(0, view.recent.overlaps(documents, preamble, overlaps));
  let cost = SubsetPlan.cost(count, rule);
  for (const set of recent) cost += 2 ** rankCount(set);
  if (!steps.take(cost)) return undefined;
  const sets = 2 ** count;
  const requests: number[] = new Array(sets).fill(0);
  for (const shared of recent) for (let set = shared; set !== 0; set = (set - 1) & shared) requests[set]!++;
  const tokens: number[] = [preamble?.tokens ?? 0];
  const chances: number[] = [0];
  for (let set = 1; set < sets; set++) {
    tokens[set] = tokens[set & (set - 1)]! + documents[lowestRank(set)]!.tokens;
    chances[set] = 1 - Math.exp(-RECENT_RATE * requests[set]!) * (1 - UNKNOWN_CHANCE ** rankCount(set));
  }
  const leastTokens = LENGTH_MARGIN * leastKept * tokens[sets - 1]!;
  const valueOfStep = (set: number, rank: number) => {
    const longer = set | (1 << rank);
    if (tokens[longer]! < leastTokens) return 0;
    const reused = tokens[set]! < leastTokens ? tokens[longer]! : tokens[longer]! - tokens[set]!;
    return chances[longer]! * reused;
  };
  return new SubsetPlan({ count, valueOfStep, rule, price: (rule?.shiftPrice ?? 0) / LATER_WEIGHT });
}
