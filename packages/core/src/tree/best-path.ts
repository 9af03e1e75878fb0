import type { Document } from '../document.js';
import type { Preamble } from '../preamble.js';
import { KeyLanes } from './interner.js';
import type { KnowledgeTree } from './knowledge-tree.js';
import {
  CHILDREN,
  DOCUMENT,
  FIRST_CHILD,
  FIRST_DOCUMENT,
  NEXT_SIBLING,
  NODE_SHIFT,
  ROOT,
  SCAN_UP_TO,
} from './node-store.js';
import type { CachedPath, KnowledgeTreeView, PlacementRule } from './view.js';

type Tree = Pick<KnowledgeTreeView, 'child'>;

/** The node behind which the documents stand, or -1 if the preamble is not resident as a whole. O(steps). */
export function preambleNode(tree: Tree, preamble: Preamble | undefined): number {
  if (preamble === undefined) return 0;
  let node = 0;
  if (preamble.steps !== undefined) {
    for (const { key } of preamble.steps) {
      node = tree.child(node, key);
      if (node < 0) return -1;
    }
  }
  return tree.child(node, preamble.key);
}

/**
 * Tokens of the preamble that are resident: a conversation's new turn finds what the turns before it left. `node` is
 * what `preambleNode` answered. O(1), or O(steps) where the whole preamble is not resident.
 */
export function residentPreambleTokens(tree: Tree, preamble: Preamble | undefined, node: number): number {
  if (preamble === undefined) return 0;
  if (node >= 0) return preamble.tokens;
  let reached = 0;
  let tokens = 0;
  for (const step of preamble.steps ?? []) {
    reached = tree.child(reached, step.key);
    if (reached < 0) break;
    tokens += step.tokens;
  }
  return tokens;
}

/** Operations that one search may take, where nothing else is asked for: well below a millisecond on any tree. */
export const BEST_PATH_MAX_OPERATIONS = 65_536;

/** A look-up in the tree waits for memory: it takes as long as some eight steps of arithmetic (measured). */
export const OPERATIONS_A_LOOK_UP = 8;

/** A memo of all searches: what it answers depends on the documents alone. */
const LANES = new KeyLanes();

const NOTHING_CACHED: CachedPath = { order: [], tokens: 0, operations: 0, isComplete: true };

/**
 * Finds the path of the tree that uses only documents of a given set, each at most once, and saves most tokens; among
 * equals the one whose retrieval ranks come first in lexicographic order, which is what trying every permutation in
 * order finds first. (Maximises the reusable prefix of CacheWeaver §3.3, Eq. 1, in tokens instead of documents.)
 *
 * Depth-first over the nodes whose whole path lies in the set, each visited once. At a node it follows a short
 * sibling list, or else probes the child table for every document left. The first dive is the greedy walk of Algorithm
 * 1, so the answer is never worse than that walk's within the same budget.
 *
 * Where the rule has a price, the path that saves most tokens less its price; among equals the first that the search
 * meets. It goes no further where the documents left could not make up for the price so far.
 *
 * Before `maxOperations` would be passed, the search ends with the best path found so far and says so. A look at a
 * child, or for a document's number, counts 8, a check of the placement rule, or its price, as many as there are
 * documents. Trees of
 * 10,000 served requests take a few hundred to ten thousand operations.
 *
 * Cost: O(nodes inside the set × documents left) expected; allocates the answer alone. One instance per
 * tree: its scratch memory is reused, so it must not be re-entered.
 */
export class BestPathSearch {
  readonly #tree: KnowledgeTree;
  /** By document number: retrieval rank + 1 while the document may be used, else 0. */
  #rankOf = new Int32Array(256);
  /** Ranks whose document the tree knows, ascending, and their numbers. */
  #ranks = new Int32Array(32);
  #numbers = new Int32Array(32);
  #tokens = new Int32Array(32);
  /** Matching children of the nodes on the current path, as (rank, child) pairs. */
  #matches = new Int32Array(512);
  #best = new Int32Array(32);
  #top = 0;
  #records: Int32Array = new Int32Array(0);
  readonly #path: number[] = [];
  #rule: PlacementRule | undefined;
  #documents = 0;
  #known = 0;
  #left = 0;
  #bestDepth = 0;
  #bestTokens = 0;
  /** With a price: what the best path saves less what it costs, and the tokens of all documents that the tree knows. */
  #mostWorth = 0;
  #knownTokens = 0;
  #operations = 0;
  #maxOperations = 0;
  #isCutShort = false;
  /** Keeps the preloads from being optimised away. */
  #preloaded = 0;

  constructor(tree: KnowledgeTree) {
    this.#tree = tree;
  }

  /** See the class. `preamble` is the key of what stands before the documents: the path must start with it. */
  find(
    documents: readonly Document[],
    preamble: Preamble | undefined,
    rule: PlacementRule | undefined,
    maxOperations: number = BEST_PATH_MAX_OPERATIONS,
  ): CachedPath {
    const tree = this.#tree;
    const start = preambleNode(tree, preamble);
    const preambleTokens = residentPreambleTokens(tree, preamble, start);
    if (start < 0) return preambleTokens === 0 ? NOTHING_CACHED : { ...NOTHING_CACHED, tokens: preambleTokens };
    try {
      this.#maxOperations = maxOperations;
      this.#begin(documents, rule);
      this.#descend(start, 0, 0);
    } finally {
      // Also when a rule throws: what it left marked would mislead the next search.
      this.#end();
    }
    const order: number[] = new Array(this.#bestDepth);
    for (let place = 0; place < order.length; place++) order[place] = this.#best[place]!;
    return {
      order,
      tokens: preambleTokens + this.#bestTokens,
      operations: this.#operations,
      isComplete: !this.#isCutShort,
    };
  }

  #begin(documents: readonly Document[], rule: PlacementRule | undefined): void {
    const tree = this.#tree;
    if (this.#rankOf.length < tree.numberLimit) this.#rankOf = new Int32Array(2 * tree.numberLimit);
    if (this.#ranks.length < documents.length) this.#makeRoomFor(documents.length);
    this.#operations = 0;
    this.#isCutShort = false;
    this.#left = 0;
    this.#bestDepth = 0;
    this.#bestTokens = 0;
    this.#mostWorth = 0;
    this.#knownTokens = 0;
    this.#rule = rule;
    this.#documents = documents.length;
    if (!this.#take(OPERATIONS_A_LOOK_UP * documents.length)) return;
    const lanes = LANES.of(documents);
    for (let rank = 0; rank < documents.length; rank++) {
      const number = tree.numberOfLanes(lanes[2 * rank]!, lanes[2 * rank + 1]!);
      if (number < 0) continue;
      this.#ranks[this.#known] = rank;
      this.#numbers[this.#known++] = number;
      this.#rankOf[number] = rank + 1;
      this.#tokens[rank] = documents[rank]!.tokens;
      this.#knownTokens += documents[rank]!.tokens;
    }
    this.#records = tree.records;
    this.#left = this.#known;
  }

  #end(): void {
    for (let i = 0; i < this.#known; i++) this.#rankOf[this.#numbers[i]!] = 0;
    this.#known = 0;
    this.#top = 0;
    this.#path.length = 0;
    this.#rule = undefined;
  }

  /** Tries every way on from `node`; true when nothing better can come. Saves the path on the way back up. */
  #descend(node: number, depth: number, tokens: number): boolean {
    const priceOf = this.#rule?.priceOf;
    if (priceOf !== undefined && !this.#isWorthGoingOn(depth, tokens, priceOf)) return this.#isCutShort;
    const children = this.#records[(node << NODE_SHIFT) + CHILDREN]!;
    if (children !== 0 && this.#left !== 0) {
      const over = children <= SCAN_UP_TO ? this.#scan(node, depth, tokens) : this.#probe(node, depth, tokens);
      if (over && !this.#isCutShort) return true;
    }
    if (priceOf !== undefined) return this.#isCutShort;
    if (tokens > this.#bestTokens) this.#save(depth, tokens);
    return this.#left === 0 || this.#isCutShort;
  }

  /** Saves the path if it is worth more than the best one, and says whether a longer one could be. */
  #isWorthGoingOn(depth: number, tokens: number, priceOf: NonNullable<PlacementRule['priceOf']>): boolean {
    if (!this.#take(this.#documents)) return false;
    const price = priceOf(this.#path);
    if (tokens - price > this.#mostWorth) {
      this.#mostWorth = tokens - price;
      this.#save(depth, tokens);
    }
    return this.#knownTokens - price > this.#mostWorth;
  }

  /** Whether so many operations are left; they are taken then, and the search is cut short otherwise. */
  #take(operations: number): boolean {
    if (this.#operations + operations > this.#maxOperations) this.#isCutShort = true;
    else this.#operations += operations;
    return !this.#isCutShort;
  }

  /** Follows the sibling list: collects the children that are in the set, by rank, then visits them. */
  #scan(node: number, depth: number, tokens: number): boolean {
    const records = this.#records;
    const rankOf = this.#rankOf;
    const first = this.#top;
    const record = node << NODE_SHIFT;
    const children = records[record + CHILDREN]!;
    if (!this.#take(OPERATIONS_A_LOOK_UP * children)) return true;
    if (children === 1) {
      const rank = rankOf[records[record + FIRST_DOCUMENT]!]! - 1;
      return rank >= 0 && this.#visit(records[record + FIRST_CHILD]!, rank, depth, tokens);
    }
    let child = records[(node << NODE_SHIFT) + FIRST_CHILD]!;
    let top = first;
    if (top + 2 * this.#left > this.#matches.length) this.#growMatches();
    const matches = this.#matches;
    while (child !== ROOT) {
      const record = child << NODE_SHIFT;
      const rank = rankOf[records[record + DOCUMENT]!]! - 1;
      if (rank >= 0) {
        let at = top;
        for (; at > first && matches[at - 2]! > rank; at -= 2) {
          matches[at] = matches[at - 2]!;
          matches[at + 1] = matches[at - 1]!;
        }
        matches[at] = rank;
        matches[at + 1] = child;
        top += 2;
      }
      child = records[record + NEXT_SIBLING]!;
    }
    return this.#visitMatches(first, top, depth, tokens);
  }

  /** Asks the child table for every document left, by rank, then visits the children found. */
  #probe(node: number, depth: number, tokens: number): boolean {
    if (!this.#take(OPERATIONS_A_LOOK_UP * this.#left)) return true;
    const tree = this.#tree;
    const rankOf = this.#rankOf;
    const numbers = this.#numbers;
    const known = this.#known;
    const first = this.#top;
    let top = first;
    if (top + 2 * this.#left > this.#matches.length) this.#growMatches();
    const matches = this.#matches;
    let preloaded = 0;
    for (let i = 0; i < known; i++) preloaded |= tree.preload(node, numbers[i]!);
    this.#preloaded = preloaded;
    for (let i = 0; i < known; i++) {
      const number = numbers[i]!;
      if (rankOf[number] === 0) continue;
      const child = tree.childByNumber(node, number);
      if (child < 0) continue;
      matches[top] = this.#ranks[i]!;
      matches[top + 1] = child;
      top += 2;
    }
    return this.#visitMatches(first, top, depth, tokens);
  }

  #visitMatches(first: number, top: number, depth: number, tokens: number): boolean {
    let preloaded = this.#preloaded;
    for (let at = first; at < top; at += 2) preloaded |= this.#records[this.#matches[at + 1]! << NODE_SHIFT]!;
    this.#preloaded = preloaded;
    this.#top = top;
    let over = false;
    for (let at = first; at < top && !over; at += 2) {
      over = this.#visit(this.#matches[at + 1]!, this.#matches[at]!, depth, tokens);
    }
    this.#top = first;
    return over;
  }

  /** Goes down one child, if its document may stand here. */
  #visit(child: number, rank: number, depth: number, tokens: number): boolean {
    if (this.#rule !== undefined) {
      if (!this.#take(this.#documents)) return true;
      if (!this.#rule.allows(this.#path, rank)) return false;
    }
    const number = this.#records[(child << NODE_SHIFT) + DOCUMENT]!;
    this.#path.push(rank);
    this.#rankOf[number] = 0;
    this.#left--;
    const over = this.#descend(child, depth + 1, tokens + this.#tokens[rank]!);
    this.#left++;
    this.#rankOf[number] = rank + 1;
    this.#path.pop();
    return over;
  }

  #save(depth: number, tokens: number): void {
    for (let place = 0; place < depth; place++) this.#best[place] = this.#path[place]!;
    this.#bestDepth = depth;
    this.#bestTokens = tokens;
  }

  #makeRoomFor(documents: number): void {
    const room = 2 * documents;
    this.#ranks = new Int32Array(room);
    this.#numbers = new Int32Array(room);
    this.#tokens = new Int32Array(room);
    this.#best = new Int32Array(room);
  }

  #growMatches(): void {
    const matches = new Int32Array(2 * (this.#matches.length + 2 * this.#left));
    matches.set(this.#matches);
    this.#matches = matches;
  }
}
