import { type RecencyLinks, RecencyList } from '../intrusive-collections.js';
import type { KnowledgeTreeView, ResidencyMark, TreeNode } from './view.js';

/** Estimated bytes of a node beside its key. */
const NODE_BYTES = 352;
const DEFAULT_MAX_NODES = 262_144;
const DEFAULT_MAX_BYTES = 64 * 1024 * 1024;
const MIN_MAX_BYTES = 64 * 1024;

export interface KnowledgeTreeOptions {
  /** Nodes at most. Default 262,144. */
  readonly maxNodes?: number;
  /** Estimated bytes at most. Default 64 MiB, at least 64 KiB. */
  readonly maxBytes?: number;
}

/** A served path: the steps of the preamble, then the documents. */
export interface ServedPath {
  readonly keys: readonly string[];
  /** Tokens of each. */
  readonly tokens: readonly number[];
}

/** Result of an insertion. */
export interface Insertion {
  /** Leading keys that are in the tree now: all, unless the path alone exceeds the bounds. */
  readonly depth: number;
  /** How many of them were there before. */
  readonly known: number;
  /** Number of this insertion: 1, 2, 3, … */
  readonly access: number;
  /** For each of those keys: access number of the last use if the node was confirmed, else 0. */
  readonly confirmedAt: readonly number[];
}

class Node implements TreeNode, RecencyLinks<Node> {
  readonly children = new Map<string, Node>();
  hits = 0;
  tokens = 0;
  residency: ResidencyMark = 'expected';
  lastAccess = 0;
  lastUsedAt = 0;
  older: Node | undefined = undefined;
  newer: Node | undefined = undefined;

  constructor(
    readonly key: string,
    readonly parent: Node | undefined,
  ) {}
}

/**
 * The knowledge tree (RAGCache++ §3.2, CP-Tree): a trie of recently served document orders. A node is a document behind
 * its path, because KV is only reusable behind the same prefix.
 *
 * Bounded in nodes and bytes: the least recently used leaf goes first. A parent always counts as used later than its
 * children.
 */
export class KnowledgeTree implements KnowledgeTreeView {
  readonly #maxNodes: number;
  readonly #maxBytes: number;
  #root = new Node('', undefined);
  /** All nodes but the root. */
  #byUse = new RecencyList<Node>();
  #nodes = 0;
  #tokens = 0;
  #bytes = 0;
  #access = 0;

  constructor(options: KnowledgeTreeOptions = {}) {
    this.#maxNodes = Math.max(1, options.maxNodes ?? DEFAULT_MAX_NODES);
    this.#maxBytes = Math.max(MIN_MAX_BYTES, options.maxBytes ?? DEFAULT_MAX_BYTES);
  }

  get root(): TreeNode {
    return this.#root;
  }

  get nodes(): number {
    return this.#nodes;
  }

  get tokens(): number {
    return this.#tokens;
  }

  get bytes(): number {
    return this.#bytes;
  }

  longestPrefix(keys: readonly string[]): number {
    return this.#along(keys).length;
  }

  hitsAlong(keys: readonly string[]): number[] {
    return this.#along(keys).map(({ hits }) => hits);
  }

  recentNodes(limit: number): TreeNode[] {
    const nodes: TreeNode[] = [];
    for (let node = this.#byUse.newest; node !== undefined && nodes.length < limit; node = node.older) nodes.push(node);
    return nodes;
  }

  /** The last node of a path, if the whole path is resident. O(keys). */
  find(keys: readonly string[]): TreeNode | undefined {
    return this.#find(keys);
  }

  /**
   * Inserts a served path and marks it as the most recent. Evicts the least recently used nodes beyond the bounds.
   * `now` in milliseconds of the caller's clock. O(path + evicted).
   */
  insert({ keys, tokens }: ServedPath, mark: ResidencyMark, now: number): Insertion {
    const access = ++this.#access;
    const confirmedAt: number[] = [];
    let known = 0;
    let node = this.#root;
    for (const [depth, key] of keys.entries()) {
      let child = node.children.get(key);
      const isNew = child === undefined;
      if (child === undefined) {
        if (!this.#makeRoom(key, access)) break;
        child = this.#create(node, key);
      } else {
        known++;
        this.#byUse.use(child);
      }
      confirmedAt.push(child.residency === 'confirmed' ? child.lastAccess : 0);
      if (mark === 'confirmed') child.residency = mark;
      if (isNew || mark === 'expected') child.hits++;
      this.#tokens += tokens[depth]! - child.tokens;
      child.tokens = tokens[depth]!;
      child.lastAccess = access;
      child.lastUsedAt = now;
      node = child;
    }
    for (; node.parent !== undefined; node = node.parent) this.#byUse.use(node);
    return { depth: confirmedAt.length, known, access, confirmedAt };
  }

  /**
   * Removes a path that was never prefilled: from its end, the nodes that are only expected and that no later insertion
   * used. Returns how many. O(path).
   */
  withdraw(keys: readonly string[], access: number): number {
    let removed = 0;
    for (const node of this.#along(keys).reverse()) {
      if (node.children.size > 0 || node.residency !== 'expected' || node.lastAccess !== access) break;
      this.#remove(node);
      removed++;
    }
    return removed;
  }

  /** Removes the last node of a path and all behind it. Returns how many. O(path + removed). */
  removePath(keys: readonly string[]): number {
    const top = this.#find(keys);
    if (top === undefined || top === this.#root) return 0;
    const below = [top];
    for (const node of below) below.push(...node.children.values());
    for (const node of below.reverse()) this.#remove(node);
    return below.length;
  }

  /** Removes all nodes last used at access number `access` or before. Returns how many. O(removed). */
  pruneUpTo(access: number): number {
    return this.#pruneWhile((oldest) => oldest.lastAccess <= access);
  }

  /** Removes all nodes last used before `time` (milliseconds). Returns how many. */
  pruneUsedBefore(time: number): number {
    return this.#pruneWhile((oldest) => oldest.lastUsedAt < time);
  }

  /**
   * Removes the least recently used nodes until `tokens` are left. Keeps nodes of the last insertion. Returns how many.
   * O(removed).
   */
  pruneToTokens(tokens: number): number {
    return this.#pruneWhile((oldest) => this.#tokens > tokens && oldest.lastAccess < this.#access);
  }

  /** Removes all nodes, for an engine that was restarted or whose cache was reset. */
  clear(): void {
    this.#root = new Node('', undefined);
    this.#byUse = new RecencyList();
    this.#nodes = 0;
    this.#tokens = 0;
    this.#bytes = 0;
  }

  /** The nodes of the longest resident path with these keys. */
  #along(keys: readonly string[]): Node[] {
    const nodes: Node[] = [];
    let node = this.#root;
    for (const key of keys) {
      const child = node.children.get(key);
      if (child === undefined) break;
      nodes.push(child);
      node = child;
    }
    return nodes;
  }

  #find(keys: readonly string[]): Node | undefined {
    let node: Node | undefined = this.#root;
    for (const key of keys) {
      node = node.children.get(key);
      if (node === undefined) return undefined;
    }
    return node;
  }

  #pruneWhile(isPruned: (oldest: Node) => boolean): number {
    let removed = 0;
    for (let oldest = this.#byUse.oldest; oldest !== undefined && isPruned(oldest); oldest = this.#byUse.oldest) {
      this.#remove(oldest);
      removed++;
    }
    return removed;
  }

  /** Evicts nodes until one with this key fits; false if only the path of this access is left. */
  #makeRoom(key: string, access: number): boolean {
    while (this.#nodes >= this.#maxNodes || this.#bytes + bytesOf(key) > this.#maxBytes) {
      const { oldest } = this.#byUse;
      if (oldest === undefined || oldest.lastAccess === access) return false;
      this.#remove(oldest);
    }
    return true;
  }

  #create(parent: Node, key: string): Node {
    const node = new Node(key, parent);
    parent.children.set(key, node);
    this.#byUse.add(node);
    this.#nodes++;
    this.#bytes += bytesOf(key);
    return node;
  }

  /** Removes a leaf. */
  #remove(node: Node): void {
    node.parent!.children.delete(node.key);
    this.#byUse.remove(node);
    this.#nodes--;
    this.#tokens -= node.tokens;
    this.#bytes -= bytesOf(node.key);
  }
}

function bytesOf(key: string): number {
  return NODE_BYTES + 2 * key.length;
}
