import { WarmpathError } from '../errors.js';
import type { ResidencyView, SlotsView } from '../residency/view.js';
import {
  BEST_PATH_MAX_OPERATIONS,
  CountedBudget,
  type OperationBudget,
  preambleNode,
  residentPreambleTokens,
} from '../tree/best-path.js';
import type { PlacementRule } from '../tree/view.js';
import type { Context, Ordering } from './policy.js';

/** How far documents may move, which may not move, and the price of moving. Ranks and places count from 0. */
export interface OrderConstraints {
  /** Places that a document may move from its retrieval rank; `undefined` for any number. */
  readonly maxShift: number | undefined;
  /** Ranks whose documents keep their place; sorted ascending. */
  readonly pinned: readonly number[];
  /** Price in tokens of each place that a document moves. Default 0. */
  readonly shiftPrice?: number | undefined;
}

/** Highest price. No order saves so many tokens. */
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

export function isFree({ maxShift, pinned, shiftPrice = 0 }: OrderConstraints): boolean {
  return maxShift === undefined && pinned.length === 0 && shiftPrice === 0;
}

/** Sum of the places that documents are away from their retrieval ranks. O(k). */
export function placesMoved(order: readonly number[]): number {
  let places = 0;
  for (let place = 0; place < order.length; place++) places += Math.abs(place - order[place]!);
  return places;
}

/**
 * The constraints as a rule for building an order from its start.
 *
 * Pinned documents keep their places. A start can be completed within `maxShift` if and only if the documents left, in
 * retrieval order, fit the free places left, in order. So a document may come next if each document that it overtakes
 * can wait one more place.
 */
export class ConstraintRule implements PlacementRule {
  /** Whether any document may have any place. */
  readonly isOpen: boolean;
  /** Whether every order is allowed and free. */
  readonly isFree: boolean;
  /** Price in tokens of each place moved. */
  readonly shiftPrice: number;
  /**
   * Price of an order that begins with `start` and goes on as `complete` does, which moves the rest least. `undefined`
   * if moving is free. O(count), without allocation.
   */
  readonly priceOf: ((start: readonly number[]) => number) | undefined;
  readonly #count: number;
  readonly #maxShift: number;
  readonly #pinned: Uint8Array;
  readonly #taken: Uint8Array;

  /** O(count). */
  constructor(count: number, constraints: OrderConstraints) {
    this.#count = count;
    this.#maxShift = constraints.maxShift ?? count;
    this.#pinned = new Uint8Array(count);
    this.#taken = new Uint8Array(count);
    for (const rank of constraints.pinned) this.#pinned[rank] = 1;
    this.isOpen = constraints.maxShift === undefined && constraints.pinned.length === 0;
    this.shiftPrice = constraints.shiftPrice ?? 0;
    this.isFree = isFree(constraints);
    if (this.shiftPrice > 0) this.priceOf = (start) => this.shiftPrice * this.#placesMoved(start);
  }

  /** Whether `rank` may follow `start`, such that the rest can still be placed. O(count), without allocation. */
  allows(start: readonly number[], rank: number): boolean {
    if (this.isOpen) return true;
    const place = start.length;
    if (this.#pinned[place] === 1 || this.#pinned[rank] === 1) return place === rank;
    if (Math.abs(place - rank) > this.#maxShift) return false;
    const taken = this.#taken;
    taken.fill(0);
    for (let p = 0; p < place; p++) taken[start[p]!] = 1;
    return this.#canOvertake(place, rank);
  }

  /** Whether all documents left before `rank` can wait for the next free place when `rank` gets `place`. */
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

  /** Whether the document of this rank is pinned. */
  isPinned(rank: number): boolean {
    return this.#pinned[rank] === 1;
  }

  /** Places moved in the order that completes a start. */
  #placesMoved(start: readonly number[]): number {
    const taken = this.#taken;
    taken.fill(0);
    let places = 0;
    for (let place = 0; place < start.length; place++) {
      taken[start[place]!] = 1;
      places += Math.abs(place - start[place]!);
    }
    let next = 0;
    for (let place = start.length; place < this.#count; place++) {
      if (this.#pinned[place] === 1) continue;
      while (taken[next] === 1 || this.#pinned[next] === 1) next++;
      places += Math.abs(place - next++);
    }
    return places;
  }

  /** Completes a start: pinned documents at their places, all others in retrieval order. O(count). */
  complete(start: readonly number[]): number[] {
    const taken = this.#taken;
    taken.fill(0);
    const order = start.slice();
    for (const rank of start) taken[rank] = 1;
    let next = 0;
    for (let place = start.length; place < this.#count; place++) {
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
 * The allowed order that is closest to a desired one: at each place, the most desired document that may stand there.
 * Returns `desired` itself if the constraints are free. O(k²).
 *
 * @param desired a permutation of 0..k-1
 */
export function limitShift(desired: readonly number[], constraints: OrderConstraints): readonly number[] {
  if (isFree(constraints)) return desired;
  const count = desired.length;
  const rule = new ConstraintRule(count, constraints);
  const maxShift = constraints.maxShift ?? count;
  const desiredPlace = new Int32Array(count);
  for (let i = 0; i < count; i++) desiredPlace[desired[i]!] = i;
  const taken = new Uint8Array(count);
  const state: Placing = { maxShift, desiredPlace, taken, rule };
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
  /** By rank: the place in the desired order. */
  readonly desiredPlace: Int32Array;
  /** By rank: 1 once placed. */
  readonly taken: Uint8Array;
  readonly rule: ConstraintRule;
}

/** The most desired document that may come next. The first one left may always come next, so there is one. */
function mostDesired(place: number, state: Placing): number {
  const { maxShift, desiredPlace, taken, rule } = state;
  let best = -1;
  let waitUntil = place;
  const last = Math.min(desiredPlace.length - 1, place + maxShift);
  for (let rank = 0; rank <= last; rank++) {
    if (taken[rank] === 1 || rule.isPinned(rank)) continue;
    if (best < 0 || desiredPlace[rank]! < desiredPlace[best]!) best = rank;
    do waitUntil++;
    while (rule.isPinned(waitUntil));
    if (waitUntil - rank > maxShift) break;
  }
  return best;
}

/**
 * Adds to an order how much of it is cached behind the preamble. O(k); for an engine with slots, O(prompts) within
 * `budget` (default 65,536 operations).
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

/** Cached tokens by the slots, and the documents that lie within them. */
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
