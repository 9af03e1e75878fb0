import { ConstraintRule, isFree, type OrderConstraints } from './placement.js';

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
