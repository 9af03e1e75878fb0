import { averageLinkage, contextDistance } from './average-linkage.js';
import { schedulePaths } from './execution-order.js';
import { MaxHeap } from './max-heap.js';

/** Fewer places than this are not worth putting the heap in order for. */
const LEAST_COMPACTED = 64;

/** A node of the index: the documents of all contexts below it, in prompt order. */
interface IndexNode {
  documents: readonly number[];
  /** By their places among each other, which count up and are never given twice. */
  readonly children: Map<number, IndexNode>;
  nextPlace: number;
  /** Among its siblings. */
  place: number;
  /** Children by their first own documents, of which a batch may give several the same one. */
  readonly byFirst: Map<number, Set<IndexNode>>;
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
 * A search enters the nearest child, and stops at a leaf or where all children are equally far (section 4.2). Behind a
 * leaf, the new context begins with their intersection, in the leaf's order, and that is a new node. Where the paper
 * is silent: a search enters a child only if the context has its first own document, for no other shares a prefix (by
 * distance alone, reuse is 1 to 4 points less); of an inner node it shares the longest start of its documents that the
 * context has; and what was served stays in the index as it was served, because that is what a prefix cache holds: a
 * leaf shares with the new node what both begin with. Children are found by document, so that an insertion looks at
 * none that shares nothing.
 *
 * Eviction (section 4.1, «index update»): a min-heap by last use names the node to shrink; what it shares with nobody
 * goes document by document from its end, and a node that is left with nothing goes, with its empty parents. A node
 * counts as used whenever one below it is, so that what goes is always at the end of a path. Each node stands in the
 * heap once, under a key that may be old and is put right when it comes up. Bounded by `capacity` and `maxContexts`, or
 * by what `evict` and `remove` take out: at most three nodes a context.
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
      const merged = createNode(shared, undefined);
      for (const child of children) addChild(merged, child);
      nodes.push(merged);
    }
    const tops = nodes.filter((_, node) => isMerged[node] === 0);
    const matched = new Map<IndexNode, number>();
    for (const node of tops.flatMap((top) => orderBelow(top, [], matched))) this.#adopt(node, this.#root);
    const indexed = leaves.map((leaf): IndexedContext => {
      this.#leaves.set(leaf.requestId!, leaf);
      this.#use(leaf);
      return { requestId: leaf.requestId!, documents: leaf.documents, matched: matched.get(leaf)! };
    });
    this.#evictTo(this.#capacity);
    return indexed;
  }

  /**
   * Orders a context behind the best match of the index and adds it. Cost: O(depth x k x children that share a
   * document).
   */
  insert(context: readonly number[]): IndexedContext {
    const { prefix, above } = this.#search(context);
    const inPrefix = new Set(prefix);
    const documents = [...prefix, ...context.filter((document) => !inPrefix.has(document))];
    const requestId = this.#requests++;
    const leaf = createNode(documents, requestId);
    const { parent, matched } = this.#lead(above, documents, prefix.length);
    this.#adopt(leaf, parent);
    this.#leaves.set(requestId, leaf);
    this.#use(leaf);
    this.#evictTo(this.#capacity);
    return { requestId, documents, matched };
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
    for (let node = leaf; node.parent !== undefined && node.children.size === 0; ) {
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
      for (const [place, child] of node.children) pending.push([child, [...path, place]]);
    }
    const leaves = [...this.#leaves];
    const places = schedulePaths(leaves.map(([, leaf]) => paths.get(leaf)!));
    return places.map((place) => leaves[place]![0]);
  }

  /** Gives a new node its parent and its place in the heap, and all below it theirs. */
  #adopt(top: IndexNode, parent: IndexNode): void {
    addChild(parent, top);
    const pending = [top];
    for (let node = pending.pop(); node !== undefined; node = pending.pop()) {
      this.#tokens += this.#ownTokens(node);
      this.#enroll(node);
      pending.push(...node.children.values());
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
    if (end === least) unlist(node);
    node.documents = node.documents.slice(0, end);
    return end > least;
  }

  /** Takes a node without children out of the tree; its place in the heap goes when it comes up. */
  #delete(node: IndexNode): void {
    this.#tokens -= this.#ownTokens(node);
    if (node.requestId !== undefined) this.#leaves.delete(node.requestId);
    unlist(node);
    node.parent!.children.delete(node.place);
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

  /** What a context should begin with, and a node whose documents that begins with. */
  #search(context: readonly number[]): { readonly prefix: readonly number[]; readonly above: IndexNode } {
    const wanted = new Set(context);
    let above = this.#root;
    for (;;) {
      const child = this.#nearest(above, context);
      if (child === undefined) return { prefix: above.documents, above };
      const own = child.documents.slice(above.documents.length);
      if (child.requestId !== undefined) {
        return { prefix: [...above.documents, ...own.filter((document) => wanted.has(document))], above };
      }
      const outside = own.findIndex((document) => !wanted.has(document));
      if (outside >= 0) return { prefix: [...above.documents, ...own.slice(0, outside)], above };
      above = child;
    }
  }

  /**
   * The node below which a new path goes: where those that are there begin as it does, they are split; behind its first
   * `prefix` documents there is a node then. `matched`: documents that were there.
   */
  #lead(above: IndexNode, documents: readonly number[], prefix: number) {
    let parent = above;
    for (let child = beginning(parent, documents); child !== undefined; child = beginning(parent, documents)) {
      let end = parent.documents.length + 1;
      while (end < child.documents.length && child.documents[end] === documents[end]) end++;
      parent = this.#split(parent, child, end);
    }
    const matched = parent.documents.length;
    if (prefix > matched && prefix < documents.length) {
      const node = createNode(documents.slice(0, prefix), undefined);
      this.#adopt(node, parent);
      parent = node;
    }
    return { parent, matched };
  }

  /** The node that ends behind the first `end` documents of a child: the child, or a new one put above it. */
  #split(parent: IndexNode, child: IndexNode, end: number): IndexNode {
    if (end === child.documents.length && child.requestId === undefined) return child;
    unlist(child);
    const upper = createNode(child.documents.slice(0, end), undefined);
    upper.parent = parent;
    upper.place = child.place;
    upper.lastUse = child.lastUse;
    parent.children.set(upper.place, upper);
    enlist(upper);
    addChild(upper, child);
    this.#enroll(upper);
    return upper;
  }

  /** The child to enter: at the least distance, the earlier among equals; none if all children are equally far. */
  #nearest(parent: IndexNode, context: readonly number[]): IndexNode | undefined {
    const children = context.flatMap((document) => [...(parent.byFirst.get(document) ?? [])]);
    let nearest: IndexNode | undefined;
    let least = Number.POSITIVE_INFINITY;
    let most = 0;
    for (const child of children) {
      const distance = contextDistance(context, child.documents, this.#alpha);
      most = Math.max(most, distance);
      if (distance > least || (distance === least && child.place > nearest!.place)) continue;
      nearest = child;
      least = distance;
    }
    const areAllEquallyFar = children.length > 1 && children.length === parent.children.size && least === most;
    return areAllEquallyFar ? undefined : nearest;
  }
}

/**
 * Puts the documents of a node and of all below it in order, the parent's first, and notes how many those are. Returns
 * the nodes that take its place: itself, or its children if it shares nothing that `prefix` does not hold.
 */
function orderBelow(top: IndexNode, above: readonly number[], matched: Map<IndexNode, number>): IndexNode[] {
  const result: IndexNode[] = [];
  const pending: { node: IndexNode; prefix: readonly number[]; parent: IndexNode | undefined }[] = [
    { node: top, prefix: above, parent: undefined },
  ];
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    const { node, prefix, parent } = next;
    const inPrefix = new Set(prefix);
    const documents = [...prefix, ...node.documents.filter((document) => !inPrefix.has(document))];
    const children = [...node.children.values()];
    const isSpliced = children.length > 0 && documents.length === prefix.length;
    node.children.clear();
    node.byFirst.clear();
    if (!isSpliced) {
      node.documents = documents;
      matched.set(node, prefix.length);
      if (parent === undefined) result.push(node);
      else addChild(parent, node);
    }
    for (const child of children.reverse()) {
      pending.push({ node: child, prefix: documents, parent: isSpliced ? parent : node });
    }
  }
  return result;
}

function createNode(documents: readonly number[], requestId: number | undefined): IndexNode {
  return {
    documents,
    children: new Map(),
    nextPlace: 0,
    place: 0,
    byFirst: new Map(),
    parent: undefined,
    requestId,
    lastUse: 0,
  };
}

/** Puts a node behind the children of another one. */
function addChild(parent: IndexNode, node: IndexNode): void {
  node.parent = parent;
  node.place = parent.nextPlace++;
  parent.children.set(node.place, node);
  enlist(node);
}

/** The child whose own documents begin with what a path has next. */
function beginning(parent: IndexNode, path: readonly number[]): IndexNode | undefined {
  const depth = parent.documents.length;
  const next = path[depth];
  if (next === undefined) return undefined;
  return parent.byFirst.get(next)?.values().next().value;
}

function enlist(node: IndexNode): void {
  const { byFirst, documents } = node.parent!;
  const first = node.documents[documents.length];
  if (first === undefined) return;
  const listed = byFirst.get(first);
  if (listed === undefined) byFirst.set(first, new Set([node]));
  else listed.add(node);
}

function unlist(node: IndexNode): void {
  const { byFirst, documents } = node.parent!;
  const first = node.documents[documents.length];
  if (first === undefined) return;
  const listed = byFirst.get(first);
  listed?.delete(node);
  if (listed?.size === 0) byFirst.delete(first);
}
