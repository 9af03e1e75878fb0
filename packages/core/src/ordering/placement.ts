import type { PlacementRule } from '../tree/view.js';

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

/** Whether this can be a price of moving documents. */
export function isShiftPrice(value: unknown): value is number {
  return typeof value === 'number' && value >= 0 && value <= MAX_SHIFT_PRICE;
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
