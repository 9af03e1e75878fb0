import type { Batch } from './batch.js';

/**
 * A tree over the sets of a batch. The label of a node is the *set* of symbols that all contexts below it share and no
 * ancestor has. Labels have no order until the orders are written, so any part of a label can be split off. Leaf `s` is
 * the set `s`; inner nodes other than the root have at least two children.
 *
 * The sum of all labels is the cost of the trie, or more where two children share something.
 */
export class PlanTree {
  readonly batch: Batch;
  /** Leaves: `0` up to, not including, `leaves`. */
  readonly leaves: number;
  readonly root: number;
  readonly parent: Int32Array;
  readonly firstChild: Int32Array;
  readonly nextSibling: Int32Array;
  readonly #previousSibling: Int32Array;
  /** Symbols of a node, in no particular order. */
  readonly labels: number[][];
  readonly #free: number[] = [];

  constructor(batch: Batch) {
    this.batch = batch;
    this.leaves = batch.sets.length;
    this.root = this.leaves;
    // Fewer inner nodes than leaves, and one more while it is built.
    const nodes = 2 * this.leaves + 2;
    this.parent = new Int32Array(nodes).fill(-1);
    this.firstChild = new Int32Array(nodes).fill(-1);
    this.nextSibling = new Int32Array(nodes).fill(-1);
    this.#previousSibling = new Int32Array(nodes).fill(-1);
    this.labels = Array.from({ length: nodes }, () => []);
    for (let node = nodes - 1; node > this.root; node--) this.#free.push(node);
  }

  /** Bound of all node numbers. */
  get size(): number {
    return this.parent.length;
  }

  isLeaf(node: number): boolean {
    return node < this.leaves;
  }

  /** Creates an inner node without a parent. */
  create(label: number[]): number {
    const node = this.#free.pop()!;
    this.labels[node] = label;
    return node;
  }

  /** Attaches a node with its subtree to `parent`. */
  attach(node: number, parent: number): void {
    const first = this.firstChild[parent]!;
    this.parent[node] = parent;
    this.#previousSibling[node] = -1;
    this.nextSibling[node] = first;
    if (first >= 0) this.#previousSibling[first] = node;
    this.firstChild[parent] = node;
  }

  /** Detaches a node with its subtree. Its parent stays, even with one child. */
  detach(node: number): void {
    const previous = this.#previousSibling[node]!;
    const next = this.nextSibling[node]!;
    if (previous >= 0) this.nextSibling[previous] = next;
    else this.firstChild[this.parent[node]!] = next;
    if (next >= 0) this.#previousSibling[next] = previous;
    this.parent[node] = -1;
  }

  /** Replaces a node with a single child by that child. Does nothing to other nodes. */
  collapse(node: number): void {
    const child = this.firstChild[node]!;
    if (node === this.root || child < 0 || this.nextSibling[child]! >= 0) return;
    const parent = this.parent[node]!;
    const label = this.labels[node]!;
    for (const symbol of this.labels[child]!) label.push(symbol);
    this.detach(child);
    this.labels[child] = label;
    if (parent >= 0) {
      this.detach(node);
      this.attach(child, parent);
    }
    this.#release(node);
  }

  /** Moves all children of `from` to `to`, and releases `from`, which must be detached. O(children). */
  adopt(to: number, from: number): void {
    for (let child = this.firstChild[from]!; child >= 0; child = this.firstChild[from]!) {
      this.detach(child);
      this.attach(child, to);
    }
    this.#release(from);
  }

  /** All symbols on the path from the root. */
  path(node: number): number[] {
    const symbols: number[] = [];
    for (let at = node; at >= 0; at = this.parent[at]!) for (const symbol of this.labels[at]!) symbols.push(symbol);
    return symbols;
  }

  /** Tokens (documents) of all labels. */
  cost(): number {
    const { weights } = this.batch;
    let sum = 0;
    for (const label of this.labels) for (const symbol of label) sum += weights[symbol]!;
    return sum;
  }

  #release(node: number): void {
    this.labels[node] = [];
    this.firstChild[node] = -1;
    this.parent[node] = -1;
    this.#free.push(node);
  }
}

/**
 * The order of each context: the labels on its path from the root. Within a label, documents keep the retrieval order
 * of the first context below it. Contexts with the same documents get the same order. O(total documents × log k).
 *
 * @returns symbols in the layout of `batch.items`
 */
export function treeOrders(tree: PlanTree): Int32Array {
  const { batch } = tree;
  const orders = new Int32Array(batch.items.length);
  sortLabels(tree);
  const ends = new Int32Array(batch.contexts);
  for (let context = 0; context < batch.contexts; context++) {
    const leaf = batch.setOf[context]!;
    const first = batch.sets[leaf]!;
    const start = batch.starts[context]!;
    if (first !== context) {
      orders.copyWithin(start, batch.starts[first]!, batch.starts[first + 1]!);
      continue;
    }
    ends[context] = batch.starts[context + 1]!;
    for (let node = leaf; node >= 0; node = tree.parent[node]!) {
      const label = tree.labels[node]!;
      ends[context]! -= label.length;
      orders.set(label, ends[context]!);
    }
  }
  return orders;
}

/** Sorts labels. Leaves are in order of their first contexts, so the first leaf below a node decides its order. */
function sortLabels({ batch, labels, parent, leaves, size }: PlanTree): void {
  const sorted = new Uint8Array(size);
  const rank = new Int32Array(batch.documentOf.length);
  for (let leaf = 0; leaf < leaves; leaf++) {
    const context = batch.sets[leaf]!;
    for (let i = batch.starts[context]!; i < batch.starts[context + 1]!; i++) rank[batch.items[i]!] = i;
    for (let node = leaf; node >= 0 && sorted[node] === 0; node = parent[node]!) {
      sorted[node] = 1;
      labels[node]!.sort((a, b) => rank[a]! - rank[b]!);
    }
  }
}
