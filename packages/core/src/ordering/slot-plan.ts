import { CountedBudget, type OperationBudget } from '../residency/prompt-slots.js';
import type { ResidencyView, SlotsView } from '../residency/view.js';
import { ConstraintRule, isFree } from './placement.js';
import type { Context, Ordering } from './policy.js';
import { followedByRetrievalOrder, retrievalOrder, withCachedPrefix } from './retrieval-order.js';

/** Documents whose subsets are all weighed; for more, the documents behind a start keep their retrieval order. */
const MAX_DOCUMENTS = 8;
const SUBSETS = 1 << MAX_DOCUMENTS;
/** Starts that are weighed with what they leave behind, those that save most now first. */
const MAX_STARTS = 6;
/** What finding and weighing starts may take of the look-ups, and finding them of that. */
const SEARCH_PART = 3 / 4;
const STARTS_PART = 1 / 2;
/** Recent requests that are looked at, at most. */
const MAX_RECENT = 256;

/** How fast the chance that a start is used again grows with the recent requests that held all its documents. */
const RECENT_RATE = 0.8;
/** Chance that a document comes again of which nothing is known. */
const UNKNOWN_CHANCE = 0.6;
/** What the question, the answer and errors of counts may add to a prompt's length, which the least part is one of. */
const LENGTH_MARGIN = 1.2;
/** What a token that may be saved later counts beside one that is saved now. */
const LATER = 0.5;

/** How starts are found, and completed to orders. */
interface StartSearch {
  readonly slots: SlotsView;
  readonly rule: ConstraintRule | undefined;
  readonly completed: (start: readonly number[]) => readonly number[];
}

/**
 * Orders for an engine that keeps whole prompts in slots. A prompt that is left behind serves one later request, and
 * only one that keeps a good part of it: so documents come first that reach that part soonest and are likely to come
 * again together. An order counts what it reuses now, less its hint and the price of its moves, and `LATER` of what it
 * may save later.
 *
 * Up to 8 documents what stands behind a start is the best by that count (a dynamic programme over sets, with the hint
 * left out of it). Cost: O(starts × k² + k 2^k + recent requests × 2^k) and up to 64 look-ups in the slots.
 *
 * `maxOperations` bounds what is looked up in the slots, and once more the steps of the programme. Starts that it
 * leaves no room for are not weighed; without room for the programme, what stands behind a start keeps its retrieval
 * order; and where nothing fits, so do all documents.
 */
export class SlotPlanner {
  readonly #masks = new Int32Array(MAX_RECENT);
  /** All by set: its tokens, the chance that it is used again, the worth of the best way on, the first step of that. */
  readonly #tokens = new Float64Array(SUBSETS);
  readonly #chance = new Float64Array(SUBSETS);
  readonly #later = new Float64Array(SUBSETS);
  readonly #next = new Uint8Array(SUBSETS);
  #leastTokens = 0;

  plan(context: Context, view: ResidencyView, slots: SlotsView, maxOperations: number): Ordering {
    const { documents } = context;
    const rule = isFree(context) ? undefined : new ConstraintRule(documents.length, context);
    const count = documents.length;
    const budget = new CountedBudget(maxOperations);
    const unmoved = withCachedPrefix(retrievalOrder(count), context, view, budget);
    const completed = (start: readonly number[]) =>
      rule === undefined ? followedByRetrievalOrder(start, count) : rule.complete(start);
    const starts = budget
      .share(SEARCH_PART, (part) => this.#predicted(context, view, { slots, rule, completed }, part))
      .sort((a, b) => b.ordering.cachedTokens - a.ordering.cachedTokens)
      .slice(0, MAX_STARTS);
    const steps = new CountedBudget(maxOperations);
    const isSmall = count > 1 && count <= MAX_DOCUMENTS;
    const isWeighed = isSmall && this.#weigh(context, view, { leastKept: slots.leastKept, rule }, steps);
    const laterOf = (order: readonly number[]) => (isWeighed ? LATER * this.#worthOf(order) : 0);
    const unmovedLater = laterOf(unmoved.order);
    const priceOf = (order: readonly number[]) =>
      (context.hintTokens?.(order) ?? 0) + (rule?.priceOf === undefined ? 0 : rule.priceOf(order));
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
      if (!isWeighed || budget.isExceeded) continue;
      // The more of the best way on is followed, the longer the hint: each length of it is tried.
      let grown: readonly number[] | undefined;
      let mostGrown = Number.NEGATIVE_INFINITY;
      const way = this.#grown(start, count);
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
  #predicted(
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

  /** False, and nothing is weighed, where that takes more steps than are left. */
  #weigh(
    { documents, preamble }: Context,
    view: ResidencyView,
    { leastKept, rule }: { readonly leastKept: number; readonly rule: ConstraintRule | undefined },
    steps: OperationBudget,
  ): boolean {
    const full = 2 ** documents.length - 1;
    const limits = rule?.isOpen === false ? rule : undefined;
    const recent = view.recent.overlaps(documents, preamble, this.#masks);
    let cost = documents.length * 2 ** documents.length * (limits === undefined ? 1 : documents.length);
    for (let i = 0; i < recent; i++) cost += 2 ** bitCount(this.#masks[i]!);
    if (!steps.take(cost)) return false;
    this.#tokens[0] = preamble?.tokens ?? 0;
    this.#chance.fill(0, 0, full + 1);
    for (let i = 0; i < recent; i++) {
      const mask = this.#masks[i]!;
      for (let set = mask; set !== 0; set = (set - 1) & mask) this.#chance[set]!++;
    }
    for (let set = 1; set <= full; set++) {
      const lowest = 31 - Math.clz32(set & -set);
      this.#tokens[set] = this.#tokens[set & (set - 1)]! + documents[lowest]!.tokens;
      const unknown = 1 - UNKNOWN_CHANCE ** bitCount(set);
      this.#chance[set] = 1 - Math.exp(-RECENT_RATE * this.#chance[set]!) * unknown;
    }
    const price = (rule?.shiftPrice ?? 0) / LATER;
    this.#leastTokens = LENGTH_MARGIN * leastKept * this.#tokens[full]!;
    this.#later[full] = 0;
    for (let set = full - 1; set >= 0; set--) {
      const place = price === 0 ? 0 : bitCount(set);
      let most = Number.NEGATIVE_INFINITY;
      for (let left = full & ~set; left !== 0; left &= left - 1) {
        const rank = 31 - Math.clz32(left & -left);
        let value = this.#worthOfStep(set, rank) + this.#later[set | (1 << rank)]!;
        if (price !== 0) value -= price * Math.abs(place - rank);
        if (value <= most || (limits !== undefined && !limits.allows(ranksIn(set), rank))) continue;
        most = value;
        this.#next[set] = rank;
      }
      this.#later[set] = most;
    }
    return true;
  }

  /** Nothing of a prompt is reused until the least part of it is reached; that step brings all before it. */
  #worthOfStep(set: number, rank: number): number {
    const longer = set | (1 << rank);
    const tokens = this.#tokens[longer]!;
    if (tokens < this.#leastTokens) return 0;
    const before = this.#tokens[set]!;
    return this.#chance[longer]! * (before < this.#leastTokens ? tokens : tokens - before);
  }

  #worthOf(order: readonly number[]): number {
    let set = 0;
    let worth = 0;
    for (const rank of order) {
      worth += this.#worthOfStep(set, rank);
      set |= 1 << rank;
    }
    return worth;
  }

  #grown(start: readonly number[], count: number): number[] {
    const order = [...start];
    let set = 0;
    for (const rank of start) set |= 1 << rank;
    while (order.length < count) {
      const rank = this.#next[set]!;
      order.push(rank);
      set |= 1 << rank;
    }
    return order;
  }
}

function ranksIn(set: number): number[] {
  const ranks: number[] = [];
  for (let left = set; left !== 0; left &= left - 1) ranks.push(31 - Math.clz32(left & -left));
  return ranks;
}

function bitCount(set: number): number {
  let count = 0;
  for (let left = set; left !== 0; left &= left - 1) count++;
  return count;
}
