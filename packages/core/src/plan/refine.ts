import type { PlanTree } from './plan-tree.js';

/** Limits of a refinement. */
export interface RefinementLimits {
  /** Rounds over all nodes. */
  readonly rounds: number;
  /** Labels read in all, to bound the time on any input. */
  readonly labels: number;
}

/**
 * Moves each node with its subtree to the place where most of its path is shared, until no move saves anything or a
 * limit is reached. Never raises the cost. O(labels read × label length).
 *
 * @returns tokens (documents) saved
 */
export function refine(tree: PlanTree, limits: RefinementLimits): number {
  return new Refinement(tree, limits).run();
}

/** The best place for a path: below `node`, or beside a part of its label. */
interface InsertionPoint {
  readonly node: number;
  readonly splits: boolean;
  readonly shared: number;
}

class Refinement {
  readonly #tree: PlanTree;
  readonly #rounds: number;
  #labelsLeft: number;
  /** By symbol: number of the last path that had it. */
  readonly #mark: Int32Array;
  #path = 0;
  readonly #nodes: number[] = [];
  readonly #sharedAt: number[] = [];

  constructor(tree: PlanTree, { rounds, labels }: RefinementLimits) {
    this.#tree = tree;
    this.#rounds = rounds;
    this.#labelsLeft = labels;
    this.#mark = new Int32Array(tree.batch.documentOf.length);
  }

  run(): number {
    let saved = 0;
    for (let round = 0; round < this.#rounds; round++) {
      let savedNow = 0;
      for (let node = 0; node < this.#tree.size && this.#labelsLeft > 0; node++) {
        if (this.#tree.parent[node]! >= 0) savedNow += this.#move(node);
      }
      saved += savedNow;
      if (savedNow === 0) break;
    }
    return saved;
  }

  /** Moves one node to its best place; returns what that saved. */
  #move(node: number): number {
    const tree = this.#tree;
    const path = tree.path(node);
    this.#path++;
    for (const symbol of path) this.#mark[symbol] = this.#path;
    const before = this.#sum(path) - this.#sum(tree.labels[node]!);
    const parent = tree.parent[node]!;
    tree.detach(node);
    tree.collapse(parent);
    const place = this.#findInsertionPoint();
    this.#insert(node, path, place);
    return place.shared - before;
  }

  #sum(symbols: readonly number[]): number {
    let sum = 0;
    for (const symbol of symbols) sum += this.#tree.batch.weights[symbol]!;
    return sum;
  }

  /** The place where most of the marked path is shared; among equals, the first. */
  #findInsertionPoint(): InsertionPoint {
    const { firstChild, nextSibling, labels, batch, leaves, root } = this.#tree;
    const nodes = this.#nodes;
    const sharedAt = this.#sharedAt;
    let best: InsertionPoint = { node: root, splits: false, shared: 0 };
    nodes.push(root);
    sharedAt.push(0);
    while (nodes.length > 0) {
      const above = nodes.pop()!;
      const sharedAbove = sharedAt.pop()!;
      if (sharedAbove > best.shared) best = { node: above, splits: false, shared: sharedAbove };
      for (let child = firstChild[above]!; child >= 0; child = nextSibling[child]!) {
        this.#labelsLeft--;
        const label = labels[child]!;
        let found = 0;
        let shared = sharedAbove;
        for (const symbol of label) {
          if (this.#mark[symbol] !== this.#path) continue;
          found++;
          shared += batch.weights[symbol]!;
        }
        if (found === 0) continue;
        if (found === label.length && child >= leaves) {
          nodes.push(child);
          sharedAt.push(shared);
        } else if (shared > best.shared) best = { node: child, splits: true, shared };
      }
    }
    return best;
  }

  #insert(node: number, path: readonly number[], { node: place, splits }: InsertionPoint): void {
    const tree = this.#tree;
    const parent = splits ? this.#split(place) : place;
    // The path above is unmarked, so the marks left are the label of the node.
    for (const symbol of tree.path(parent)) this.#mark[symbol] = 0;
    tree.labels[node] = path.filter((symbol) => this.#mark[symbol] === this.#path);
    if (tree.labels[node]!.length === 0 && !tree.isLeaf(node)) tree.adopt(parent, node);
    else tree.attach(node, parent);
  }

  /** Puts a new node with the marked part of the label above a node. */
  #split(node: number): number {
    const tree = this.#tree;
    const label = tree.labels[node]!;
    const above = tree.parent[node]!;
    const upper = tree.create(label.filter((symbol) => this.#mark[symbol] === this.#path));
    tree.labels[node] = label.filter((symbol) => this.#mark[symbol] !== this.#path);
    tree.detach(node);
    tree.attach(node, upper);
    tree.attach(upper, above);
    return upper;
  }
}
