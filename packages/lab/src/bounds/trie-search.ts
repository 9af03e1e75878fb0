import { MersenneTwister } from '../workloads/mersenne-twister.js';

/** A node of the trie: what all paths through it share behind what stands above, in no order yet. */
interface TrieNode {
  label: readonly number[];
  above: TrieNode | undefined;
  readonly below: TrieNode[];
  /** The set that ends here, which has a node of its own; -1 for what several share. */
  readonly set: number;
  /** The step that last noted what the node was. */
  notedIn: number;
}

/** What a node was before a step. */
interface Note {
  readonly node: TrieNode;
  readonly label: readonly number[];
  readonly above: TrieNode | undefined;
  readonly below: readonly TrieNode[];
}

/** Where a set shares most with the trie: below a node, or with a part of the node's label. */
interface Place {
  readonly node: TrieNode;
  readonly isPart: boolean;
}

/** Sets that a step takes out at most. */
const MAX_TAKEN = 12;

/** Sets among which a set's companions are, those that share most with it. */
const NEAREST = 256;

/** How much more often the nearest ones are chosen: every other one is among the nearest eighth. */
const NEARNESS = 3;

/**
 * Looks for a trie of few tokens over sets of documents by taking some sets out and putting them back one after the
 * other, each where it shares most (ruin and recreate). What is taken out lies near each other in documents or in the
 * trie, for only such sets can gain together. A step that costs more is kept now and then, the rarer the lower the
 * temperature (simulated annealing), else undone. Deterministic: numbers are drawn from a seed.
 */
export class TrieSearch {
  readonly #sets: readonly (readonly number[])[];
  readonly #weights: readonly number[];
  readonly #random = new MersenneTwister(1);
  readonly #root: TrieNode = { label: [], above: undefined, below: [], set: -1, notedIn: 0 };
  readonly #ends: readonly TrieNode[];
  /** By document: the sets that hold it. */
  readonly #holders: readonly number[][];
  /** By set, once it was asked for: the sets that share documents with it, those first that share most. */
  readonly #nearest: Int32Array[] = [];
  /** By set: tokens shared with the one at hand, zero between uses. */
  readonly #shared: Float64Array;
  /** By document: the number of the insertion for which it is still to be placed. */
  readonly #wanted: Int32Array;
  #insertion = 0;
  #step = 0;
  #notes: Note[] = [];
  #tokens = 0;
  #least: number;

  /** Sets are not empty and none stands twice. O(sets × labels looked at). */
  constructor(sets: readonly (readonly number[])[], weights: readonly number[]) {
    this.#sets = sets;
    this.#weights = weights;
    this.#holders = weights.map(() => []);
    for (const [set, documents] of sets.entries()) for (const one of documents) this.#holders[one]!.push(set);
    this.#shared = new Float64Array(sets.length);
    this.#wanted = new Int32Array(weights.length);
    this.#ends = sets.map((label, set) => ({ label, above: undefined, below: [], set, notedIn: 0 }));
    for (const end of this.#ends) this.#putBack(end);
    this.#least = this.#tokens;
  }

  /** Tokens of the trie as it is; `orders` makes one of no more. */
  get tokens(): number {
    return this.#tokens;
  }

  /** Fewest tokens of any trie seen. */
  get least(): number {
    return this.#least;
  }

  /** The documents of every set in an order that its path in the trie allows. O(documents). */
  orders(): readonly (readonly number[])[] {
    return this.#ends.map((end) => {
      const labels: (readonly number[])[] = [];
      for (let node: TrieNode | undefined = end; node !== undefined; node = node.above) labels.push(node.label);
      return labels.reverse().flat();
    });
  }

  /** Takes some sets out and puts them back. `temperature` in tokens. O(labels looked at × k) for each of them. */
  step(temperature: number): void {
    this.#step++;
    this.#notes = [];
    const before = this.#tokens;
    const taken = this.#choose();
    for (const set of taken) this.#takeOut(this.#ends[set]!);
    for (let last = taken.length - 1; last >= 0; last--) {
      const other = this.#below(last + 1);
      const set = taken[other]!;
      taken[other] = taken[last]!;
      this.#putBack(this.#ends[set]!);
    }
    const more = this.#tokens - before;
    if (more > 0 && this.#random.random() >= Math.exp(-more / temperature)) {
      this.#undo();
      this.#tokens = before;
    }
    if (this.#tokens < this.#least) this.#least = this.#tokens;
  }

  #below(limit: number): number {
    return Math.floor(this.#random.random() * limit);
  }

  /** A set, and others that share documents with it or stand near it in the trie. */
  #choose(): number[] {
    const first = this.#below(this.#sets.length);
    const count = 2 + this.#below(MAX_TAKEN - 1);
    const chosen = new Set([first]);
    const way = this.#below(4);
    if (way < 2) {
      // As many tries as places: a set may have no other companions.
      for (let tries = 0; tries < 2 * count && chosen.size < count; tries++) chosen.add(this.#companionOf(first));
    } else {
      for (const set of this.#neighboursOf(first, count)) chosen.add(set);
      if (way === 2) chosen.add(this.#companionOf(first));
    }
    return [...chosen];
  }

  /** A set that shares documents with this one, more likely a near one; the set itself if there is none. */
  #companionOf(set: number): number {
    this.#nearest[set] ??= this.#nearestOf(set);
    const nearest = this.#nearest[set];
    return nearest[Math.floor(this.#random.random() ** NEARNESS * nearest.length)] ?? set;
  }

  /** O(holders of its documents, sorted). */
  #nearestOf(set: number): Int32Array {
    const shared = this.#shared;
    const others: number[] = [];
    for (const document of this.#sets[set]!) {
      for (const other of this.#holders[document]!) {
        if (other === set) continue;
        if (shared[other] === 0) others.push(other);
        shared[other]! += this.#weights[document]!;
      }
    }
    others.sort((one, other) => shared[other]! - shared[one]! || one - other);
    for (const other of others) shared[other] = 0;
    return Int32Array.from(others.slice(0, NEAREST));
  }

  /** The sets below the highest node above this one that has at most `count` of them. */
  #neighboursOf(set: number, count: number): readonly number[] {
    let near: readonly number[] = [set];
    for (let node = this.#ends[set]!.above!; node !== this.#root; node = node.above!) {
      const sets = setsBelow(node, count);
      if (sets === undefined) break;
      near = sets;
    }
    return near;
  }

  /** Takes a set's end out; a node that only one path is left of becomes part of what stands below. */
  #takeOut(end: TrieNode): void {
    const above = end.above!;
    this.#note(end);
    this.#note(above);
    above.below.splice(above.below.indexOf(end), 1);
    end.above = undefined;
    for (const document of end.label) this.#tokens -= this.#weights[document]!;
    if (above === this.#root || above.below.length > 1) return;
    const only = above.below.pop()!;
    const higher = above.above!;
    this.#note(only);
    this.#note(higher);
    only.label = [...above.label, ...only.label];
    only.above = higher;
    higher.below[higher.below.indexOf(above)] = only;
  }

  #putBack(end: TrieNode): void {
    const documents = this.#sets[end.set]!;
    const number = ++this.#insertion;
    for (const document of documents) this.#wanted[document] = number;
    const place = this.#bestPlace(number);
    const above = place.isPart ? this.#split(place.node, number) : place.node;
    for (let node = above; node !== this.#root; node = node.above!) {
      for (const document of node.label) this.#wanted[document] = 0;
    }
    this.#note(end);
    this.#note(above);
    end.label = documents.filter((document) => this.#wanted[document] === number);
    end.above = above;
    above.below.push(end);
    for (const document of end.label) this.#tokens += this.#weights[document]!;
  }

  /** Where most of the wanted documents are shared; among equal places any, with equal chances. */
  #bestPlace(number: number): Place {
    const nodes = [this.#root];
    const sharedAt = [0];
    let best: Place = { node: this.#root, isPart: false };
    let most = 0;
    let equals = 1;
    const offer = (node: TrieNode, isPart: boolean, shared: number): void => {
      if (shared < most || shared === 0) return;
      equals = shared > most ? 1 : equals + 1;
      most = shared;
      if (equals === 1 || this.#below(equals) === 0) best = { node, isPart };
    };
    while (nodes.length > 0) {
      const above = nodes.pop()!;
      const sharedAbove = sharedAt.pop()!;
      offer(above, false, sharedAbove);
      for (const node of above.below) {
        let found = 0;
        let shared = sharedAbove;
        for (const document of node.label) {
          if (this.#wanted[document] !== number) continue;
          found++;
          shared += this.#weights[document]!;
        }
        if (found === 0) continue;
        if (found === node.label.length && node.set < 0) {
          nodes.push(node);
          sharedAt.push(shared);
        } else offer(node, true, shared);
      }
    }
    return best;
  }

  /** Puts a new node with the wanted part of a node's label above it. */
  #split(node: TrieNode, number: number): TrieNode {
    const above = node.above!;
    this.#note(node);
    this.#note(above);
    const label = node.label.filter((document) => this.#wanted[document] === number);
    const upper: TrieNode = { label, above, below: [node], set: -1, notedIn: this.#step };
    node.label = node.label.filter((document) => this.#wanted[document] !== number);
    node.above = upper;
    above.below[above.below.indexOf(node)] = upper;
    return upper;
  }

  #note(node: TrieNode): void {
    if (node.notedIn === this.#step) return;
    node.notedIn = this.#step;
    this.#notes.push({ node, label: node.label, above: node.above, below: [...node.below] });
  }

  #undo(): void {
    for (const { node, label, above, below } of this.#notes) {
      node.label = label;
      node.above = above;
      node.below.splice(0, node.below.length, ...below);
    }
  }
}

/** The sets that end below a node; `undefined` if they are more than `most`. O(most). */
function setsBelow(node: TrieNode, most: number): readonly number[] | undefined {
  const sets: number[] = [];
  const nodes = [node];
  while (nodes.length > 0) {
    const next = nodes.pop()!;
    if (next.set >= 0) sets.push(next.set);
    if (sets.length + nodes.length > most) return undefined;
    for (const below of next.below) nodes.push(below);
  }
  return sets;
}
