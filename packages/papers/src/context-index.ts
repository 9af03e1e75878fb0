import { averageLinkage, contextDistance } from './average-linkage.js';

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
 * RAGBoost's context index (sections 4 and 5): a batch is clustered by Eq. 1, and later contexts are inserted by greedy
 * search. A node holds the intersection of its children. No document may stand twice in a context.
 *
 * The paper is silent on three points. A search enters a child only if the context has the child's first own document:
 * no other child shares a prefix. Of an inner node, the context shares the longest start whose documents it has. A
 * served path stays as it was served, because a prefix cache holds it that way.
 *
 * Eviction (section 4.1): the least recently used node loses documents from its end. A node without documents of its
 * own is removed, with its parents that have no other child. Memory: at most three nodes a context.
 */
export class ContextIndex {
  readonly #alpha: number;
  readonly #capacity: number;
  readonly #maxContexts: number;
  readonly #tokensOf: (document: number) => number;
  readonly #root = createNode([], undefined);
  /** By request id, as long as they are in the index. */
  readonly #leaves = new Map<number, IndexNode>();
  /** All nodes but the root, least recently used first. A parent stands behind its children. */
  readonly #byUse = new Set<IndexNode>();
  #requests = 0;
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
   * least as many are gone or nothing is left.
   *
   * @returns ids of the requests that are no longer in the index
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

  /** Puts a new node and all nodes below it under a parent. */
  #adopt(top: IndexNode, parent: IndexNode): void {
    addChild(parent, top);
    const pending = [top];
    for (let node = pending.pop(); node !== undefined; node = pending.pop()) {
      this.#tokens += this.#ownTokens(node);
      pending.push(...node.children.values());
    }
  }

  /** Every node on the path of a leaf is now the most recently used; parents behind their children. */
  #use(leaf: IndexNode): void {
    for (let node = leaf; node.parent !== undefined; node = node.parent) {
      this.#byUse.delete(node);
      this.#byUse.add(node);
    }
  }

  #evictTo(limit: number): readonly number[] {
    const gone: number[] = [];
    for (const node of this.#byUse) {
      const tooMany = this.#leaves.size > this.#maxContexts;
      if (this.#tokens <= limit && !tooMany) break;
      if (this.#shrink(node, tooMany ? Number.NEGATIVE_INFINITY : limit)) continue;
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

  /** Takes a node without children out of the tree. */
  #delete(node: IndexNode): void {
    this.#tokens -= this.#ownTokens(node);
    if (node.requestId !== undefined) this.#leaves.delete(node.requestId);
    unlist(node);
    node.parent!.children.delete(node.place);
    node.parent = undefined;
    this.#byUse.delete(node);
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
    parent.children.set(upper.place, upper);
    enlist(upper);
    addChild(upper, child);
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

/**
 * RAGBoost's schedule (section 5.2): contexts grouped by the first element of their search paths, larger groups first,
 * and within a group longer paths first, then by path, then by index. Empty paths form a group of their own. Cost: O(n
 * log n) comparisons.
 */
export function schedulePaths(paths: readonly (readonly number[])[]): number[] {
  const groups = new Map<number, number[]>();
  for (const [index, path] of paths.entries()) {
    const first = path[0] ?? -1;
    const group = groups.get(first);
    if (group === undefined) groups.set(first, [index]);
    else group.push(index);
  }
  return [...groups.entries()]
    .sort(([firstOfOne, one], [firstOfOther, other]) => other.length - one.length || firstOfOne - firstOfOther)
    .flatMap(([, group]) => group.sort((one, other) => comparePaths(paths[one]!, paths[other]!) || one - other));
}

function comparePaths(one: readonly number[], other: readonly number[]): number {
  if (one.length !== other.length) return other.length - one.length;
  for (const [level, child] of one.entries()) if (child !== other[level]) return child - other[level]!;
  return 0;
}
