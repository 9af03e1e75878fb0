import type { Document } from '../document.js';
import type { TreeNode } from './view.js';

/** A child of a node, and the retrieval rank of its document. */
export interface RankedChild {
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

  /** Documents left. */
  get count(): number {
    return this.#count;
  }

  use(rank: number): void {
    this.#isUsed[rank] = true;
    this.#count--;
  }

  giveBack(rank: number): void {
    this.#isUsed[rank] = false;
    this.#count++;
  }

  /** Look-ups that `childrenOf` takes. O(1). */
  lookUps({ children }: TreeNode): number {
    return Math.min(children.size, this.#count);
  }

  /** The children of a node that are documents left, by rank. Looks up the children if they are fewer. */
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
