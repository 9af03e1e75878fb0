import type { Document } from '../document.js';
import type { Preamble } from '../preamble.js';
import { UnusedDocuments } from './unused-documents.js';
import type { CachedPath, KnowledgeTreeView, PlacementRule, TreeNode } from './view.js';

type Tree = Pick<KnowledgeTreeView, 'root'>;

/** The node behind which the documents stand; `undefined` if the preamble is not resident as a whole. O(steps). */
export function preambleNode({ root }: Tree, preamble: Preamble | undefined): TreeNode | undefined {
  if (preamble === undefined) return root;
  let node: TreeNode | undefined = root;
  for (const { key } of preamble.steps ?? []) node = node?.children.get(key);
  return node?.children.get(preamble.key);
}

/**
 * Resident tokens of the preamble: a new turn of a conversation finds what earlier turns left. O(steps).
 *
 * @param node the answer of `preambleNode`
 */
export function residentPreambleTokens(
  { root }: Tree,
  preamble: Preamble | undefined,
  node: TreeNode | undefined,
): number {
  if (preamble === undefined) return 0;
  if (node !== undefined) return preamble.tokens;
  let reached: TreeNode | undefined = root;
  let tokens = 0;
  for (const step of preamble.steps ?? []) {
    reached = reached.children.get(step.key);
    if (reached === undefined) break;
    tokens += step.tokens;
  }
  return tokens;
}

/** Default bound on one search: a few milliseconds on a tree that was served to be slow. */
export const BEST_PATH_MAX_OPERATIONS = 65_536;

/** Steps of arithmetic that take as long as one look-up in the tree (measured). */
export const OPERATIONS_A_LOOK_UP = 8;

export interface BestPathOptions {
  /** Stands before the documents: the path must start with it. */
  readonly preamble: Preamble | undefined;
  readonly rule: PlacementRule | undefined;
  readonly maxOperations?: number | undefined;
}

/**
 * The path of the tree that uses only the given documents, each at most once, and saves most tokens (CacheWeaver §3.3,
 * Eq. 1). Among equals, the first in lexicographic order of retrieval ranks. A price of the rule is subtracted.
 *
 * Depth first; the first descent is the greedy walk of RAGCache++ Algorithm 1. Ends before it would pass
 * `maxOperations`, with the best path so far. A look-up counts 8 operations; a check of the rule or its price, one for
 * each document.
 */
export function bestPath(
  tree: Tree,
  documents: readonly Document[],
  { preamble, rule, maxOperations = BEST_PATH_MAX_OPERATIONS }: BestPathOptions,
): CachedPath {
  const start = preambleNode(tree, preamble);
  const preambleTokens = residentPreambleTokens(tree, preamble, start);
  if (start === undefined) return { order: [], tokens: preambleTokens, operations: 0, isComplete: true };
  const search = new Search(documents, rule, maxOperations);
  search.start(start);
  return {
    order: search.best,
    tokens: preambleTokens + search.bestTokens,
    operations: search.operations,
    isComplete: !search.isCutShort,
  };
}

class Search {
  best: readonly number[] = [];
  bestTokens = 0;
  operations = 0;
  isCutShort = false;
  readonly #documents: readonly Document[];
  readonly #rule: PlacementRule | undefined;
  readonly #maxOperations: number;
  readonly #unused: UnusedDocuments;
  readonly #path: number[] = [];
  readonly #allTokens: number;
  /** With a price: tokens that the best path saves, less its price. */
  #mostWorth = 0;

  constructor(documents: readonly Document[], rule: PlacementRule | undefined, maxOperations: number) {
    this.#documents = documents;
    this.#rule = rule;
    this.#maxOperations = maxOperations;
    this.#unused = new UnusedDocuments(documents);
    this.#allTokens = documents.reduce((sum, { tokens }) => sum + tokens, 0);
  }

  start(node: TreeNode): void {
    if (this.#take(OPERATIONS_A_LOOK_UP * this.#documents.length)) this.#descend(node, 0);
  }

  /** Tries every way on from `node`; true when nothing better can come. Saves the path on the way back up. */
  #descend(node: TreeNode, tokens: number): boolean {
    const priceOf = this.#rule?.priceOf;
    if (priceOf !== undefined && !this.#canBeWorthMore(tokens, priceOf)) return this.isCutShort;
    const isOver = this.#unused.lookUps(node) > 0 && this.#visitChildren(node, tokens);
    if (isOver && !this.isCutShort) return true;
    if (priceOf !== undefined) return this.isCutShort;
    if (tokens > this.bestTokens) this.#save(tokens);
    return this.#unused.count === 0 || this.isCutShort;
  }

  /** Saves the path if it is worth more than the best one. False if no longer path can be worth more. */
  #canBeWorthMore(tokens: number, priceOf: NonNullable<PlacementRule['priceOf']>): boolean {
    if (!this.#take(this.#documents.length)) return false;
    const price = priceOf(this.#path);
    if (tokens - price > this.#mostWorth) {
      this.#mostWorth = tokens - price;
      this.#save(tokens);
    }
    return this.#allTokens - price > this.#mostWorth;
  }

  #visitChildren(node: TreeNode, tokens: number): boolean {
    if (!this.#take(OPERATIONS_A_LOOK_UP * this.#unused.lookUps(node))) return true;
    for (const { rank, child } of this.#unused.childrenOf(node)) {
      if (this.#visit(child, rank, tokens)) return true;
    }
    return false;
  }

  /** Goes down one child, if its document may stand here. */
  #visit(child: TreeNode, rank: number, tokens: number): boolean {
    if (this.#rule !== undefined) {
      if (!this.#take(this.#documents.length)) return true;
      if (!this.#rule.allows(this.#path, rank)) return false;
    }
    this.#path.push(rank);
    this.#unused.use(rank);
    const isOver = this.#descend(child, tokens + this.#documents[rank]!.tokens);
    this.#unused.giveBack(rank);
    this.#path.pop();
    return isOver;
  }

  /** Counts the operations; false, and the search is cut short, if fewer are left. */
  #take(operations: number): boolean {
    if (this.operations + operations > this.#maxOperations) this.isCutShort = true;
    else this.operations += operations;
    return !this.isCutShort;
  }

  #save(tokens: number): void {
    this.best = [...this.#path];
    this.bestTokens = tokens;
  }
}
