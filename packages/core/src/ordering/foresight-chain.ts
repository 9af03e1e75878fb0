import type { Document } from '../document.js';
import type { CachedPaths } from './cached-paths.js';
import { DEMAND_ROOM, type Demand } from './demand.js';
import type { ConstraintRule } from './placement.js';
import { followedByRetrievalOrder } from './retrieval-order.js';
import { shareGained, weightOfLater, worthOf } from './reuse-worth.js';

/** Documents at most: a set must fit a bit mask. */
export const CHAIN_MAX_DOCUMENTS = 30;

/** Cached paths from which a chain is grown, those with most tokens. */
const STARTS = 8;

/**
 * For contexts with too many subsets: from each of the 8 longest cached paths, adds the document that is worth most
 * next, by the worth of `SubsetSearch`, until no coming request wants what is left; the rest follows in retrieval
 * order. The best of these chains wins; among equals the first found.
 *
 * Where moving documents has a price, a path counts its tokens less that price, and a step what it is worth less what
 * it adds to the price.
 *
 * Up to 30 documents. O(8 × demand × k²) at most, far less as a rule, for each step keeps only the requests that want
 * all documents before it. Allocates some small arrays of ranks; must not be re-entered.
 */
export class ChainSearch {
  readonly #lengths = new Int32Array(CHAIN_MAX_DOCUMENTS);
  readonly #waiting = new Float64Array(CHAIN_MAX_DOCUMENTS);
  readonly #expected = new Float64Array(CHAIN_MAX_DOCUMENTS);
  /** Requests of the demand that want all documents of the chain so far. */
  readonly #interested = new Int32Array(DEMAND_ROOM);
  #interestedCount = 0;
  #meanLength = 0;
  readonly #starts: number[] = [];
  readonly #worths: number[] = [];

  /** Operations that `find` will count at most. O(1). */
  static cost(documents: number, demand: Demand, paths: CachedPaths, rule: ConstraintRule | undefined): number {
    const steps = Math.min(STARTS, paths.count) * documents;
    const prices = rule?.priceOf === undefined ? 0 : documents * (paths.count + steps * documents);
    return steps * (demand.count + documents) + demand.count * paths.count + prices;
  }

  /** See the class. Returns all ranks in prompt order. */
  find(
    documents: readonly Document[],
    demand: Demand,
    paths: CachedPaths,
    rule: ConstraintRule | undefined,
  ): readonly number[] {
    let tokens = 0;
    for (let rank = 0; rank < documents.length; rank++) {
      this.#lengths[rank] = documents[rank]!.tokens;
      tokens += documents[rank]!.tokens;
    }
    this.#meanLength = tokens / documents.length;
    this.#chooseStarts(paths, rule);
    const weight = weightOfLater(demand.waiting > 0);
    let most = Number.NEGATIVE_INFINITY;
    let best: number[] = [];
    for (const start of this.#starts) {
      const chain = paths.ranksOf(start);
      const worth = worthOfStart(paths, start, rule);
      const value = worth + weight * this.#grow(chain, demand, rule, weight);
      if (value <= most) continue;
      most = value;
      best = chain;
    }
    return rule === undefined ? followedByRetrievalOrder(best, documents.length) : rule.complete(best);
  }

  /**
   * Worth of what an order leaves behind its first `cached` documents, in tokens. Right behind a call of `find`, for
   * the same documents and demand. O(k × demand).
   */
  laterTokens(order: readonly number[], cached: number, demand: Demand): number {
    let set = 0;
    let tokens = 0;
    let later = 0;
    this.#interestedCount = demand.count;
    for (let i = 0; i < demand.count; i++) this.#interested[i] = i;
    for (const [place, rank] of order.entries()) {
      if (place >= cached) {
        this.#addUpDemand(demand, set, tokens);
        const worth = worthOf(this.#waiting[rank]!, this.#expected[rank]!, demand.waiting > 0);
        later += this.#lengths[rank]! * worth;
      }
      set |= 1 << rank;
      tokens += this.#lengths[rank]!;
    }
    return later;
  }

  /** The allowed paths that are worth most now, those first, the earlier first among equals. */
  #chooseStarts(paths: CachedPaths, rule: ConstraintRule | undefined): void {
    const starts = this.#starts;
    const worths = this.#worths;
    starts.length = 0;
    worths.length = 0;
    for (let path = 0; path < paths.count; path++) {
      if (paths.allowed[path] === 0) continue;
      const worth = worthOfStart(paths, path, rule);
      let at = starts.length;
      while (at > 0 && worths[at - 1]! < worth) at--;
      if (at === STARTS) continue;
      starts.splice(at, 0, path);
      worths.splice(at, 0, worth);
      if (starts.length > STARTS) starts.length = worths.length = STARTS;
    }
  }

  /**
   * Appends to the chain while anyone wants more of it at its price; returns the worth of what was appended, in tokens
   * that are saved later, of which each counts `weight`.
   */
  #grow(chain: number[], demand: Demand, rule: ConstraintRule | undefined, weight: number): number {
    const limits = rule?.isOpen === false ? rule : undefined;
    const priceOf = rule?.priceOf;
    let set = 0;
    let tokens = 0;
    for (const rank of chain) {
      set |= 1 << rank;
      tokens += this.#lengths[rank]!;
    }
    this.#interestedCount = demand.count;
    for (let i = 0; i < demand.count; i++) this.#interested[i] = i;
    let worth = 0;
    for (;;) {
      const wanted = this.#addUpDemand(demand, set, tokens);
      const price = priceOf?.(chain) ?? 0;
      let most = 0;
      let next = -1;
      for (let left = wanted; left !== 0; left &= left - 1) {
        const rank = 31 - Math.clz32(left & -left);
        let value = this.#lengths[rank]! * worthOf(this.#waiting[rank]!, this.#expected[rank]!, demand.waiting > 0);
        if (value <= most) continue;
        if (priceOf !== undefined) value -= (priceWith(rank, chain, priceOf) - price) / weight;
        if (value <= most || (limits !== undefined && !limits.allows(chain, rank))) continue;
        most = value;
        next = rank;
      }
      if (next < 0) return worth;
      chain.push(next);
      set |= 1 << next;
      tokens += this.#lengths[next]!;
      worth += most;
    }
  }

  /** By next document: the requests that could use the chain up to it. Returns the documents anyone wants next. */
  #addUpDemand(demand: Demand, set: number, tokens: number): number {
    this.#waiting.fill(0);
    this.#expected.fill(0);
    const interested = this.#interested;
    let still = 0;
    let wanted = 0;
    for (let i = 0; i < this.#interestedCount; i++) {
      const request = interested[i]!;
      if ((set & ~demand.sets[request]!) !== 0) continue;
      interested[still++] = request;
      const more = demand.sets[request]! & ~set;
      wanted |= more;
      const requests = request < demand.waiting ? this.#waiting : this.#expected;
      for (let left = more; left !== 0; left &= left - 1) {
        const rank = 31 - Math.clz32(left & -left);
        const share = shareGained(tokens + this.#lengths[rank]!, demand.held[request]!, this.#meanLength);
        requests[rank]! += demand.weights[request]! * share;
      }
    }
    this.#interestedCount = still;
    return wanted;
  }
}

/** Tokens of a cached path, less what it costs to begin with it. */
function worthOfStart(paths: CachedPaths, path: number, rule: ConstraintRule | undefined): number {
  const tokens = paths.tokens[path]!;
  return rule?.priceOf === undefined ? tokens : tokens - rule.priceOf(paths.ranksOf(path));
}

function priceWith(rank: number, chain: number[], priceOf: NonNullable<ConstraintRule['priceOf']>): number {
  chain.push(rank);
  const price = priceOf(chain);
  chain.pop();
  return price;
}
