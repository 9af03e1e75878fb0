import { WarmpathError } from '../errors.js';
import type { ResidencyView, SlotsView } from '../residency/view.js';
import { preambleNode, residentPreambleTokens } from '../tree/best-path.js';
import { BEST_PATH_MAX_OPERATIONS, CountedBudget, type OperationBudget } from '../tree/operation-budget.js';
import type { PlacementRule } from '../tree/view.js';
import type { Context, Ordering } from './policy.js';

/**
 * The constraints: how far a document may move, which may not move at all, and what moving costs. Ranks and places
 * count from 0.
 */
export interface OrderConstraints {
  /** Places a document may move from its retrieval rank; `undefined` for any number. */
  readonly maxShift: number | undefined;
  /** Ranks whose documents keep their place; sorted ascending. */
  readonly pinned: readonly number[];
  /** Tokens that each place costs by which a document moves from its retrieval rank; nothing where left out. */
  readonly shiftPrice?: number | undefined;
}

/** The highest price: no order saves so many tokens. */
const MAX_SHIFT_PRICE = 1_000_000_000;

/** Checks `maxShift`; `null` counts as absent. Error: `WARMPATH_INVALID_MAX_SHIFT`. */
export function readMaxShift(value: unknown, path = 'maxShift'): number | undefined {
  if (value === undefined || value === null) return undefined;
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number;
  throw new WarmpathError('WARMPATH_INVALID_MAX_SHIFT', { path });
}

/** Checks `shiftPrice`; `null` counts as absent. Error: `WARMPATH_INVALID_SHIFT_PRICE`. */
export function readShiftPrice(value: unknown, path = 'shiftPrice'): number | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value === 'number' && value >= 0 && value <= MAX_SHIFT_PRICE) return value;
  throw new WarmpathError('WARMPATH_INVALID_SHIFT_PRICE', { path });
}

/** Whether the constraints leave every order open, and none costs anything. */
export function isFree({ maxShift, pinned, shiftPrice = 0 }: OrderConstraints): boolean {
  return maxShift === undefined && pinned.length === 0 && shiftPrice === 0;
}

/** Places that documents stand away from their retrieval ranks, of all documents together. O(k). */
export function placesMoved(order: readonly number[]): number {
  let places = 0;
  for (let place = 0; place < order.length; place++) places += Math.abs(place - order[place]!);
  return places;
}

/**
 * The constraints as a rule for building an order from the front.
 *
 * Pinned documents hold their places. The others fill the free places, and a prefix can be completed within `maxShift`
 * if, and only if, the documents left, taken in retrieval order, fit the free places left, taken in order: windows of
 * equal width around sorted centres match sorted places best in sorted order. So a document may come next if all that
 * it overtakes can still wait for one place more.
 */
export class ConstraintRule implements PlacementRule {
  /** Whether any document may stand anywhere. */
  readonly isOpen: boolean;
  /** Tokens that a place moved costs. */
  readonly shiftPrice: number;
  /**
   * Tokens that it costs to begin with `prefix` and go on as `complete` does, which no other way on undercuts: what is
   * left, in sorted order on sorted places, moves least. Absent at a price of 0. O(count), no allocation.
   */
  readonly priceOf: ((prefix: readonly number[]) => number) | undefined;
  readonly #count: number;
  readonly #maxShift: number;
  readonly #pinned: Uint8Array;
  readonly #taken: Uint8Array;

  /** For `count` documents. O(count). */
  constructor(count: number, constraints: OrderConstraints) {
    this.#count = count;
    this.#maxShift = constraints.maxShift ?? count;
    this.#pinned = new Uint8Array(count);
    this.#taken = new Uint8Array(count);
    for (const rank of constraints.pinned) this.#pinned[rank] = 1;
    this.isOpen = constraints.maxShift === undefined && constraints.pinned.length === 0;
    this.shiftPrice = constraints.shiftPrice ?? 0;
    if (this.shiftPrice > 0) this.priceOf = (prefix) => this.shiftPrice * this.#placesMoved(prefix);
  }

  /**
   * May `rank` follow `prefix` (ranks chosen so far, itself within the constraints) such that the rest can still be
   * placed? O(count), no allocation.
   */
  allows(prefix: readonly number[], rank: number): boolean {
    if (this.isOpen) return true;
    const place = prefix.length;
    if (this.#pinned[place] === 1 || this.#pinned[rank] === 1) return place === rank;
    if (Math.abs(place - rank) > this.#maxShift) return false;
    const taken = this.#taken;
    taken.fill(0);
    for (let p = 0; p < place; p++) taken[prefix[p]!] = 1;
    return this.#canOvertake(place, rank);
  }

  /** Can all documents before `rank` that are left wait for the next free place when `rank` goes to `place`? */
  #canOvertake(place: number, rank: number): boolean {
    let next = place;
    for (let waiting = 0; waiting < rank; waiting++) {
      if (this.#taken[waiting] === 1 || this.#pinned[waiting] === 1) continue;
      do next++;
      while (this.#pinned[next] === 1);
      if (next - waiting > this.#maxShift) return false;
    }
    return true;
  }

  /** Whether the document of this rank keeps its place. */
  isPinned(rank: number): boolean {
    return this.#pinned[rank] === 1;
  }

  /** Places that documents move in all, in the order that completes a prefix. */
  #placesMoved(prefix: readonly number[]): number {
    const taken = this.#taken;
    taken.fill(0);
    let places = 0;
    for (let place = 0; place < prefix.length; place++) {
      taken[prefix[place]!] = 1;
      places += Math.abs(place - prefix[place]!);
    }
    let next = 0;
    for (let place = prefix.length; place < this.#count; place++) {
      if (this.#pinned[place] === 1) continue;
      while (taken[next] === 1 || this.#pinned[next] === 1) next++;
      places += Math.abs(place - next++);
    }
    return places;
  }

  /**
   * Completes a prefix within the constraints: pinned documents at their places, all others in retrieval order.
   * O(count).
   */
  complete(prefix: readonly number[]): number[] {
    const taken = this.#taken;
    taken.fill(0);
    const order = prefix.slice();
    for (const rank of prefix) taken[rank] = 1;
    let next = 0;
    for (let place = prefix.length; place < this.#count; place++) {
      if (this.#pinned[place] === 1) {
        order.push(place);
        continue;
      }
      while (taken[next] === 1 || this.#pinned[next] === 1) next++;
      order.push(next++);
    }
    return order;
  }
}

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
