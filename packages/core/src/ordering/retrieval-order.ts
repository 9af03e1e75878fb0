import { CountedBudget, type OperationBudget } from '../residency/prompt-slots.js';
import type { ResidencyView, SlotsView } from '../residency/view.js';
import { BEST_PATH_MAX_OPERATIONS, preambleNode, residentPreambleTokens } from '../tree/best-path.js';
import { ConstraintRule, isFree, type OrderConstraints } from './placement.js';
import type { Context, Ordering } from './policy.js';

/**
 * The order within the constraints that follows a desired order most closely: place by place, the most desired document
 * left that may stand there. `desired` is a permutation of 0..k-1 and is returned as it is when the constraints leave
 * it open.
 *
 * Cost: O(1) when the constraints are free, else O(k²), allocating the answer and three flat arrays.
 */
export function limitShift(desired: readonly number[], constraints: OrderConstraints): readonly number[] {
  if (isFree(constraints)) return desired;
  const count = desired.length;
  const rule = new ConstraintRule(count, constraints);
  const maxShift = constraints.maxShift ?? count;
  const wish = new Int32Array(count);
  for (let i = 0; i < count; i++) wish[desired[i]!] = i;
  const taken = new Uint8Array(count);
  const state: Placing = { maxShift, wish, taken, rule };
  const order: number[] = [];
  for (let place = 0; place < count; place++) {
    const rank = rule.isPinned(place) ? place : mostDesired(place, state);
    taken[rank] = 1;
    order.push(rank);
  }
  return order;
}

interface Placing {
  readonly maxShift: number;
  /** By rank: where the desired order has it. */
  readonly wish: Int32Array;
  /** By rank: 1 once placed. */
  readonly taken: Uint8Array;
  readonly rule: ConstraintRule;
}

/**
 * Looks at the documents left in retrieval order, as long as all those passed over can wait one free place more. The
 * first of them may always come next, so there is an answer whenever the order so far can be completed.
 */
function mostDesired(place: number, state: Placing): number {
  const { maxShift, wish, taken, rule } = state;
  let best = -1;
  let waitUntil = place;
  const last = Math.min(wish.length - 1, place + maxShift);
  for (let rank = 0; rank <= last; rank++) {
    if (taken[rank] === 1 || rule.isPinned(rank)) continue;
    if (best < 0 || wish[rank]! < wish[best]!) best = rank;
    do waitUntil++;
    while (rule.isPinned(waitUntil));
    if (waitUntil - rank > maxShift) break;
  }
  return best;
}

/**
 * Completes an order to an `Ordering`: how far the view holds it as a path behind the preamble. O(k) expected; where
 * the engine keeps prompts in slots, what a look at them takes, within `budget` (default: 65,536 operations).
 */
export function withCachedPrefix(
  order: readonly number[],
  context: Context,
  view: ResidencyView,
  budget?: OperationBudget,
): Ordering {
  const { tree, slots } = view;
  const { preamble } = context;
  if (slots !== undefined) return inSlots(order, context, slots, budget);
  let node = preambleNode(tree, preamble);
  let cachedTokens = residentPreambleTokens(tree, preamble, node);
  if (node === undefined) return { order, cachedDocuments: 0, cachedTokens };
  let cachedDocuments = 0;
  for (const rank of order) {
    const document = context.documents[rank]!;
    node = node.children.get(document.key);
    if (node === undefined) break;
    cachedTokens += document.tokens;
    cachedDocuments++;
  }
  return { order, cachedDocuments, cachedTokens };
}

/** What an engine with slots would reuse, and the documents that lie within it whole. */
function inSlots(
  order: readonly number[],
  { documents, preamble }: Context,
  slots: SlotsView,
  budget: OperationBudget = new CountedBudget(BEST_PATH_MAX_OPERATIONS),
): Ordering {
  const arranged = order.map((rank) => documents[rank]!);
  const cachedTokens = slots.predict(arranged, preamble, budget);
  let end = preamble?.tokens ?? 0;
  let cachedDocuments = 0;
  for (const { tokens } of arranged) {
    end += tokens;
    if (end > cachedTokens) break;
    cachedDocuments++;
  }
  return { order, cachedDocuments, cachedTokens };
}

/** The identity: 0, 1, 2, … O(count). */
export function retrievalOrder(count: number): number[] {
  const order: number[] = new Array(count);
  for (let rank = 0; rank < count; rank++) order[rank] = rank;
  return order;
}

/**
 * `prefix`, then all other ranks below `count` in retrieval order. O(count × prefix) without allocation beside the
 * answer.
 */
export function followedByRetrievalOrder(prefix: readonly number[], count: number): readonly number[] {
  const order: number[] = new Array(count);
  const length = prefix.length;
  for (let place = 0; place < length; place++) order[place] = prefix[place]!;
  let place = length;
  for (let rank = 0; place < count; rank++) {
    if (!prefix.includes(rank)) order[place++] = rank;
  }
  return order;
}
