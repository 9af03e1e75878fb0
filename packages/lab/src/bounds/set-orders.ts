import { MersenneTwister } from '../workloads/mersenne-twister.js';
import type { SharedSubsets } from './shared-subsets.js';

/** Sweeps over all sets without a shorter trie after which orders are left as they are. */
const SWEEPS = 6;

/** What the orders are drawn with where several are as good. */
const SEED = 1;

/**
 * An order for every set, all together as short a trie as can be found: what the upper end of a bracket is made of. An
 * order is proposed for one set after another, by the cheapest chain of subsets where what others have ordered costs
 * nothing and the rest its share; then sets are taken out and put back on the deepest path that is there, or on another
 * one as deep, until no trie is shorter for some sweeps.
 */
export class SetOrders {
  readonly #subsets: SharedSubsets;
  readonly #random = new MersenneTwister(SEED);
  /** By set: its documents in order; empty while it has none. */
  #orders: (readonly number[])[];
  /** By document: its place in the set at hand, or -1. */
  readonly #placeOf: Int8Array;
  /** By mask: the set whose order starts with these documents, and the look that found it. */
  readonly #owner = new Int32Array(2 ** 16);
  readonly #look = new Int32Array(2 ** 16);
  #looks = 0;
  /** Masks that the last look found. */
  readonly #opened: number[] = [];

  constructor(subsets: SharedSubsets) {
    this.#subsets = subsets;
    this.#orders = subsets.sets.map(() => []);
    this.#placeOf = new Int8Array(subsets.weights.length).fill(-1);
  }

  /** Orders all sets anew by these shares and returns the tokens of their trie. O(sets² + subsets × k) a sweep. */
  propose(shares: readonly Float64Array[]): number {
    const { sets } = this.#subsets;
    this.#orders = sets.map(() => []);
    const queue = sets.map((_, set) => set);
    this.#random.shuffle(queue);
    for (const set of queue) this.#orders[set] = this.#cheapestOrder(set, shares[set]!);
    return this.improve();
  }

  /** Starts from given orders, by set, and returns the tokens of their trie. */
  start(orders: readonly (readonly number[])[]): number {
    this.#orders = [...orders];
    return this.improve();
  }

  /** Moves sets while that makes the trie shorter; returns its tokens. */
  improve(): number {
    let least = this.#trieTokens();
    for (let sweep = 0; sweep < SWEEPS; sweep++) {
      for (let set = 0; set < this.#orders.length; set++) this.#reinsert(set);
      const tokens = this.#trieTokens();
      if (tokens < least) sweep = -1;
      least = Math.min(least, tokens);
    }
    return least;
  }

  #cheapestOrder(set: number, shares: Float64Array): readonly number[] {
    const documents = this.#subsets.sets[set]!;
    this.#lookAtOthers(set);
    const prices = shares.slice();
    for (const mask of this.#opened) prices[this.#subsets.slotOf(set, mask)] = 0;
    const places = this.#subsets.cheapestChain(set, prices).steps.map(({ place }) => place);
    let mask = 0;
    let start: readonly number[] = [];
    for (const place of places) {
      mask |= 1 << place;
      if (this.#look[mask] === this.#looks) start = this.#orders[this.#owner[mask]!]!.slice(0, bitCount(mask));
    }
    return this.#followedBy(start, [...places.map((place) => documents[place]!), ...documents]);
  }

  /** Puts a set on the deepest path that the others leave, or on one of several. */
  #reinsert(set: number): void {
    this.#lookAtOthers(set);
    let most = 0;
    let chosen = 0;
    let equals = 0;
    for (const mask of this.#opened) {
      const tokens = this.#tokensOf(set, mask);
      if (tokens < most) continue;
      equals = tokens > most ? 1 : equals + 1;
      most = tokens;
      if (equals === 1 || this.#random.random() * equals < 1) chosen = mask;
    }
    if (chosen === 0) return;
    const start = this.#orders[this.#owner[chosen]!]!.slice(0, bitCount(chosen));
    this.#orders[set] = this.#followedBy(start, this.#orders[set]!);
  }

  #followedBy(start: readonly number[], rest: readonly number[]): readonly number[] {
    return [...new Set([...start, ...rest])];
  }

  /** Finds the subsets of a set that orders of others start with. O(sets + what they share). */
  #lookAtOthers(set: number): void {
    this.#looks++;
    this.#opened.length = 0;
    const documents = this.#subsets.sets[set]!;
    for (const [place, document] of documents.entries()) this.#placeOf[document] = place;
    for (let other = 0; other < this.#orders.length; other++) {
      if (other === set) continue;
      let mask = 0;
      for (const document of this.#orders[other]!) {
        const place = this.#placeOf[document]!;
        if (place < 0) break;
        mask |= 1 << place;
        if (this.#look[mask] === this.#looks) continue;
        this.#look[mask] = this.#looks;
        this.#owner[mask] = other;
        this.#opened.push(mask);
      }
    }
    for (const document of documents) this.#placeOf[document] = -1;
  }

  #tokensOf(set: number, mask: number): number {
    const documents = this.#subsets.sets[set]!;
    let tokens = 0;
    for (let left = mask; left !== 0; left &= left - 1) {
      tokens += this.#subsets.weights[documents[31 - Math.clz32(left & -left)]!]!;
    }
    return tokens;
  }

  /** Tokens of the trie of all orders. O(documents). */
  #trieTokens(): number {
    interface Node extends Map<number, Node> {}
    const root: Node = new Map();
    let tokens = 0;
    for (const order of this.#orders) {
      let node = root;
      for (const document of order) {
        let child = node.get(document);
        if (child === undefined) {
          child = new Map() as Node;
          node.set(document, child);
          tokens += this.#subsets.weights[document]!;
        }
        node = child;
      }
    }
    return tokens;
  }
}

function bitCount(mask: number): number {
  let count = 0;
  for (let left = mask; left !== 0; left &= left - 1) count++;
  return count;
}
