import type { ResidencyView } from '../residency/view.js';
import { OPERATIONS_A_LOOK_UP, preambleNode, UnusedDocuments } from '../tree/best-path.js';
import type { TreeNode } from '../tree/view.js';
import type { ConstraintRule } from './placement.js';
import type { Context } from './policy.js';

/** A path of the tree over some documents of a context. */
export interface ContextPath {
  /** Retrieval ranks in path order. */
  readonly ranks: readonly number[];
  /** The same as a bit mask. */
  readonly set: number;
  readonly tokens: number;
  /** Places that its documents are away from their retrieval ranks. */
  readonly moves: number;
  /** Whether the constraints allow it. */
  readonly isAllowed: boolean;
}

const EMPTY_PATH: ContextPath = { ranks: [], set: 0, tokens: 0, moves: 0, isAllowed: true };

export interface CollectOptions {
  readonly rule: ConstraintRule | undefined;
  readonly maxLookUps: number;
}

/** All paths of the knowledge tree over documents of one context (at most 30), in lexicographic order. */
export class CachedPaths {
  /** The empty path is the first. */
  readonly all: ContextPath[] = [EMPTY_PATH];
  /** Look-ups so far. A check of the constraints counts by its operations. */
  lookUps = 0;
  readonly #context: Context;
  readonly #unused: UnusedDocuments;
  readonly #rule: ConstraintRule | undefined;
  readonly #maxLookUps: number;

  private constructor(context: Context, { rule, maxLookUps }: CollectOptions) {
    this.#context = context;
    this.#unused = new UnusedDocuments(context.documents);
    this.#rule = rule;
    this.#maxLookUps = maxLookUps;
  }

  /** Collects the paths; `undefined` if that takes more than `maxLookUps`. O(paths × documents). */
  static collect(context: Context, { tree }: ResidencyView, options: CollectOptions): CachedPaths | undefined {
    const paths = new CachedPaths(context, options);
    const start = preambleNode(tree, context.preamble);
    if (start !== undefined) paths.#extend(EMPTY_PATH, start);
    return paths.lookUps > options.maxLookUps ? undefined : paths;
  }

  /** Tokens of the longest path that uses only documents of `set`. O(paths). */
  longestWithin(set: number): number {
    let longest = 0;
    for (const path of this.all) if ((path.set & ~set) === 0 && path.tokens > longest) longest = path.tokens;
    return longest;
  }

  #extend(path: ContextPath, node: TreeNode): void {
    this.lookUps += this.#unused.lookUps(node);
    if (this.lookUps > this.#maxLookUps) return;
    for (const { rank, child } of this.#unused.childrenOf(node)) {
      const longer = this.#append(path, rank);
      this.all.push(longer);
      this.#unused.use(rank);
      this.#extend(longer, child);
      this.#unused.release(rank);
      if (this.lookUps > this.#maxLookUps) return;
    }
  }

  #append({ ranks, set, tokens, moves, isAllowed }: ContextPath, rank: number): ContextPath {
    const { documents } = this.#context;
    if (this.#rule !== undefined) this.lookUps += documents.length / OPERATIONS_A_LOOK_UP;
    return {
      ranks: [...ranks, rank],
      set: set | (1 << rank),
      tokens: tokens + documents[rank]!.tokens,
      moves: moves + Math.abs(ranks.length - rank),
      isAllowed: isAllowed && (this.#rule === undefined || this.#rule.allows(ranks, rank)),
    };
  }
}
