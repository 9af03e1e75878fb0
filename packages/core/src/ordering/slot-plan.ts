import type { ResidencyView, SlotsView } from '../residency/view.js';
import { CountedBudget, type OperationBudget } from '../tree/best-path.js';
import { ConstraintRule, retrievalOrder, withCachedPrefix } from './placement.js';
import type { Context, Ordering } from './policy.js';
import { lowestRank, rankCount, SUBSETS_MAX_DOCUMENTS, SubsetPlan } from './subset-plan.js';

/** Starts whose later reuse is compared, those that save most now. */
const MAX_STARTS = 6;
/** Part of the look-ups for finding and predicting starts, and part of that for finding them. */
const SEARCH_PART = 3 / 4;
const STARTS_PART = 1 / 2;
/** Recent requests that are read. */
const MAX_RECENT = 256;

/** How fast the chance that a start is reused grows with the recent requests that had all its documents. */
const RECENT_RATE = 0.8;
/** Chance that a document comes again that no recent request had. */
const UNKNOWN_CHANCE = 0.6;
/** Factor for the tokens of question and answer, and for errors of counts. */
const LENGTH_MARGIN = 1.2;
/** Weight of a token that may be saved later beside one saved now. */
const LATER_WEIGHT = 0.5;

/** How starts are found, and completed to orders. */
interface StartSearch {
  readonly slots: SlotsView;
  readonly rule: ConstraintRule;
}

/**
 * Orders documents for an engine that keeps whole prompts in slots (llama-server). A stored prompt serves one later
 * request, and only if that request keeps a good part of it. So documents come first that reach this part soonest and
 * are likely to come together again.
 *
 * `maxOperations` bounds the look-ups in the slots, and separately the steps of the plan. For more than 8 documents,
 * those behind a start keep their retrieval order.
 */
export function planForSlots(context: Context, view: ResidencyView, slots: SlotsView, maxOperations: number): Ordering {
  const { documents } = context;
  const rule = new ConstraintRule(documents.length, context);
  const count = documents.length;
  const budget = new CountedBudget(maxOperations);
  const unmoved = withCachedPrefix(retrievalOrder(count), context, view, budget);
  const starts = budget
    .share(SEARCH_PART, (part) => predictStarts(context, view, { slots, rule }, part))
    .sort((a, b) => b.ordering.cachedTokens - a.ordering.cachedTokens)
    .slice(0, MAX_STARTS);
  const steps = new CountedBudget(maxOperations);
  const plan = planReuse(context, view, { leastKept: slots.leastKept, rule }, steps);
  const laterOf = (order: readonly number[]) => (plan === undefined ? 0 : LATER_WEIGHT * plan.valueBehind(order, 0));
  const unmovedLater = laterOf(unmoved.order);
  const priceOf = (order: readonly number[]) => (context.hintTokens?.(order) ?? 0) + (rule.priceOf?.(order) ?? 0);
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
    // A longer part of the best completion needs a longer hint. Each length is tried.
    let extended: readonly number[] | undefined;
    let mostExtended = Number.NEGATIVE_INFINITY;
    const completion = plan.complete(start);
    for (let length = start.length + 1; length <= count; length++) {
      const order = rule.complete(completion.slice(0, length));
      const value = laterOf(order) - priceOf(order);
      if (value > mostExtended) [extended, mostExtended] = [order, value];
    }
    if (extended === undefined) continue;
    const extendedOrdering = withCachedPrefix(extended, context, view, budget);
    if (!budget.isExceeded) consider(extendedOrdering);
  }
  return budget.isCutShort || steps.isExceeded ? { ...best, cutShort: 'partial' } : best;
}

/** Completes each start to an order, and predicts its cached tokens. */
function predictStarts(
  context: Context,
  view: ResidencyView,
  { slots, rule }: StartSearch,
  budget: OperationBudget,
): { readonly start: readonly number[]; readonly ordering: Ordering }[] {
  const { documents, preamble } = context;
  const predicted = [];
  for (const start of budget.share(STARTS_PART, (part) =>
    slots.starts(documents, preamble, rule.isFree ? undefined : rule, part),
  )) {
    if (!budget.take(documents.length * (1 + start.length))) break;
    const ordering = withCachedPrefix(rule.complete(start), context, view, budget);
    if (budget.isExceeded) break;
    predicted.push({ start, ordering });
  }
  return predicted;
}

/**
 * Plans by the expected reuse of the prompt by later requests. Nothing of a prompt is reused below its least kept part;
 * the document that reaches it adds all before it. `undefined` with too many documents, or too few operations left.
 */
function planReuse(
  { documents, preamble }: Context,
  view: ResidencyView,
  { leastKept, rule }: { readonly leastKept: number; readonly rule: ConstraintRule },
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
  return new SubsetPlan({ count, valueOfStep, rule, price: rule.shiftPrice / LATER_WEIGHT });
}
