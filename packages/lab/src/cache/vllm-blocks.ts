import { WarmpathError } from '@warmpath/core';
import { blockKeys } from './block-keys.js';
import { type Block, BlockPool } from './block-pool.js';
import { type Admission, type CachedPrompt, type PrefixCacheModel, promptTokens } from './prefix-cache.js';

export interface VllmBlockCacheOptions {
  /** Tokens of a block. Default 16. */
  readonly blockSize?: number;
  /** Blocks that requests can use (vLLM keeps one more for itself). Default unlimited. */
  readonly blocks?: number;
}

/**
 * The prefix cache of vLLM V1: full blocks found by a chained key, so that a block counts only behind the same blocks;
 * the last token is always computed, so a hit ends before it; free blocks wait in a queue and are taken least recently
 * freed first; a finished request frees its blocks from the tail, so that the end of a prompt is lost before its start.
 *
 * A block computed twice stays beside its copy, as in vLLM. Room for the whole prompt and answer is taken at admission,
 * where vLLM takes it step by step and sets requests back if it ends. Cost: O(blocks of the prompt).
 */
export class VllmBlockCache implements PrefixCacheModel {
  readonly name = 'vllm-blocks';
  readonly evictsLeastRecent = true;
  readonly granularity: number;
  readonly #capacity: number;
  #pool: BlockPool;
  /** The oldest block of each key. */
  #index = new Map<number, Block>();

  /** Error: `WARMPATH_INVALID_REQUEST` for sizes that are no whole numbers above 0. */
  constructor(options: VllmBlockCacheOptions = {}) {
    this.granularity = options.blockSize ?? 16;
    this.#capacity = options.blocks ?? Number.POSITIVE_INFINITY;
    checkSize(this.granularity, 'blockSize');
    if (this.#capacity !== Number.POSITIVE_INFINITY) checkSize(this.#capacity, 'blocks');
    this.#pool = new BlockPool(this.#capacity);
  }

  get capacityTokens(): number {
    return this.#capacity * this.granularity;
  }

  get usedTokens(): number {
    return this.#pool.touched * this.granularity;
  }

  cachedTokens(prompt: CachedPrompt): number {
    const keys = blockKeys(prompt, this.granularity);
    return this.#find(keys, promptTokens(prompt)) * this.granularity;
  }

  admit(prompt: CachedPrompt): Admission | undefined {
    const tokens = promptTokens(prompt);
    const needed = Math.ceil((tokens + (prompt.answer?.tokens ?? 0)) / this.granularity);
    if (needed > this.#capacity) {
      const detail = `${needed} blocks are needed, and the cache has ${this.#capacity}.`;
      throw new WarmpathError('WARMPATH_CONTEXT_TOO_LONG', { detail });
    }
    const keys = blockKeys(prompt, this.granularity);
    const found = this.#find(keys, tokens);
    let wanted = needed - found;
    for (let place = 0; place < found; place++) if (this.#index.get(keys[place]!)!.users === 0) wanted++;
    if (wanted > this.#pool.free) return undefined;
    const held: Block[] = [];
    for (let place = 0; place < found; place++) {
      const block = this.#index.get(keys[place]!)!;
      this.#pool.reserve(block);
      held.push(block);
    }
    while (held.length < needed) {
      const block = this.#pool.take()!;
      if (block.key !== undefined) this.#forget(block, block.key);
      held.push(block);
    }
    return this.#admission(keys, held, found);
  }

  clear(): void {
    this.#pool = new BlockPool(this.#capacity);
    this.#index = new Map();
  }

  /** Blocks at the start of the prompt that are held, the last token's left out. */
  #find(keys: readonly number[], tokens: number): number {
    const most = Math.min(keys.length, Math.floor((tokens - 1) / this.granularity));
    let found = 0;
    while (found < most && this.#index.has(keys[found]!)) found++;
    return found;
  }

  #admission(keys: readonly number[], held: readonly Block[], found: number): Admission {
    const pool = this.#pool;
    let entered = found;
    return {
      cachedTokens: found * this.granularity,
      enter: (tokens) => {
        if (pool !== this.#pool) return;
        // The partly filled block at the end never has a key.
        const full = Math.min(keys.length, Math.floor(tokens / this.granularity));
        for (; entered < full; entered++) this.#remember(held[entered]!, keys[entered]!);
      },
      release: () => {
        for (let place = held.length - 1; place >= 0; place--) pool.release(held[place]!);
      },
    };
  }

  #remember(block: Block, key: number): void {
    block.key = key;
    let last = this.#index.get(key);
    if (last === undefined) {
      this.#index.set(key, block);
      return;
    }
    while (last.twin !== undefined) last = last.twin;
    last.twin = block;
  }

  /** Takes an evicted block out of the index. */
  #forget(block: Block, key: number): void {
    const first = this.#index.get(key)!;
    if (first !== block) {
      let before = first;
      while (before.twin !== block) before = before.twin!;
      before.twin = block.twin;
    } else if (block.twin === undefined) this.#index.delete(key);
    else this.#index.set(key, block.twin);
    block.key = undefined;
    block.twin = undefined;
  }
}

function checkSize(value: number, path: string): void {
  if (Number.isSafeInteger(value) && value > 0) return;
  throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path, detail: 'A whole number above 0 was expected.' });
}
