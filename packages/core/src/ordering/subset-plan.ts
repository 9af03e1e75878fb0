import type { ConstraintRule } from './placement.js';

/** Documents at most, because all subsets are visited. */
export const SUBSETS_MAX_DOCUMENTS = 8;

/** Value of placing the document `rank` behind the documents of `set`, in any order of these. */
export type StepValue = (set: number, rank: number) => number;

export interface SubsetPlanOptions {
  /** Documents, at most 8. */
  readonly count: number;
  readonly valueOfStep: StepValue;
  readonly rule: ConstraintRule;
  /** Price of each place that a document moves. */
  readonly price: number;
}

/**
 * The best completion of every set of documents: a dynamic programme from the full set down. Among equals, the document
 * of lower rank comes first.
 */
export class SubsetPlan {
  /** By set: value of the best completion, without the price of its moves. */
  readonly laterValues: number[];
  /** By set: places that documents move in the best completion. */
  readonly laterMoves: number[];
  readonly #next: number[];
  readonly #full: number;
  readonly #valueOfStep: StepValue;

  /** O(k 2^k) steps; O(k² 2^k) with constraints. */
  constructor({ count, valueOfStep, rule, price }: SubsetPlanOptions) {
    const full = 2 ** count - 1;
    const values: number[] = new Array(full + 1).fill(0);
    const moves: number[] = new Array(full + 1).fill(0);
    const next: number[] = new Array(full + 1).fill(-1);
    for (let set = full - 1; set >= 0; set--) {
      const place = rankCount(set);
      const prefix = rule.isOpen ? [] : ranksIn(set);
      let most = Number.NEGATIVE_INFINITY;
      values[set] = most;
      for (let left = full & ~set; left !== 0; left &= left - 1) {
        const rank = lowestRank(left);
        const longer = set | (1 << rank);
        const value = valueOfStep(set, rank) + values[longer]!;
        const moved = Math.abs(place - rank) + moves[longer]!;
        const worth = price === 0 ? value : value - price * moved;
        if (worth <= most || !rule.allows(prefix, rank)) continue;
        most = worth;
        next[set] = rank;
        values[set] = value;
        moves[set] = moved;
      }
    }
    this.laterValues = values;
    this.laterMoves = moves;
    this.#next = next;
    this.#full = full;
    this.#valueOfStep = valueOfStep;
  }

  /** Operations that a plan takes. */
  static cost(count: number, rule: ConstraintRule): number {
    return count * 2 ** count * (rule.isOpen ? 1 : count);
  }

  /** `start`, followed by its best completion. */
  complete(start: readonly number[]): number[] {
    const order = [...start];
    for (let set = setOf(start); set !== this.#full; set |= 1 << order.at(-1)!) order.push(this.#next[set]!);
    return order;
  }

  /** Value of the documents of an order behind its first `from`. O(k). */
  valueBehind(order: readonly number[], from: number): number {
    let set = 0;
    let value = 0;
    for (const [place, rank] of order.entries()) {
      if (place >= from) value += this.#valueOfStep(set, rank);
      set |= 1 << rank;
    }
    return value;
  }
}

/** Sets of retrieval ranks as bit masks, for up to 30 documents. */

export function lowestRank(set: number): number {
  return 31 - Math.clz32(set & -set);
}

export function rankCount(set: number): number {
  let count = 0;
  for (let left = set; left !== 0; left &= left - 1) count++;
  return count;
}

/** Ascending. */
export function ranksIn(set: number): number[] {
  const ranks: number[] = [];
  for (let left = set; left !== 0; left &= left - 1) ranks.push(lowestRank(left));
  return ranks;
}

export function setOf(ranks: readonly number[]): number {
  return ranks.reduce((set, rank) => set | (1 << rank), 0);
}
