import { averageLinkage } from './average-linkage.js';
import { contextDistance } from './context-distance.js';
import { MaxHeap } from './max-heap.js';
import { schedulePaths } from './path-schedule.js';

/** Fewer places than this are not worth putting the heap in order for. */
const LEAST_COMPACTED = 64;

/** A node of the index: the documents of all contexts below it, in prompt order. */
interface IndexNode {
  documents: readonly number[];
  readonly children: IndexNode[];
  /** `undefined` for the root, and for what is no longer in the index. */
  parent: IndexNode | undefined;
  /** The context that ends here; `undefined` for what several share. */
  readonly requestId: number | undefined;
  /** When it was last used: a tick of the index's clock, larger than those of all nodes below. */
  lastUse: number;
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
  /** Tokens of a document, 0 or more. Default: every document counts as 1. */
  readonly tokens?: (document: number) => number;
  /** Tokens that the index may hold: what the engine's cache does. Default: no limit. */
  readonly capacity?: number;
  /** Contexts that it may hold: equal ones share all their tokens, and would be without bound. Default: no limit. */
  readonly maxContexts?: number;
}

/**
 * RAGBoost's context index (sections 4 and 5), for comparison: hierarchical clustering of a batch by Eq. 1, a node's
 * content being the intersection of its children; greedy search and insertion for contexts that come later. No document
 * may stand twice in a context.
 *
 * Where the paper is silent: a search enters the nearest child whose first own document the context has, and what such
 * a child shares is the longest start of its documents that the context has, because that is what a prefix cache can
 * use.
 *
 * Eviction (section 4.1, «index update»): a min-heap by last use names the node to shrink; what it shares with nobody
 * goes document by document from its end, and a node that is left with nothing goes, with its empty parents. A node
 * counts as used whenever one below it is, so that what goes is always at the end of a path. Each node stands in the
 * heap once, under a key that may be old and is put right when it comes up. Bounded by `capacity` and `maxContexts`, or
 * by what `evict` and `remove` take out: one node or two a context.
 */
export class ContextIndex {
  readonly #alpha: number;
  readonly #capacity: number;
  readonly #maxContexts: number;
  readonly #tokensOf: (document: number) => number;
  readonly #root = createNode([], undefined);
  /** By request id, as long as they are in the index. */
  readonly #leaves = new Map<number, IndexNode>();
  /** Nodes by their number, for the heap; keys are last uses, negated. */
  readonly #numbered: (IndexNode | undefined)[] = [];
  readonly #freeNumbers: number[] = [];
  #oldest = new MaxHeap();
  #nodes = 0;
  #requests = 0;
  #clock = 0;
  #tokens = 0;

  constructor(options: ContextIndexOptions = {}) {
    this.#alpha = options.alpha ?? 0.001;
    this.#capacity = options.capacity ?? Number.POSITIVE_INFINITY;
    this.#maxContexts = options.maxContexts ?? Number.POSITIVE_INFINITY;
    this.#tokensOf = options.tokens ?? (() => 1);
  }

  /** Contexts in the index. */
  get size(): number {
    return this.#leaves.size;
  }

  /** Tokens of all paths, what they share in the tree counted once. (A batch is a tree of its own below the root.) */
  get tokens(): number {
    return this.#tokens;
  }

  /** Clusters a batch and adds its tree below the root. Cost: O(n² k) time, 8 n² bytes. */
  build(contexts: readonly (readonly number[])[]): IndexedContext[] {
    const nodes = contexts.map((documents) => createNode(documents, this.#requests++));
    const leaves = [...nodes];
    const merges = averageLinkage(contexts.length, (a, b) => contextDistance(contexts[a]!, contexts[b]!, this.#alpha));
    const isMerged = new Uint8Array(contexts.length + merges.length);
    for (const [one, other] of merges) {
      isMerged[one] = 1;
      isMerged[other] = 1;
      const children = [nodes[one]!, nodes[other]!];
      const inOther = new Set(children[1]!.documents);
      // The paper sorts the intersection.
      const shared = children[0]!.documents.filter((document) => inOther.has(document)).sort((a, b) => a - b);
      nodes.push({ ...createNode(shared, undefined), children });
    }
    const tops = nodes.filter((_, node) => isMerged[node] === 0);
    const matched = new Map<IndexNode, number>();
    const added = tops.flatMap((top) => orderBelow(top, [], matched));
    this.#root.children.push(...added);
    for (const node of added) this.#adopt(node, this.#root);
    const indexed = leaves.map((leaf): IndexedContext => {
      this.#leaves.set(leaf.requestId!, leaf);
      this.#use(leaf);
      return { requestId: leaf.requestId!, documents: leaf.documents, matched: matched.get(leaf)! };
    });
    this.#evictTo(this.#capacity);
    return indexed;
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
      if (shared < child.documents.length || child.requestId !== undefined) {
        parent = this.#split(parent, child, shared);
        break;
      }
      parent = child;
    }
    const prefix = parent.documents;
    const documents = [...prefix, ...context.filter((document) => !prefix.includes(document))];
    const requestId = this.#requests++;
    const leaf = createNode(documents, requestId);
    parent.children.push(leaf);
    this.#adopt(leaf, parent);
    this.#leaves.set(requestId, leaf);
    this.#use(leaf);
    this.#evictTo(this.#capacity);
    return { requestId, documents, matched: depth };
  }

  /**
   * The engine has dropped that many tokens: takes the least recently used ends of paths out, whole documents, until at
   * least as many are gone or nothing is left. Answers with the ids of the requests that are no longer in the index.
   * Cost: O(log n) for each node and each use since it last came up.
   */
  evict(tokens: number): readonly number[] {
    return this.#evictTo(this.#tokens - tokens);
  }

  /**
   * The engine has dropped this request: takes its end out, with the parents that nothing else needs. False for an
   * unknown id.
   */
  remove(requestId: number): boolean {
    const leaf = this.#leaves.get(requestId);
    if (leaf === undefined) return false;
    for (let node = leaf; node.parent !== undefined && node.children.length === 0; ) {
      const { parent } = node;
      this.#delete(node);
      node = parent;
    }
    return true;
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
    const leaves = [...this.#leaves];
    const places = schedulePaths(leaves.map(([, leaf]) => paths.get(leaf)!));
    return places.map((place) => leaves[place]![0]);
  }

  /** Gives a new node its parent and its place in the heap, and all below it theirs. */
  #adopt(top: IndexNode, above: IndexNode): void {
    const pending: [IndexNode, IndexNode][] = [[top, above]];
    for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
      const [node, parent] = next;
      node.parent = parent;
      this.#tokens += this.#ownTokens(node);
      this.#enroll(node);
      for (const child of node.children) pending.push([child, node]);
    }
  }

  #enroll(node: IndexNode): void {
    this.#nodes++;
    const number = this.#freeNumbers.pop() ?? this.#numbered.length;
    this.#numbered[number] = node;
    this.#oldest.push(number, -node.lastUse);
  }

  /** Parents are used after their children: the oldest node has none. */
  #use(leaf: IndexNode): void {
    for (let node: IndexNode | undefined = leaf; node !== undefined; node = node.parent) node.lastUse = ++this.#clock;
  }

  #evictTo(limit: number): readonly number[] {
    const gone: number[] = [];
    while (this.#oldest.size > 0) {
      const tooMany = this.#leaves.size > this.#maxContexts;
      if (this.#tokens <= limit && !tooMany) break;
      const number = this.#oldest.top();
      const node = this.#numbered[number]!;
      const isCurrent = -this.#oldest.topKey() === node.lastUse;
      if (isCurrent && node.parent !== undefined && this.#shrink(node, tooMany ? Number.NEGATIVE_INFINITY : limit)) {
        continue;
      }
      this.#oldest.pop();
      if (node.parent !== undefined && !isCurrent) {
        this.#oldest.push(number, -node.lastUse);
        continue;
      }
      this.#numbered[number] = undefined;
      this.#freeNumbers.push(number);
      if (node.parent === undefined) continue;
      if (node.requestId !== undefined) gone.push(node.requestId);
      this.#delete(node);
    }
    return gone;
  }

  /** Takes documents off the end of a node; false if that leaves nothing of its own. */
  #shrink(node: IndexNode, limit: number): boolean {
    const least = node.parent!.documents.length;
    let end = node.documents.length;
    while (end > least && this.#tokens > limit) this.#tokens -= this.#tokensOf(node.documents[--end]!);
    node.documents = node.documents.slice(0, end);
    return end > least;
  }

  /** Takes a node without children out of the tree; its place in the heap goes when it comes up. */
  #delete(node: IndexNode): void {
    const siblings = node.parent!.children;
    siblings.splice(siblings.indexOf(node), 1);
    this.#tokens -= this.#ownTokens(node);
    if (node.requestId !== undefined) this.#leaves.delete(node.requestId);
    node.parent = undefined;
    this.#nodes--;
    if (this.#oldest.size > 2 * this.#nodes + LEAST_COMPACTED) this.#compact();
  }

  /** Takes what is no longer in the tree out of the heap. O(heap), after as many deletions. */
  #compact(): void {
    const nodes = this.#numbered.filter((node) => node?.parent !== undefined);
    this.#oldest = new MaxHeap();
    this.#numbered.length = 0;
    this.#freeNumbers.length = 0;
    this.#nodes = 0;
    for (const node of nodes) this.#enroll(node!);
  }

  #ownTokens({ documents, parent }: IndexNode): number {
    let tokens = 0;
    for (let place = parent!.documents.length; place < documents.length; place++) {
      tokens += this.#tokensOf(documents[place]!);
    }
    return tokens;
  }

  /** Puts a node with the first `shared` documents of a child between it and its parent. */
  #split(parent: IndexNode, child: IndexNode, shared: number): IndexNode {
    const upper = createNode(child.documents.slice(0, shared), undefined);
    upper.children.push(child);
    upper.parent = parent;
    upper.lastUse = child.lastUse;
    child.parent = upper;
    parent.children[parent.children.indexOf(child)] = upper;
    this.#enroll(upper);
    return upper;
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
 * Puts the documents of a node and of all below it in order, the parent's first, and notes how many those are. Returns
 * the nodes that take its place: itself, or its children if it shares nothing that `prefix` does not hold.
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

function createNode(documents: readonly number[], requestId: number | undefined): IndexNode {
  return { documents, children: [], parent: undefined, requestId, lastUse: 0 };
}
