import { KeyInterner } from './interner.js';
import {
  CHILDREN,
  DOCUMENT,
  FIRST_CHILD,
  FIRST_DOCUMENT,
  HITS,
  MARK,
  NEWER,
  NEXT_SIBLING,
  NODE_SHIFT,
  NodeStore,
  OLDER,
  PARENT,
  PREVIOUS_SIBLING,
  ROOT,
  SCAN_UP_TO,
  TOKENS,
} from './node-store.js';
import { PairTable } from './pair-table.js';
import type { KnowledgeTreeView, RecentNode } from './view.js';

const SMALLEST_CAPACITY = 256;

/**
 * Why a node is believed resident: `expected` from the dispatch of the request that brings it into the engine's cache,
 * `confirmed` once a request along it was completed.
 */
export type ResidencyMark = 'expected' | 'confirmed';

const MARK_NUMBERS: Readonly<Record<ResidencyMark, number>> = { expected: 1, confirmed: 2 };

export interface KnowledgeTreeOptions {
  /** Bound on nodes. Default 262,144. */
  readonly maxNodes?: number;
  /** Bound on bytes: node records, hash table and interned keys (estimated). Default 64 MiB, at least 64 KiB. */
  readonly maxBytes?: number;
}

/** A served order: what stands before the documents, then the documents, by key. */
export interface ServedPath {
  readonly keys: readonly string[];
  /** Tokens of each. */
  readonly tokens: readonly number[];
}

/** What an insertion found and did. */
export interface Insertion {
  /** Leading keys that are now in the tree: all, unless the path alone exceeds the bounds. */
  readonly depth: number;
  /** How many of them were there before. */
  readonly known: number;
  /** Number of this insertion: 1, 2, 3, … */
  readonly access: number;
  /** For each of those keys: the access number of the node's last use if it was there and confirmed, else 0. */
  readonly confirmedAt: readonly number[];
}

/** A node as `inspect` shows it. */
export interface KnowledgeNode {
  readonly key: string;
  /** Parent's number; 0 is the root. */
  readonly parent: number;
  /** Tokens from the start of the prompt: where this document starts and ends. */
  readonly span: { readonly start: number; readonly end: number };
  /** Requests that were served along this node. */
  readonly hits: number;
  /** Number of the insertion that used the node last. */
  readonly lastAccess: number;
  /** Time of the last use, in milliseconds of the caller's clock. */
  readonly lastUsedAt: number;
  readonly residency: ResidencyMark;
  readonly children: number;
}

/**
 * The knowledge tree (RAGCache++ §3.2, CP-Tree): a trie of recently served document orders. A path is an order; a node
 * is a document in the context of all before it, because the engine can reuse its KV only behind the same prefix. A
 * prefix of a longer path is found like any other path.
 *
 * Bounded in nodes and bytes by a recency window: when full, the least recently used leaf goes. All nodes stand in one
 * list by last use in which a parent is always newer than its children (a path is renewed from its end to its start),
 * so the oldest node is a leaf and each eviction is O(1). Nodes are flat records (`node-store.ts`), never objects.
 */
export class KnowledgeTree implements KnowledgeTreeView {
  readonly #maxNodes: number;
  readonly #maxBytes: number;
  #store: NodeStore;
  /** From (node, document number) to the child. */
  #table: PairTable;
  #interner = new KeyInterner();
  #newest = ROOT;
  #oldest = ROOT;
  #access = 0;
  #tokens = 0;
  /** Keeps the preloads from being optimised away. */
  #preloaded = 0;

  constructor(options: KnowledgeTreeOptions = {}) {
    this.#maxNodes = Math.max(1, options.maxNodes ?? 262_144);
    this.#maxBytes = Math.max(64 * 1024, options.maxBytes ?? 64 * 1024 * 1024);
    const capacity = Math.min(this.#maxNodes, SMALLEST_CAPACITY);
    this.#store = new NodeStore(capacity);
    this.#table = new PairTable(capacity);
  }

  /** Nodes in use, the root not counted. */
  get nodes(): number {
    return this.#store.size;
  }

  /** Tokens of all nodes. */
  get tokens(): number {
    return this.#tokens;
  }

  /** Bytes of node records, hash table and keys. Interned keys are an estimate. */
  get bytes(): number {
    return bytesFor(this.#store.capacity) + this.#interner.bytes;
  }

  /** The flat node records, for searches inside this folder. Replaced by `insert`. */
  get records(): Int32Array {
    return this.#store.records;
  }

  /** All document numbers are below this. */
  get numberLimit(): number {
    return this.#interner.limit;
  }

  /** The tree's number for a document or preamble key, or -1 if no node has it. O(1). */
  numberOf(key: string): number {
    return this.#interner.numberOf(key);
  }

  /** The same for a key whose lanes are known. O(1). */
  numberOfLanes(low: number, high: number): number {
    return this.#interner.numberOfLanes(low, high);
  }

  /** The child of `node` for a document number, or -1. O(1) expected, no allocation. */
  childByNumber(node: number, number: number): number {
    const child = this.#table.get(node, number);
    return child === ROOT ? -1 : child;
  }

  /**
   * Looks where the child would be found first, without a branch; several such loads overlap, so that the
   * `childByNumber` that follow each find their line in the cache. The result means nothing. O(1).
   */
  preload(node: number, number: number): number {
    return this.#table.preload(node, number);
  }

  childrenAmong(node: number, numbers: Int32Array, among: number, children: Int32Array, from: number): number {
    const { records } = this.#store;
    const record = node << NODE_SHIFT;
    const count = records[record + CHILDREN]!;
    if (count > SCAN_UP_TO) return this.#probeAmong(node, numbers, among, children, from);
    let found = 0;
    let child = records[record + FIRST_CHILD]!;
    let number = records[record + FIRST_DOCUMENT]!;
    for (let left = count; left > 0; left--) {
      const place = placeOf(number, numbers, among);
      if (place >= 0) {
        children[from + place] = child;
        found |= 1 << place;
      }
      if (left === 1) break;
      child = records[(child << NODE_SHIFT) + NEXT_SIBLING]!;
      number = records[(child << NODE_SHIFT) + DOCUMENT]!;
    }
    return found;
  }

  lookUpsAmong(node: number, among: number): number {
    const count = this.#store.records[(node << NODE_SHIFT) + CHILDREN]!;
    if (count <= SCAN_UP_TO) return count;
    let documents = 0;
    for (let left = among; left !== 0; left &= left - 1) documents++;
    return documents;
  }

  #probeAmong(node: number, numbers: Int32Array, among: number, children: Int32Array, from: number): number {
    let preloaded = this.#preloaded;
    for (let left = among; left !== 0; left &= left - 1) {
      preloaded |= this.#table.preload(node, numbers[lowestPlace(left)]!);
    }
    this.#preloaded = preloaded;
    let found = 0;
    for (let left = among; left !== 0; left &= left - 1) {
      const place = lowestPlace(left);
      const child = this.#table.get(node, numbers[place]!);
      if (child === ROOT) continue;
      children[from + place] = child;
      found |= 1 << place;
    }
    return found;
  }

  /** The child of `node` for a key, or -1. O(1) expected. */
  child(node: number, key: string): number {
    const number = this.#interner.numberOf(key);
    return number < 0 ? -1 : this.childByNumber(node, number);
  }

  /** Leading keys that spell a path from the root. O(keys). */
  longestPrefix(keys: readonly string[]): number {
    let node = ROOT;
    for (let depth = 0; depth < keys.length; depth++) {
      node = this.child(node, keys[depth]!);
      if (node < 0) return depth;
    }
    return keys.length;
  }

  hitsAlong(keys: readonly string[]): number[] {
    const hits: number[] = [];
    for (let node = ROOT; hits.length < keys.length; ) {
      node = this.child(node, keys[hits.length]!);
      if (node < 0) break;
      hits.push(this.#store.records[(node << NODE_SHIFT) + HITS]!);
    }
    return hits;
  }

  /**
   * Enters a served order and renews it as the most recent; what exceeds the bounds is evicted, least recently used
   * first. `now` in milliseconds of the caller's clock. O(path) expected, amortised over growth.
   */
  insert(path: ServedPath, mark: ResidencyMark, now: number): Insertion {
    const access = ++this.#access;
    const markNumber = MARK_NUMBERS[mark];
    const confirmedAt: number[] = [];
    let known = 0;
    let node = ROOT;
    for (let depth = 0; depth < path.keys.length; depth++) {
      const key = path.keys[depth]!;
      let child = this.child(node, key);
      const isNew = child < 0;
      if (isNew) {
        if (!this.#makeRoom(key, access)) break;
        child = this.#create(node, key);
      } else known++;
      const record = child << NODE_SHIFT;
      const records = this.#store.records;
      confirmedAt.push(records[record + MARK] === MARK_NUMBERS.confirmed ? this.#store.lastAccess(child) : 0);
      if (markNumber > records[record + MARK]!) records[record + MARK] = markNumber;
      if (isNew || mark === 'expected') records[record + HITS]! += 1;
      this.#tokens += path.tokens[depth]! - records[record + TOKENS]!;
      records[record + TOKENS] = path.tokens[depth]!;
      this.#unlink(child);
      this.#linkNewest(child);
      this.#store.setLastUse(child, access, now);
      node = child;
    }
    this.#renew(node);
    return { depth: confirmedAt.length, known, access, confirmedAt };
  }

  /**
   * Takes an order back that never reached the engine's cache: from its end, the nodes that are only expected and that
   * no later insertion has used. Returns the number of nodes removed. O(path).
   */
  withdraw(keys: readonly string[], access: number): number {
    let node = ROOT;
    for (const key of keys) {
      const child = this.child(node, key);
      if (child < 0) break;
      node = child;
    }
    let removed = 0;
    while (node !== ROOT && this.#isWithdrawable(node, access)) {
      const parent = this.#store.records[(node << NODE_SHIFT) + PARENT]!;
      this.#remove(node);
      removed++;
      node = parent;
    }
    return removed;
  }

  /** Removes the node that a path leads to, and all behind it. Returns how many. O(path + removed). */
  removePath(keys: readonly string[]): number {
    let top = ROOT;
    for (const key of keys) {
      top = this.child(top, key);
      if (top < 0) return 0;
    }
    if (top === ROOT) return 0;
    let removed = 0;
    for (let node = top; ; ) {
      const record = node << NODE_SHIFT;
      const child = this.#store.records[record + FIRST_CHILD]!;
      if (child !== ROOT) {
        node = child;
        continue;
      }
      const parent = this.#store.records[record + PARENT]!;
      this.#remove(node);
      removed++;
      if (node === top) return removed;
      node = parent;
    }
  }

  /** Removes every node whose last use was at access number `access` or before. Returns how many. O(removed). */
  pruneUpTo(access: number): number {
    let removed = 0;
    while (this.#oldest !== ROOT && this.#store.lastAccess(this.#oldest) <= access) {
      this.#remove(this.#oldest);
      removed++;
    }
    return removed;
  }

  /**
   * Removes every node that was last used before `time` (milliseconds of the caller's clock). Returns how many.
   * O(removed).
   */
  pruneUsedBefore(time: number): number {
    let removed = 0;
    while (this.#oldest !== ROOT && this.#store.lastTime(this.#oldest) < time) {
      this.#remove(this.#oldest);
      removed++;
    }
    return removed;
  }

  /**
   * Removes the least recently used nodes until those left have at most `tokens` tokens; what the last insertion used
   * stays in any case. Returns how many were removed. O(removed).
   */
  pruneToTokens(tokens: number): number {
    let removed = 0;
    while (this.#tokens > tokens && this.#store.lastAccess(this.#oldest) < this.#access) {
      this.#remove(this.#oldest);
      removed++;
    }
    return removed;
  }

  /** Forgets everything and gives the memory back; for an engine that was restarted or whose cache was reset. */
  clear(): void {
    const capacity = Math.min(this.#maxNodes, SMALLEST_CAPACITY);
    this.#store = new NodeStore(capacity);
    this.#table = new PairTable(capacity);
    this.#interner = new KeyInterner();
    this.#newest = ROOT;
    this.#oldest = ROOT;
    this.#tokens = 0;
  }

  /** What the tree knows about a node (not the root). O(depth). */
  inspect(node: number): KnowledgeNode {
    const records = this.#store.records;
    const record = node << NODE_SHIFT;
    let start = 0;
    for (let above = records[record + PARENT]!; above !== ROOT; above = records[(above << NODE_SHIFT) + PARENT]!) {
      start += records[(above << NODE_SHIFT) + TOKENS]!;
    }
    return {
      key: this.#interner.keyOf(records[record + DOCUMENT]!),
      parent: records[record + PARENT]!,
      span: { start, end: start + records[record + TOKENS]! },
      hits: records[record + HITS]!,
      lastAccess: this.#store.lastAccess(node),
      lastUsedAt: this.#store.lastTime(node),
      residency: records[record + MARK] === MARK_NUMBERS.confirmed ? 'confirmed' : 'expected',
      children: records[record + CHILDREN]!,
    };
  }

  recentNodes(limit: number): RecentNode[] {
    const nodes: RecentNode[] = [];
    const { records } = this.#store;
    for (let node = this.#newest; node !== ROOT && nodes.length < limit; ) {
      const record = node << NODE_SHIFT;
      nodes.push({
        node,
        parent: records[record + PARENT]!,
        key: this.#interner.keyOf(records[record + DOCUMENT]!),
        tokens: records[record + TOKENS]!,
        hits: records[record + HITS]!,
        isConfirmed: records[record + MARK] === MARK_NUMBERS.confirmed,
        lastUsedAt: this.#store.lastTime(node),
        children: records[record + CHILDREN]!,
      });
      node = records[record + OLDER]!;
    }
    return nodes;
  }

  /** Puts the nodes of a path in front of the list by last use, the parent before its child. */
  #renew(leaf: number): void {
    for (let node = leaf; node !== ROOT; node = this.#store.records[(node << NODE_SHIFT) + PARENT]!) {
      this.#unlink(node);
      this.#linkNewest(node);
    }
  }

  /**
   * Makes room for one more node with this key by growing or evicting; false if only the path of this access is left.
   */
  #makeRoom(key: string, access: number): boolean {
    for (;;) {
      const budget = this.#maxBytes - this.#interner.bytes - this.#interner.costOf(key);
      if (this.#store.size < this.#store.capacity && bytesFor(this.#store.capacity) <= budget) return true;
      if (this.#store.size === this.#store.capacity && this.#growWithin(budget)) return true;
      if (this.#oldest === ROOT || this.#store.lastAccess(this.#oldest) === access) return false;
      this.#remove(this.#oldest);
    }
  }

  #growWithin(budget: number): boolean {
    const capacity = Math.min(this.#maxNodes, this.#store.capacity * 2);
    if (capacity === this.#store.capacity || bytesFor(capacity) > budget) return false;
    this.#store.grow(capacity);
    this.#table.grow(capacity);
    return true;
  }

  #create(parent: number, key: string): number {
    const node = this.#store.allocate();
    const records = this.#store.records;
    const record = node << NODE_SHIFT;
    const parentRecord = parent << NODE_SHIFT;
    const number = this.#interner.hold(key);
    const first = records[parentRecord + FIRST_CHILD]!;
    records[record + PARENT] = parent;
    records[record + DOCUMENT] = number;
    records[record + NEXT_SIBLING] = first;
    if (first !== ROOT) records[(first << NODE_SHIFT) + PREVIOUS_SIBLING] = node;
    records[parentRecord + FIRST_CHILD] = node;
    records[parentRecord + FIRST_DOCUMENT] = number;
    records[parentRecord + CHILDREN]! += 1;
    this.#table.add(parent, number, node);
    this.#linkNewest(node);
    return node;
  }

  /** Removes a leaf. */
  #remove(node: number): void {
    const records = this.#store.records;
    const record = node << NODE_SHIFT;
    this.#tokens -= records[record + TOKENS]!;
    const parent = records[record + PARENT]!;
    const previous = records[record + PREVIOUS_SIBLING]!;
    const next = records[record + NEXT_SIBLING]!;
    const number = records[record + DOCUMENT]!;
    if (previous === ROOT) {
      records[(parent << NODE_SHIFT) + FIRST_CHILD] = next;
      records[(parent << NODE_SHIFT) + FIRST_DOCUMENT] = records[(next << NODE_SHIFT) + DOCUMENT]!;
    } else records[(previous << NODE_SHIFT) + NEXT_SIBLING] = next;
    if (next !== ROOT) records[(next << NODE_SHIFT) + PREVIOUS_SIBLING] = previous;
    records[(parent << NODE_SHIFT) + CHILDREN]! -= 1;
    this.#unlink(node);
    this.#table.remove(parent, number);
    this.#interner.release(number);
    this.#store.release(node);
  }

  #isWithdrawable(node: number, access: number): boolean {
    const records = this.#store.records;
    const record = node << NODE_SHIFT;
    const isLeaf = records[record + CHILDREN] === 0;
    return isLeaf && records[record + MARK] === MARK_NUMBERS.expected && this.#store.lastAccess(node) === access;
  }

  #linkNewest(node: number): void {
    const records = this.#store.records;
    const record = node << NODE_SHIFT;
    records[record + NEWER] = ROOT;
    records[record + OLDER] = this.#newest;
    if (this.#newest === ROOT) this.#oldest = node;
    else records[(this.#newest << NODE_SHIFT) + NEWER] = node;
    this.#newest = node;
  }

  #unlink(node: number): void {
    const records = this.#store.records;
    const record = node << NODE_SHIFT;
    const newer = records[record + NEWER]!;
    const older = records[record + OLDER]!;
    if (newer === ROOT) this.#newest = older;
    else records[(newer << NODE_SHIFT) + OLDER] = older;
    if (older === ROOT) this.#oldest = newer;
    else records[(older << NODE_SHIFT) + NEWER] = newer;
  }
}

function lowestPlace(places: number): number {
  return 31 - Math.clz32(places & -places);
}

/** The place of a number among those that are set, or -1. */
function placeOf(number: number, numbers: Int32Array, among: number): number {
  for (let left = among; left !== 0; left &= left - 1)
    if (numbers[lowestPlace(left)] === number) return lowestPlace(left);
  return -1;
}

function bytesFor(capacity: number): number {
  return NodeStore.bytesFor(capacity) + PairTable.bytesFor(capacity);
}
