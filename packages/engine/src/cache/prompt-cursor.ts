import type { RadixNode } from './radix-node.js';

/**
 * How far a waiting prompt is known to follow the tree. Looking again costs what has changed since: as long as a node
 * is in the tree, the tokens above it stay what they are, so a node that still stands where it stood needs no second
 * comparison.
 */
export class PromptCursor {
  readonly tokens: readonly number[];
  /** Follow it no further than this many tokens. */
  readonly limit: number;
  readonly #root: () => RadixNode | undefined;
  #node: RadixNode | undefined;
  #length = 0;

  /**
   * @param root Where the prompt begins in the tree, `undefined` while nothing hangs there; asked again when all that
   *   was known is gone.
   */
  constructor(tokens: readonly number[], limit: number, root: () => RadixNode | undefined) {
    this.tokens = tokens;
    this.limit = limit;
    this.#root = root;
  }

  /** The last node that the prompt follows, perhaps in part; a root when there is none. Right after {@link follow}. */
  get node(): RadixNode | undefined {
    return this.#node;
  }

  /** Tokens that the prompt follows the tree for. Right after {@link follow}. */
  get length(): number {
    return this.#length;
  }

  /** Looks at the tree as it is now. Cost: O(nodes that went + tokens that came); O(1) when nothing changed. */
  follow(): void {
    this.#retreat();
    this.#advance();
  }

  /** Back to the last node that is still in the tree, and to the tokens that it still has. */
  #retreat(): void {
    let node = this.#node;
    while (node?.parent !== undefined && !(isInTree(node) && node.start < this.#length)) {
      // A node that was cut stays the lower part, so what the prompt followed of it may be in its parent now.
      node = node.parent;
      this.#length = Math.min(this.#length, node.end);
    }
    if (node?.parent === undefined) {
      node = this.#root();
      this.#length = 0;
    }
    this.#node = node;
    this.#length = Math.min(this.#length, node?.end ?? 0);
  }

  #advance(): void {
    for (let node = this.#node; node !== undefined; ) {
      const end = Math.min(node.end, this.limit);
      while (this.#length < end && node.tokens[this.#length - node.start] === this.tokens[this.#length]) {
        this.#length++;
      }
      this.#node = node;
      const isWhole = this.#length === node.end && this.#length < this.limit;
      node = isWhole ? node.children.get(this.tokens[this.#length]!) : undefined;
    }
  }
}

function isInTree(node: RadixNode): boolean {
  return node.parent?.children.get(node.tokens[0]!) === node;
}
