import type { Batch } from './batch.js';

/**
 * A tree over the sets of a batch in which every node is labelled with a *set* of symbols: what all contexts below it
 * share and no ancestor has. The order within a label is open until the orders are written down, so that whatever part
 * of a label a newcomer shares can be split off. Leaf `s` is the batch's set `s`; inner nodes other than the root have
 * two children or more.
 *
 * Its cost, the sum of all labels, is the trie's cost, or more where two children of a node still share something.
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
    // An inner node has at least two children, so there are fewer of them than leaves; one more may be under
    // construction.
    const nodes = 2 * this.leaves + 2;
    this.parent = new Int32Array(nodes).fill(-1);
    this.firstChild = new Int32Array(nodes).fill(-1);
    this.nextSibling = new Int32Array(nodes).fill(-1);
    this.#previousSibling = new Int32Array(nodes).fill(-1);
    this.labels = Array.from({ length: nodes }, () => []);
    for (let node = nodes - 1; node > this.root; node--) this.#free.push(node);
  }

  /** Nodes, dead ones included: the bound of every node number. */
  get size(): number {
    return this.parent.length;
  }

  isLeaf(node: number): boolean {
    return node < this.leaves;
  }

  /** A new inner node, attached to nothing. */
  create(label: number[]): number {
    const node = this.#free.pop()!;
    this.labels[node] = label;
    return node;
  }

  /** Hangs a node and all below it under `parent`. */
  attach(node: number, parent: number): void {
    const first = this.firstChild[parent]!;
    this.parent[node] = parent;
    this.#previousSibling[node] = -1;
    this.nextSibling[node] = first;
    if (first >= 0) this.#previousSibling[first] = node;
    this.firstChild[parent] = node;
  }

  /** Takes a node and all below it off its parent, which stays even if it is left with one child. */
  detach(node: number): void {
    const previous = this.#previousSibling[node]!;
    const next = this.nextSibling[node]!;
    if (previous >= 0) this.nextSibling[previous] = next;
    else this.firstChild[this.parent[node]!] = next;
    if (next >= 0) this.#previousSibling[next] = previous;
    this.parent[node] = -1;
  }

  /** Gives a node that has one child left away to that child. Does nothing to any other node. */
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

  /** Moves all children of `from` under `to` and drops `from`, which must be attached to nothing. Cost: O(children). */
  adopt(to: number, from: number): void {
    for (let child = this.firstChild[from]!; child >= 0; child = this.firstChild[from]!) {
      this.detach(child);
      this.attach(child, to);
    }
    this.#release(from);
  }

  /** All symbols from the root down to a node. */
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
 * The order of every context: the labels on its path from the root down. Within a label, documents keep the retrieval
 * order of the first context below it. Contexts with the same documents get the same order. Cost: O(total documents x
 * log k).
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

/** Leaves are in the order of their first contexts: the first leaf that reaches a node decides the node's order. */
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
