import { WarmpathError } from '@warmpath/core';
import type { CostModel, ReplacementPolicy } from '@warmpath/core/internal';
import { RTX_4090 } from '../latency.js';
import { type Admission, allSpans, type CachedPrompt, type PrefixCacheModel, promptTokens } from './prefix-cache.js';
import { RadixReplacement } from './radix-replacement.js';
import { type RadixNode, RadixTree } from './radix-tree.js';
import { takeTokens, toRuns } from './token-runs.js';

export interface SglangRadixCacheOptions {
  /** Tokens of KV memory. Default unlimited. */
  readonly tokens?: number;
  /** Which leaf edge goes first; the embedded engine's is `pgdsf`. Default SGLang's: that of the oldest access. */
  readonly policy?: ReplacementPolicy;
  /** What computing costs, which a policy may weigh. Default: the fit to the papers' RTX 4090. */
  readonly cost?: CostModel;
}

/**
 * The prefix cache of SGLang with pages of one token: a radix tree that matches to the token, the last token of a
 * prompt always computed. When memory is needed, whole leaf edges go, the one of the oldest access first; what a prompt
 * under way reuses or has entered is locked. What two prompts computed side by side is kept once. With a replacement
 * policy it is the embedded engine's, whose device and host memory count as one.
 *
 * Cost: O(runs) a prompt, and O(1) an evicted edge; with a policy O(runs × log edges).
 */
export class SglangRadixCache implements PrefixCacheModel {
  readonly name = 'sglang-radix';
  readonly granularity = 1;
  readonly evictsLeastRecent: boolean;
  readonly capacityTokens: number;
  readonly #policy: ReplacementPolicy | undefined;
  readonly #cost: CostModel;
  #tree: RadixTree;

  /** Error: `WARMPATH_INVALID_REQUEST` for a size that is no whole number above 0. */
  constructor(options: SglangRadixCacheOptions = {}) {
    this.capacityTokens = options.tokens ?? Number.POSITIVE_INFINITY;
    this.#policy = options.policy;
    this.#cost = options.cost ?? RTX_4090;
    this.evictsLeastRecent = this.#policy === undefined;
    this.#tree = this.#createTree();
    const isValid = this.capacityTokens === Number.POSITIVE_INFINITY || Number.isSafeInteger(this.capacityTokens);
    if (isValid && this.capacityTokens > 0) return;
    throw new WarmpathError('WARMPATH_INVALID_REQUEST', {
      path: 'tokens',
      detail: 'A whole number above 0 was expected.',
    });
  }

  get usedTokens(): number {
    return this.#tree.tokens + this.#tree.reserved;
  }

  cachedTokens(prompt: CachedPrompt): number {
    return this.#tree.match(toRuns(prompt.spans, prompt.salt), promptTokens(prompt) - 1).tokens;
  }

  admit(prompt: CachedPrompt): Admission | undefined {
    const tokens = promptTokens(prompt);
    const total = tokens + (prompt.answer?.tokens ?? 0);
    if (total > this.capacityTokens) {
      const detail = `The prompt has ${total} tokens, and the cache has room for ${this.capacityTokens}.`;
      throw new WarmpathError('WARMPATH_CONTEXT_TOO_LONG', { detail });
    }
    const runs = toRuns(allSpans(prompt), prompt.salt);
    const match = this.#tree.match(runs, tokens - 1);
    const cachedTokens = match.tokens;
    const evicted = this.usedTokens + total - cachedTokens - this.capacityTokens;
    if (evicted > this.#tree.unlockedTokens - match.unlockedTokens) return undefined;
    const tree = this.#tree;
    let last: RadixNode = tree.enter(takeTokens(runs, cachedTokens));
    tree.lock(last);
    tree.evict(evicted);
    tree.reserved += total - cachedTokens;
    let entered = cachedTokens;
    return {
      cachedTokens,
      enter: (computed) => {
        const upTo = Math.min(computed, total);
        if (upTo <= entered) return;
        const node = tree.enter(takeTokens(runs, upTo));
        tree.lock(node);
        tree.unlock(last);
        tree.reserved -= upTo - entered;
        entered = upTo;
        last = node;
      },
      release: () => {
        const newTokens = tokens - cachedTokens;
        tree.use(last, { cachedTokens, costPerToken: this.#cost.prefillMs(cachedTokens, newTokens) / newTokens });
        tree.touch(last);
        tree.unlock(last);
        tree.reserved -= total - entered;
      },
    };
  }

  clear(): void {
    this.#tree = this.#createTree();
  }

  #createTree(): RadixTree {
    return new RadixTree(this.#policy && new RadixReplacement(this.#policy));
  }
}
