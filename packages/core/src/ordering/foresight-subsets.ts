import type { Document } from '../document.js';
import type { CachedPaths } from './cached-paths.js';
import type { Demand } from './demand.js';
import type { ConstraintRule } from './placement.js';
import { shareGained, weightOfLater, worthOf } from './reuse-worth.js';

/** Documents whose 256 subsets are all weighed. */
export const SUBSETS_MAX_DOCUMENTS = 8;

const SUBSETS = 1 << SUBSETS_MAX_DOCUMENTS;

/**
 * The best order by the worth of what it reuses and leaves behind: a dynamic programme over the subsets of the
 * documents.
 *
 * A prompt that starts with the documents of a set X leaves a path over X, worth `worthOf` what coming requests could
 * save with it. The best way on from X adds the document whose length, times the worth of the longer set, plus the best
 * way on from there, is largest; the order starts with the cached path whose tokens plus the best way on from its set
 * are largest. Among equals the first in lexicographic order of ranks. The constraints are held at every step: what may
 * come next depends on the set before it alone, and so does what it costs to move it there.
 *
 * Up to 8 documents. O(k 2^k + sum of 2^|set| over the demand); allocates the answer alone, and must not be re-entered.
 */
export class SubsetSearch {
  readonly #lengths = new Int32Array(SUBSETS_MAX_DOCUMENTS);
  /**
   * All by set: its tokens; requests waiting and expected that could use a path over it; its worth; the best way on.
   */
  readonly #tokens = new Float64Array(SUBSETS);
  readonly #waiting = new Float64Array(SUBSETS);
  readonly #expected = new Float64Array(SUBSETS);
  readonly #worth = new Float64Array(SUBSETS);
  readonly #later = new Float64Array(SUBSETS);
  readonly #next = new Uint8Array(SUBSETS);
  /** By set, where moving has a price: places that the best way on moves documents. */
  readonly #moves = new Uint8Array(SUBSETS);
  readonly #prefix: number[] = [];

  /** Operations that `find` will count. O(demand). */
  static cost(documents: number, demand: Demand, rule: ConstraintRule | undefined): number {
    const step = rule === undefined || rule.isOpen ? 1 : documents;
    let operations = documents * step * 2 ** documents;
    for (let i = 0; i < demand.count; i++) operations += 2 ** bitCount(demand.sets[i]!);
    return operations;
  }

  /** See the class. Returns all ranks in prompt order. */
  find(documents: readonly Document[], demand: Demand, paths: CachedPaths, rule: ConstraintRule | undefined): number[] {
    const full = 2 ** documents.length - 1;
    this.#addUpTokens(documents, full);
    this.#addUpDemand(demand, full, this.#tokens[full]! / documents.length);
    const weight = weightOfLater(demand.waiting > 0);
    this.#planBackwards(full, rule, weight);
    const path = this.#bestStart(paths, weight, rule?.shiftPrice ?? 0);
    const order = paths.ranksOf(path);
    for (let set = paths.sets[path]!; set !== full; set |= 1 << order.at(-1)!) order.push(this.#next[set]!);
    return order;
  }

  /**
   * Worth of what an order leaves behind its first `cached` documents, in tokens. Right behind a call of `find`, for
   * the same documents. O(k).
   */
  laterTokens(order: readonly number[], cached: number): number {
    let set = 0;
    let later = 0;
    for (const [place, rank] of order.entries()) {
      set |= 1 << rank;
      if (place >= cached) later += this.#lengths[rank]! * this.#worth[set]!;
    }
    return later;
  }

  #addUpTokens(documents: readonly Document[], full: number): void {
    for (let rank = 0; rank < documents.length; rank++) this.#lengths[rank] = documents[rank]!.tokens;
    for (let set = 1; set <= full; set++) {
      this.#tokens[set] = this.#tokens[set & (set - 1)]! + this.#lengths[lowestRank(set)]!;
    }
  }

  /** Every request wants each subset of its documents that reaches further than what it will find anyway. */
  #addUpDemand(demand: Demand, full: number, meanLength: number): void {
    const tokens = this.#tokens;
    this.#waiting.fill(0, 0, full + 1);
    this.#expected.fill(0, 0, full + 1);
    for (let i = 0; i < demand.count; i++) {
      const wanted = demand.sets[i]!;
      const held = demand.held[i]!;
      const weight = demand.weights[i]!;
      const requests = i < demand.waiting ? this.#waiting : this.#expected;
      for (let set = wanted; set !== 0; set = (set - 1) & wanted) {
        requests[set]! += weight * shareGained(tokens[set]!, held, meanLength);
      }
    }
    const queueKnown = demand.waiting > 0;
    for (let set = 1; set <= full; set++) {
      this.#worth[set] = worthOf(this.#waiting[set]!, this.#expected[set]!, queueKnown);
    }
  }

  /** The best next document for every set that can still be completed, from the full set down. */
  #planBackwards(full: number, rule: ConstraintRule | undefined, weight: number): void {
    const later = this.#later;
    const worth = this.#worth;
    const moves = this.#moves;
    const limits = rule?.isOpen === false ? rule : undefined;
    const price = (rule?.shiftPrice ?? 0) / weight;
    later[full] = 0;
    moves[full] = 0;
    for (let set = full - 1; set >= 0; set--) {
      const place = price === 0 ? 0 : bitCount(set);
      let most = Number.NEGATIVE_INFINITY;
      let next = -1;
      for (let left = full & ~set; left !== 0; left &= left - 1) {
        const longer = set | (left & -left);
        const rank = lowestRank(left);
        let value = this.#lengths[rank]! * worth[longer]! + later[longer]!;
        if (price !== 0) value -= price * (Math.abs(place - rank) + moves[longer]!);
        if (value <= most || (limits !== undefined && !this.#allows(limits, set, rank))) continue;
        most = value;
        next = rank;
      }
      later[set] = most;
      this.#next[set] = next;
      if (price === 0 || next < 0) continue;
      const longer = set | (1 << next);
      later[set] = this.#lengths[next]! * worth[longer]! + later[longer]!;
      moves[set] = Math.abs(place - next) + moves[longer]!;
    }
  }

  #bestStart(paths: CachedPaths, weight: number, price: number): number {
    let most = Number.NEGATIVE_INFINITY;
    let best = 0;
    for (let path = 0; path < paths.count; path++) {
      if (paths.allowed[path] === 0) continue;
      const set = paths.sets[path]!;
      let value = paths.tokens[path]! + weight * this.#later[set]!;
      if (price !== 0) value -= price * (paths.moves[path]! + this.#moves[set]!);
      if (value <= most) continue;
      most = value;
      best = path;
    }
    return best;
  }

  #allows(rule: ConstraintRule, set: number, rank: number): boolean {
    const prefix = this.#prefix;
    prefix.length = 0;
    for (let left = set; left !== 0; left &= left - 1) prefix.push(lowestRank(left));
    return rule.allows(prefix, rank);
  }
}

function lowestRank(set: number): number {
  return 31 - Math.clz32(set & -set);
}

function bitCount(set: number): number {
  let count = 0;
  for (let left = set; left !== 0; left &= left - 1) count++;
  return count;
}
