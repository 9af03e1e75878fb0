import type { Document } from '../document.js';
import type { Preamble } from '../preamble.js';
import type { CachedPath, KnowledgeTreeView, PlacementRule, TreeNode } from './view.js';

type Tree = Pick<KnowledgeTreeView, 'root'>;

/** The node of the preamble; `undefined` if some of the preamble is not resident. O(steps). */
export function preambleNode({ root }: Tree, preamble: Preamble | undefined): TreeNode | undefined {
  if (preamble === undefined) return root;
  let node: TreeNode | undefined = root;
  for (const { key } of preamble.steps ?? []) node = node?.children.get(key);
  return node?.children.get(preamble.key);
}

/**
 * Resident tokens of the preamble: a new turn of a conversation finds what earlier turns left. O(steps).
 *
 * @param node the result of `preambleNode`
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

interface BestPathOptions {
  /** Stands before the documents: the path must start with it. */
  readonly preamble: Preamble | undefined;
  readonly rule: PlacementRule | undefined;
  readonly maxOperations?: number | undefined;
}

/**
 * Finds the path of the tree that saves most tokens (CacheWeaver §3.3, Eq. 1), less the price of the rule. A path uses
 * each of the given documents at most once. Among equals, the first in lexicographic order of retrieval ranks.
 *
 * Depth first; the first descent is the greedy walk of RAGCache++ Algorithm 1. Stops at `maxOperations` with the best
 * path so far. A look-up counts 8 operations; a check of the rule or its price, one for each document.
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
    operations: search.budget.taken,
    isComplete: !search.budget.isExceeded,
  };
}

class Search {
  best: readonly number[] = [];
  bestTokens = 0;
  readonly budget: OperationBudget;
  readonly #documents: readonly Document[];
  readonly #rule: PlacementRule | undefined;
  readonly #unused: UnusedDocuments;
  readonly #path: number[] = [];
  readonly #allTokens: number;
  /** With a price: tokens that the best path saves, less its price. */
  #bestValue = 0;

  constructor(documents: readonly Document[], rule: PlacementRule | undefined, maxOperations: number) {
    this.budget = new CountedBudget(maxOperations);
    this.#documents = documents;
    this.#rule = rule;
    this.#unused = new UnusedDocuments(documents);
    this.#allTokens = documents.reduce((sum, { tokens }) => sum + tokens, 0);
  }

  start(node: TreeNode): void {
    if (this.budget.take(OPERATIONS_A_LOOK_UP * this.#documents.length)) this.#descend(node, 0);
  }

  /** Tries all paths below `node`, then saves its own. Returns true when no better path can follow. */
  #descend(node: TreeNode, tokens: number): boolean {
    const priceOf = this.#rule?.priceOf;
    if (priceOf !== undefined && !this.#canImprove(tokens, priceOf)) return this.budget.isExceeded;
    const isOver = this.#unused.lookUps(node) > 0 && this.#visitChildren(node, tokens);
    if (isOver && !this.budget.isExceeded) return true;
    if (priceOf !== undefined) return this.budget.isExceeded;
    if (tokens > this.bestTokens) this.#save(tokens);
    return this.#unused.count === 0 || this.budget.isExceeded;
  }

  /** Saves the path if its value is higher than the best. Returns false if no longer path can have a higher value. */
  #canImprove(tokens: number, priceOf: NonNullable<PlacementRule['priceOf']>): boolean {
    if (!this.budget.take(this.#documents.length)) return false;
    const price = priceOf(this.#path);
    if (tokens - price > this.#bestValue) {
      this.#bestValue = tokens - price;
      this.#save(tokens);
    }
    return this.#allTokens - price > this.#bestValue;
  }

  #visitChildren(node: TreeNode, tokens: number): boolean {
    if (!this.budget.take(OPERATIONS_A_LOOK_UP * this.#unused.lookUps(node))) return true;
    for (const { rank, child } of this.#unused.childrenOf(node)) {
      if (this.#visit(child, rank, tokens)) return true;
    }
    return false;
  }

  /** Visits a child, if its document may stand here. */
  #visit(child: TreeNode, rank: number, tokens: number): boolean {
    if (this.#rule !== undefined) {
      if (!this.budget.take(this.#documents.length)) return true;
      if (!this.#rule.allows(this.#path, rank)) return false;
    }
    this.#path.push(rank);
    this.#unused.use(rank);
    const isOver = this.#descend(child, tokens + this.#documents[rank]!.tokens);
    this.#unused.release(rank);
    this.#path.pop();
    return isOver;
  }

  #save(tokens: number): void {
    this.best = [...this.#path];
    this.bestTokens = tokens;
  }
}

/** A child of a node, and the retrieval rank of its document. */
interface RankedChild {
  readonly rank: number;
  readonly child: TreeNode;
}

/** The documents of a context that a path through the tree has not used yet. */
export class UnusedDocuments {
  readonly #keys: readonly string[];
  readonly #rankOf: ReadonlyMap<string, number>;
  readonly #isUsed: boolean[];
  #count: number;

  constructor(documents: readonly Document[]) {
    this.#keys = documents.map(({ key }) => key);
    this.#rankOf = new Map(this.#keys.map((key, rank) => [key, rank]));
    this.#isUsed = this.#keys.map(() => false);
    this.#count = documents.length;
  }

  /** Unused documents. */
  get count(): number {
    return this.#count;
  }

  use(rank: number): void {
    this.#isUsed[rank] = true;
    this.#count--;
  }

  release(rank: number): void {
    this.#isUsed[rank] = false;
    this.#count++;
  }

  /** Look-ups that `childrenOf` takes. O(1). */
  lookUps({ children }: TreeNode): number {
    return Math.min(children.size, this.#count);
  }

  /** The children of a node that are unused documents, by rank. Looks up the children if they are fewer. */
  childrenOf({ children }: TreeNode): readonly RankedChild[] {
    const found: RankedChild[] = [];
    if (children.size > this.#count) {
      for (let rank = 0; rank < this.#keys.length; rank++) {
        const child = this.#isUsed[rank] ? undefined : children.get(this.#keys[rank]!);
        if (child !== undefined) found.push({ rank, child });
      }
      return found;
    }
    for (const child of children.values()) {
      const rank = this.#rankOf.get(child.key);
      if (rank !== undefined && !this.#isUsed[rank]) found.push({ rank, child });
    }
    return found.length < 2 ? found : found.sort((a, b) => a.rank - b.rank);
  }
}

/** Default bound on one search: a few milliseconds on the slowest tree. */
export const BEST_PATH_MAX_OPERATIONS = 65_536;

/** Operations that one look-up in a tree counts: it takes as long as so many steps of arithmetic. */
export const OPERATIONS_A_LOOK_UP = 8;

/** Counts the operations of one decision, so that its time is bounded on any input. */
export interface OperationBudget {
  readonly taken: number;
  readonly left: number;
  /** Whether more operations were requested than were left. From then on, none are granted. */
  readonly isExceeded: boolean;
  /** Whether this budget, or one shared from it, is exceeded. */
  readonly isCutShort: boolean;
  /** Takes operations. Returns false if fewer are left. */
  take(operations: number): boolean;
  /** Runs `work` with a budget of its own: this part of what is left. */
  share<Result>(part: number, work: (share: OperationBudget) => Result): Result;
}

/** A budget of a number of operations. */
export class CountedBudget implements OperationBudget {
  readonly #limit: number;
  #taken = 0;
  #isExceeded = false;
  #isCutShort = false;

  constructor(operations: number) {
    this.#limit = Math.floor(operations);
  }

  get taken(): number {
    return this.#taken;
  }

  get left(): number {
    return this.#limit - this.#taken;
  }

  get isExceeded(): boolean {
    return this.#isExceeded;
  }

  get isCutShort(): boolean {
    return this.#isExceeded || this.#isCutShort;
  }

  take(operations: number): boolean {
    if (operations > this.left) this.#isExceeded = true;
    if (this.#isExceeded) return false;
    this.#taken += operations;
    return true;
  }

  share<Result>(part: number, work: (share: OperationBudget) => Result): Result {
    const share = new CountedBudget(part * this.left);
    const result = work(share);
    this.#taken += share.taken;
    this.#isCutShort ||= share.isCutShort;
    return result;
  }
}
