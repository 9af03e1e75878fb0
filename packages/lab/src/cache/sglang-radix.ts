import { WarmpathError } from '@warmpath/core';
import { type CachedPrompt, type PrefixCacheModel, promptTokens } from './prefix-cache.js';
import { commonPrefix, countTokens, dropTokens, type TokenRun, takeTokens, toRuns } from './token-runs.js';

/** A node of the radix tree: an edge of tokens, and what follows it. */
interface RadixNode {
  runs: readonly TokenRun[];
  tokens: number;
  parent: RadixNode | undefined;
  /** By first token. */
  children: Map<string, RadixNode>;
  /** Number of the request that used the node last. */
  lastAccess: number;
}

export interface SglangRadixCacheOptions {
  /** Tokens of KV memory. Default unlimited. */
  readonly tokens?: number;
}

/**
 * The prefix cache of SGLang with pages of one token: a radix tree that matches to the token, the last token of a prompt
 * always computed. When memory is needed, whole leaf edges go, the one of the oldest access first; what the request under
 * way reuses is locked. Equal ages (the parts of one prompt) cannot both be leaves.
 *
 * Cost: O(runs) a prompt without eviction; an eviction sorts the leaves, O(nodes log nodes).
 */
export class SglangRadixCache implements PrefixCacheModel {
  readonly name = 'sglang-radix';
  readonly granularity = 1;
  readonly evictsLeastRecent = true;
  readonly capacityTokens: number;
  #root = newNode([], undefined, 0);
  #used = 0;
  #access = 0;

  /** Error: `WARMPATH_INVALID_REQUEST` for a size that is no whole number above 0. */
  constructor(options: SglangRadixCacheOptions = {}) {
    this.capacityTokens = options.tokens ?? Number.POSITIVE_INFINITY;
    const isValid = this.capacityTokens === Number.POSITIVE_INFINITY || Number.isSafeInteger(this.capacityTokens);
    if (isValid && this.capacityTokens > 0) return;
    throw new WarmpathError('WARMPATH_INVALID_REQUEST', {
      path: 'tokens',
      detail: 'A whole number above 0 was expected.',
    });
  }

  get usedTokens(): number {
    return this.#used;
  }

  cachedTokens(prompt: CachedPrompt): number {
    const runs = toRuns(prompt);
    const most = countTokens(runs) - 1;
    let node = this.#root;
    let left = runs;
    let matched = 0;
    for (;;) {
      const child = left.length === 0 ? undefined : node.children.get(firstToken(left));
      if (child === undefined) break;
      const common = commonPrefix(child.runs, left);
      matched += common;
      if (common < child.tokens) break;
      left = dropTokens(left, common);
      node = child;
    }
    return Math.max(0, Math.min(matched, most));
  }

  serve(prompt: CachedPrompt): number {
    const tokens = promptTokens(prompt);
    if (tokens > this.capacityTokens) {
      const detail = `The prompt has ${tokens} tokens, and the cache has room for ${this.capacityTokens}.`;
      throw new WarmpathError('WARMPATH_CONTEXT_TOO_LONG', { detail });
    }
    const cached = this.cachedTokens(prompt);
    this.#access++;
    // What is reused is touched first, and so locked; then room is made; then the rest is entered.
    const runs = toRuns(prompt);
    this.#enter(takeTokens(runs, cached));
    this.#evict(this.#used + tokens - cached - this.capacityTokens);
    this.#enter(runs);
    return cached;
  }

  clear(): void {
    this.#root = newNode([], undefined, 0);
    this.#used = 0;
    this.#access = 0;
  }

  /** Walks down the runs, splitting edges where they part, and adds what is missing; touches all on the way. */
  #enter(runs: readonly TokenRun[]): void {
    let node = this.#root;
    let left = runs;
    while (left.length > 0) {
      let child = node.children.get(firstToken(left));
      if (child === undefined) {
        child = newNode(left, node, this.#access);
        node.children.set(firstToken(left), child);
        this.#used += child.tokens;
        return;
      }
      const common = commonPrefix(child.runs, left);
      if (common < child.tokens) child = split(child, common);
      child.lastAccess = this.#access;
      left = dropTokens(left, common);
      node = child;
    }
  }

  /** Frees at least `tokens` tokens, leaf by leaf. */
  #evict(tokens: number): void {
    let wanted = tokens;
    if (wanted <= 0) return;
    const leaves = this.#leaves().sort((a, b) => b.lastAccess - a.lastAccess);
    while (wanted > 0) {
      const leaf = leaves.pop();
      if (leaf === undefined) return;
      const parent = leaf.parent!;
      parent.children.delete(firstToken(leaf.runs));
      this.#used -= leaf.tokens;
      wanted -= leaf.tokens;
      if (parent !== this.#root && parent.children.size === 0 && parent.lastAccess !== this.#access) {
        leaves.splice(placeFor(parent, leaves), 0, parent);
      }
    }
  }

  #leaves(): RadixNode[] {
    const leaves: RadixNode[] = [];
    const open = [...this.#root.children.values()];
    for (let node = open.pop(); node !== undefined; node = open.pop()) {
      if (node.children.size > 0) open.push(...node.children.values());
      else if (node.lastAccess !== this.#access) leaves.push(node);
    }
    return leaves;
  }
}

function newNode(runs: readonly TokenRun[], parent: RadixNode | undefined, lastAccess: number): RadixNode {
  return { runs, tokens: countTokens(runs), parent, children: new Map(), lastAccess };
}

/** Cuts an edge in two and returns the upper part; both parts keep the age. */
function split(node: RadixNode, at: number): RadixNode {
  const upper = newNode(takeTokens(node.runs, at), node.parent, node.lastAccess);
  node.parent!.children.set(firstToken(node.runs), upper);
  node.runs = dropTokens(node.runs, at);
  node.tokens -= at;
  node.parent = upper;
  upper.children.set(firstToken(node.runs), node);
  return upper;
}

/** Where a node belongs among leaves that are sorted by age, the oldest last. */
function placeFor(node: RadixNode, leaves: readonly RadixNode[]): number {
  let low = 0;
  let high = leaves.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (leaves[middle]!.lastAccess > node.lastAccess) low = middle + 1;
    else high = middle;
  }
  return low;
}

function firstToken(runs: readonly TokenRun[]): string {
  return `${runs[0]!.offset}@${runs[0]!.key}`;
}
