import { commonPrefix, countTokens, dropTokens, type TokenRun, takeTokens } from './token-runs.js';

/** A node of the radix tree: an edge of tokens, and what follows it. */
export interface RadixNode {
  runs: readonly TokenRun[];
  tokens: number;
  parent: RadixNode | undefined;
  /** By first token. */
  readonly children: Map<string, RadixNode>;
  /** Prompts under way that use the node or one below it. */
  locks: number;
  /** Neighbours in the order of last use. */
  older: RadixNode | undefined;
  newer: RadixNode | undefined;
}

/** What a prompt found of its path. */
export interface RadixUse {
  /** Tokens at its start that were held. */
  readonly cachedTokens: number;
  /** Milliseconds a token of what was computed. */
  readonly costPerToken: number;
}

/** Which leaf goes first where age does not decide. */
export interface LeafReplacement {
  /** A node came in behind its parent. */
  added(node: RadixNode): void;
  /** A node was cut: its upper part was used as often as the lower one. */
  cut(upper: RadixNode, lower: RadixNode): void;
  /** A prompt ended that used a node and all above it. */
  used(last: RadixNode, use: RadixUse): void;
  /** A node has locks or children that it did not have, or no more. */
  review(node: RadixNode): void;
  /** A leaf is gone from its parent. */
  removed(node: RadixNode): void;
  /** The leaf that goes next, which must be removed; `undefined` if none may go. */
  next(): RadixNode | undefined;
}

/**
 * Token sequences by common prefix, with locks and an order of last use in which a node is always newer than those
 * below it: the oldest node without a lock is a leaf, for a lock holds all above it too. Walks cost O(runs), an evicted
 * node O(1). Where a replacement policy is given, that says which leaf goes first.
 */
export class RadixTree {
  /** Tokens of room set aside for what prompts under way have not entered yet; kept by the owner. */
  reserved = 0;
  readonly #root = newNode([], undefined);
  #oldest: RadixNode | undefined;
  #newest: RadixNode | undefined;
  #tokens = 0;
  #locked = 0;
  readonly #replacement: LeafReplacement | undefined;

  constructor(replacement?: LeafReplacement) {
    this.#replacement = replacement;
  }

  /** Tokens of all nodes. */
  get tokens(): number {
    return this.#tokens;
  }

  /** Tokens of nodes that could be evicted. */
  get unlockedTokens(): number {
    return this.#tokens - this.#locked;
  }

  /**
   * How many tokens at the start of the runs are held, at most `most`, and how many of them are in nodes without a
   * lock.
   */
  match(runs: readonly TokenRun[], most: number): { readonly tokens: number; readonly unlockedTokens: number } {
    let node = this.#root;
    let left = runs;
    let tokens = 0;
    let unlockedTokens = 0;
    while (left.length > 0 && tokens < most) {
      const child = node.children.get(firstToken(left));
      if (child === undefined) break;
      const common = Math.min(commonPrefix(child.runs, left), most - tokens);
      tokens += common;
      if (child.locks === 0) unlockedTokens += common;
      if (common < child.tokens) break;
      left = dropTokens(left, common);
      node = child;
    }
    return { tokens, unlockedTokens };
  }

  /**
   * Adds what is missing of the runs, splitting edges where they part or end, and touches all on the way; returns the
   * last node.
   */
  enter(runs: readonly TokenRun[]): RadixNode {
    let node = this.#root;
    let left = runs;
    while (left.length > 0) {
      let child = node.children.get(firstToken(left));
      if (child === undefined) {
        child = newNode(left, node);
        node.children.set(firstToken(left), child);
        this.#tokens += child.tokens;
        this.#replacement?.added(child);
        left = [];
      } else {
        const common = commonPrefix(child.runs, left);
        if (common < child.tokens) child = this.#split(child, common);
        left = dropTokens(left, common);
      }
      node = child;
    }
    this.touch(node);
    return node;
  }

  /** Makes a node and those above it the newest. */
  touch(node: RadixNode): void {
    for (let at = node; at !== this.#root; at = at.parent!) {
      if (at === this.#newest) continue;
      this.#unlink(at);
      this.#linkAfter(at, this.#newest);
    }
  }

  /** Counts a use of a node and those above it. */
  use(node: RadixNode, use: RadixUse): void {
    this.#replacement?.used(node, use);
  }

  /** Keeps a node and those above it from eviction. */
  lock(node: RadixNode): void {
    for (let at = node; at !== this.#root; at = at.parent!) {
      if (at.locks++ > 0) continue;
      this.#locked += at.tokens;
      this.#replacement?.review(at);
    }
  }

  /** Takes one lock back. */
  unlock(node: RadixNode): void {
    for (let at = node; at !== this.#root; at = at.parent!) {
      if (--at.locks > 0) continue;
      this.#locked -= at.tokens;
      this.#replacement?.review(at);
    }
  }

  /** Removes leaves without a lock, one after another, until at least `tokens` tokens are gone or none is left. */
  evict(tokens: number): void {
    const least = this.#tokens - tokens;
    const byAge = this.#unlockedByAge();
    while (this.#tokens > least) {
      const node = this.#replacement === undefined ? byAge.next().value : this.#replacement.next();
      if (node === undefined) return;
      node.parent!.children.delete(firstToken(node.runs));
      this.#unlink(node);
      this.#tokens -= node.tokens;
      this.#replacement?.removed(node);
    }
  }

  *#unlockedByAge(): Generator<RadixNode, undefined> {
    for (let node = this.#oldest; node !== undefined; ) {
      const next: RadixNode | undefined = node.newer;
      if (node.locks === 0) yield node;
      node = next;
    }
  }

  /** Cuts an edge in two and returns the upper part. */
  #split(node: RadixNode, at: number): RadixNode {
    const upper = newNode(takeTokens(node.runs, at), node.parent);
    upper.locks = node.locks;
    upper.parent!.children.set(firstToken(node.runs), upper);
    node.runs = dropTokens(node.runs, at);
    node.tokens -= at;
    node.parent = upper;
    upper.children.set(firstToken(node.runs), node);
    this.#linkAfter(upper, node);
    this.#replacement?.cut(upper, node);
    return upper;
  }

  #unlink(node: RadixNode): void {
    if (node.older !== undefined) node.older.newer = node.newer;
    else if (this.#oldest === node) this.#oldest = node.newer;
    if (node.newer !== undefined) node.newer.older = node.older;
    else if (this.#newest === node) this.#newest = node.older;
    node.older = undefined;
    node.newer = undefined;
  }

  /** Puts a node that stands nowhere behind another; first if there is none. */
  #linkAfter(node: RadixNode, older: RadixNode | undefined): void {
    node.older = older;
    node.newer = older?.newer;
    if (older === undefined) this.#oldest = node;
    else older.newer = node;
    if (node.newer === undefined) this.#newest = node;
    else node.newer.older = node;
  }
}

function newNode(runs: readonly TokenRun[], parent: RadixNode | undefined): RadixNode {
  return {
    runs,
    tokens: countTokens(runs),
    parent,
    children: new Map(),
    locks: 0,
    older: undefined,
    newer: undefined,
  };
}

function firstToken(runs: readonly TokenRun[]): string {
  return `${runs[0]!.offset}@${runs[0]!.key}`;
}
