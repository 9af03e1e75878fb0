import type { ChainStep, Holders, SharedSubsets } from './shared-subsets.js';

/** Rounds without a better bound after which steps become half as long. */
const PATIENCE = 3;

/** Length of the first steps, as a part of Polyak's, which overshoot: the best trie known is above the best bound. */
const FIRST_STEP = 0.15;

/** Part of a direction that goes on into the next round: what two rounds disagree about is smoothed out. */
const MOMENTUM = 0.85;

/** A direction below this in all its numbers has died away. */
const MIN_DIRECTION = 1e-4;

/** Steps shorter than this move nothing. */
const MIN_STEP = 1e-3;

/** Slack for sums in floating point. */
const TOLERANCE = 1e-9;

/**
 * A lower bound on the tokens of a trie over sets, made better round by round.
 *
 * A trie has one node for each set of documents that some path starts with, and that node's tokens can be shared out
 * among the sets whose paths pass it: each pays a part, all parts together no more than the whole. So fix for every
 * shared subset how its cost is divided among the sets that hold it. A set by itself can then do no better than the
 * cheapest chain of subsets up to itself, a shortest path; and the sum over all sets is a lower bound, whatever the
 * division. (It is the Lagrangian relaxation of "a set that passes a node pays for it": its best value is that of
 * the linear programme of flows on the lattice of subsets.) Subgradient steps look for the best division: who uses a
 * subset pays more of it, who does not pays less. Directions have momentum, which takes half of the rounds for the same
 * bound.
 */
export class CostShares {
  readonly #subsets: SharedSubsets;
  readonly #shares: readonly Float64Array[];
  /** By subset in use of late: where its division moves, a number for each holder. */
  readonly #directions = new Map<Holders, Float64Array>();
  #best = 0;
  #length = FIRST_STEP;
  #since = 0;

  /** All holders of a subset pay as much at first. */
  constructor(subsets: SharedSubsets) {
    this.#subsets = subsets;
    this.#shares = subsets.counts.map((counts) => Float64Array.from(counts, (count) => 1 / count));
  }

  /** Whether more rounds can be expected to find more. */
  get isDone(): boolean {
    return this.#length < MIN_STEP;
  }

  /**
   * One round: the best bound so far, that of the present shares included, which then move on. `found`: tokens of the
   * best trie known. O(subsets × k), and the holders of the subsets in use.
   */
  round(found: number): number {
    const used = new Map<Holders, Map<number, number>>();
    let least = 0;
    for (let set = 0; set < this.#subsets.sets.length; set++) {
      const { cost, steps } = this.#subsets.cheapestChain(set, this.#shares[set]!);
      least += cost;
      this.#note(used, set, steps);
    }
    least *= 1 - TOLERANCE;
    if (least > this.#best) {
      this.#best = least;
      this.#since = 0;
    } else if (++this.#since >= PATIENCE) {
      this.#length /= 2;
      this.#since = 0;
    }
    this.#step(used, found - least);
    return this.#best;
  }

  /** By subset in use: the sets that use it, and the tokens that each would pay for the whole of it. */
  #note(used: Map<Holders, Map<number, number>>, set: number, steps: readonly ChainStep[]): void {
    for (const { slot, place } of steps) {
      const holders = this.#subsets.holdersOf(set, slot);
      const users = used.get(holders) ?? new Map<number, number>();
      users.set(set, this.#subsets.weights[this.#subsets.sets[set]![place]!]!);
      used.set(holders, users);
    }
  }

  /** Polyak's step along the directions, within the divisions that there are. */
  #step(used: ReadonlyMap<Holders, ReadonlyMap<number, number>>, missing: number): void {
    const directions = this.#directions;
    for (const holders of used.keys()) {
      if (!directions.has(holders)) directions.set(holders, new Float64Array(holders.sets.length));
    }
    let squares = 0;
    for (const [holders, direction] of directions) {
      const size = turn(direction, holders, used.get(holders));
      if (size.most < MIN_DIRECTION) directions.delete(holders);
      else squares += size.squares;
    }
    if (squares <= 0 || missing <= 0) return;
    const length = (this.#length * missing) / squares;
    for (const [holders, direction] of directions) this.#move(holders, direction, length);
  }

  #move({ sets, slots }: Holders, direction: Float64Array, length: number): void {
    const moved = new Float64Array(sets.length);
    for (let i = 0; i < sets.length; i++) {
      moved[i] = this.#shares[sets[i]!]![slots[i]!]! + length * direction[i]!;
    }
    projectOnShares(moved);
    for (let i = 0; i < sets.length; i++) this.#shares[sets[i]!]![slots[i]!] = moved[i]!;
  }
}

/** Turns a direction towards who uses a subset, away from who does not, by a sum of 0; says how large it is then. */
function turn(
  direction: Float64Array,
  { sets }: Holders,
  users: ReadonlyMap<number, number> | undefined,
): { readonly most: number; readonly squares: number } {
  let paid = 0;
  if (users !== undefined) for (const tokens of users.values()) paid += tokens;
  const mean = paid / sets.length;
  let most = 0;
  let squares = 0;
  for (let i = 0; i < sets.length; i++) {
    const now = (users?.get(sets[i]!) ?? 0) - mean;
    const turned = MOMENTUM * direction[i]! + (1 - MOMENTUM) * now;
    direction[i] = turned;
    squares += turned * turned;
    most = Math.max(most, Math.abs(turned));
  }
  return { most, squares };
}

/** The nearest numbers that are nowhere below 0 and add up to 1. O(numbers²) at worst, a few passes as a rule. */
function projectOnShares(values: Float64Array): void {
  const above = new Uint8Array(values.length).fill(1);
  for (;;) {
    let sum = 0;
    let count = 0;
    for (let i = 0; i < values.length; i++) {
      if (above[i] === 0) continue;
      sum += values[i]!;
      count++;
    }
    const excess = (sum - 1) / count;
    let isDone = true;
    for (let i = 0; i < values.length; i++) {
      if (above[i] === 1 && values[i]! - excess < 0) {
        above[i] = 0;
        isDone = false;
      }
    }
    if (!isDone) continue;
    for (let i = 0; i < values.length; i++) values[i] = above[i] === 1 ? values[i]! - excess : 0;
    return;
  }
}
