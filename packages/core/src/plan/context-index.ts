import { averageLinkage } from './average-linkage.js';
import { contextDistance } from './context-distance.js';
import { schedulePaths } from './path-schedule.js';

/** A node of the index: the documents of all contexts below it, in prompt order. */
interface IndexNode {
  documents: readonly number[];
  readonly children: IndexNode[];
}

/** A context's place in the index. */
export interface IndexedContext {
  /** Counts up from 0; every context gets one of its own, equal ones and subsets of others too. */
  readonly requestId: number;
  /** Documents in prompt order. */
  readonly documents: readonly number[];
  /** Documents that it shares, from the start, with what was in the index before; for a batch, with its parent. */
  readonly matched: number;
}

export interface ContextIndexOptions {
  /** Weight of the positions in the distance. Default 0.001; the paper has 0.001 to 0.01. */
  readonly alpha?: number;
}

/**
 * RAGBoost's context index (sections 4 and 5), for comparison: hierarchical clustering of a batch by Eq. 1, a node's content being
 * the intersection of its children; greedy search and insertion for contexts that come later. No document may stand twice in a context.
 *
 * Where the paper is silent: a search enters the nearest child whose first own document the context has, and what such a
 * child shares is the longest start of its documents that the context has, because that is what a prefix cache can use.
 * The index holds what was put into it: one node or two a context.
 */
export class ContextIndex {
  readonly #alpha: number;
  readonly #root: IndexNode = { documents: [], children: [] };
  readonly #leaves: IndexNode[] = [];

  constructor({ alpha = 0.001 }: ContextIndexOptions = {}) {
    this.#alpha = alpha;
  }

  /** Contexts in the index. */
  get size(): number {
    return this.#leaves.length;
  }

  /** Clusters a batch and adds its tree below the root. Cost: O(n² k) time, 8 n² bytes. */
  build(contexts: readonly (readonly number[])[]): IndexedContext[] {
    const nodes = contexts.map((documents): IndexNode => ({ documents, children: [] }));
    const first = this.#leaves.length;
    this.#leaves.push(...nodes);
    const merges = averageLinkage(contexts.length, (a, b) => contextDistance(contexts[a]!, contexts[b]!, this.#alpha));
    const isMerged = new Uint8Array(contexts.length + merges.length);
    for (const [one, other] of merges) {
      isMerged[one] = 1;
      isMerged[other] = 1;
      const children = [nodes[one]!, nodes[other]!];
      const inOther = new Set(children[1]!.documents);
      // The paper sorts the intersection.
      const shared = children[0]!.documents.filter((document) => inOther.has(document)).sort((a, b) => a - b);
      nodes.push({ documents: shared, children });
    }
    const tops = nodes.filter((_, node) => isMerged[node] === 0);
    const matched = new Map<IndexNode, number>();
    this.#root.children.push(...tops.flatMap((top) => orderBelow(top, [], matched)));
    return contexts.map((_, i) => {
      const leaf = this.#leaves[first + i]!;
      return { requestId: first + i, documents: leaf.documents, matched: matched.get(leaf)! };
    });
  }

  /** Orders a context behind the best match of the index and adds it. Cost: O(depth x children x k). */
  insert(context: readonly number[]): IndexedContext {
    const wanted = new Set(context);
    let parent = this.#root;
    let depth = 0;
    for (;;) {
      const child = this.#nearest(parent, context, { wanted, depth });
      if (child === undefined) break;
      const end = child.documents.findIndex((document) => !wanted.has(document));
      const shared = end < 0 ? child.documents.length : end;
      depth = shared;
      if (shared < child.documents.length || this.#isLeaf(child)) {
        parent = split(parent, child, shared);
        break;
      }
      parent = child;
    }
    const prefix = parent.documents;
    const documents = [...prefix, ...context.filter((document) => !prefix.includes(document))];
    const leaf: IndexNode = { documents, children: [] };
    parent.children.push(leaf);
    return { requestId: this.#leaves.push(leaf) - 1, documents, matched: depth };
  }

  /** The order in which to send all contexts of the index, as request ids. Cost: O(n log n). */
  schedule(): number[] {
    const paths = new Map<IndexNode, readonly number[]>();
    const pending: [IndexNode, readonly number[]][] = [[this.#root, []]];
    for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
      const [node, path] = next;
      paths.set(node, path);
      for (const [i, child] of node.children.entries()) pending.push([child, [...path, i]]);
    }
    return schedulePaths(this.#leaves.map((leaf) => paths.get(leaf)!));
  }

  #isLeaf(node: IndexNode): boolean {
    return node.children.length === 0;
  }

  #nearest(
    parent: IndexNode,
    context: readonly number[],
    { wanted, depth }: { wanted: ReadonlySet<number>; depth: number },
  ): IndexNode | undefined {
    let nearest: IndexNode | undefined;
    let least = Number.POSITIVE_INFINITY;
    for (const child of parent.children) {
      const next = child.documents[depth];
      if (next === undefined || !wanted.has(next)) continue;
      const distance = contextDistance(context, child.documents, this.#alpha);
      if (distance >= least) continue;
      nearest = child;
      least = distance;
    }
    return nearest;
  }
}

/**
 * Puts the documents of a node and of all below it in order, the parent's first, and notes how many those are. Returns the
 * nodes that take its place: itself, or its children if it shares nothing that `prefix` does not hold.
 */
function orderBelow(top: IndexNode, above: readonly number[], matched: Map<IndexNode, number>): IndexNode[] {
  const result: IndexNode[] = [];
  const pending: { node: IndexNode; prefix: readonly number[]; siblings: IndexNode[] }[] = [
    { node: top, prefix: above, siblings: result },
  ];
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    const { node, prefix, siblings } = next;
    const inPrefix = new Set(prefix);
    const documents = [...prefix, ...node.documents.filter((document) => !inPrefix.has(document))];
    const children = node.children.splice(0);
    const isSpliced = children.length > 0 && documents.length === prefix.length;
    if (!isSpliced) {
      node.documents = documents;
      matched.set(node, prefix.length);
      siblings.push(node);
    }
    for (const child of children.reverse()) {
      pending.push({ node: child, prefix: documents, siblings: isSpliced ? siblings : node.children });
    }
  }
  return result;
}

/** Puts a node with the first `shared` documents of a child between it and its parent. */
function split(parent: IndexNode, child: IndexNode, shared: number): IndexNode {
  const upper: IndexNode = { documents: child.documents.slice(0, shared), children: [child] };
  parent.children[parent.children.indexOf(child)] = upper;
  return upper;
}
