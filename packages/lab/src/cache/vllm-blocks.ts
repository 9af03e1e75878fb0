import { WarmpathError } from '@warmpath/core';
import { blockContents } from './block-content.js';
import { type Block, type BlockNode, BlockPool } from './block-pool.js';
import { type Admission, type CachedPrompt, type PrefixCacheModel, promptTokens } from './prefix-cache.js';

export interface VllmBlockCacheOptions {
  /** Tokens of a block. Default 16. */
  readonly blockSize?: number;
  /** Blocks that requests can use (vLLM keeps one more for itself). Default unlimited. */
  readonly blocks?: number;
}

/**
 * The prefix cache of vLLM V1: full blocks found by a chained key, so that a block counts only behind the same blocks; the
 * last token is always computed, so a hit ends before it; free blocks wait in a queue and are taken least recently
 * freed first; a finished request frees its blocks from the tail, so that the end of a prompt is lost before its start.
 *
 * A block computed twice stays beside its copy, as in vLLM. Room for the whole prompt and answer is taken at admission, where vLLM
 * takes it step by step and sets requests back if it ends. Cost: O(blocks of the prompt).
 */
export class VllmBlockCache implements PrefixCacheModel {
  readonly name = 'vllm-blocks';
  readonly evictsLeastRecent = true;
  readonly granularity: number;
  readonly #capacity: number;
  #pool: BlockPool;
  #roots = new Map<string, BlockNode>();

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
    const contents = blockContents(prompt, this.granularity);
    return this.#find(contents, promptTokens(prompt)).length * this.granularity;
  }

  admit(prompt: CachedPrompt): Admission | undefined {
    const tokens = promptTokens(prompt);
    const needed = Math.ceil((tokens + (prompt.answer?.tokens ?? 0)) / this.granularity);
    if (needed > this.#capacity) {
      const detail = `${needed} blocks are needed, and the cache has ${this.#capacity}.`;
      throw new WarmpathError('WARMPATH_CONTEXT_TOO_LONG', { detail });
    }
    const contents = blockContents(prompt, this.granularity);
    const found = this.#find(contents, tokens);
    let wanted = needed - found.length;
    for (const node of found) if (node.blocks[0]!.users === 0) wanted++;
    if (wanted > this.#pool.free) return undefined;
    const held: Block[] = [];
    for (const node of found) {
      this.#pool.reserve(node.blocks[0]!);
      held.push(node.blocks[0]!);
    }
    while (held.length < needed) {
      const block = this.#pool.take()!;
      if (block.node !== undefined) this.#forget(block);
      held.push(block);
    }
    return this.#admission(contents, held, found);
  }

  clear(): void {
    this.#pool = new BlockPool(this.#capacity);
    this.#roots = new Map();
  }

  /** The nodes of the longest run of leading blocks that is held, the last token's block left out. */
  #find(contents: readonly string[], tokens: number): BlockNode[] {
    const found: BlockNode[] = [];
    const most = Math.min(contents.length, Math.floor((tokens - 1) / this.granularity));
    let children = this.#roots;
    for (let place = 0; place < most; place++) {
      const node = children.get(contents[place]!);
      if (node === undefined || node.blocks.length === 0) break;
      found.push(node);
      children = node.children;
    }
    return found;
  }

  #admission(contents: readonly string[], held: readonly Block[], found: readonly BlockNode[]): Admission {
    const pool = this.#pool;
    let parent = found.at(-1);
    let indexed = found.length;
    return {
      cachedTokens: found.length * this.granularity,
      enter: (tokens) => {
        if (pool !== this.#pool) return;
        // The partly filled block at the end is never indexed.
        const full = Math.min(contents.length, Math.floor(tokens / this.granularity));
        for (; indexed < full; indexed++) parent = this.#index(held[indexed]!, contents[indexed]!, parent);
      },
      release: () => {
        for (let place = held.length - 1; place >= 0; place--) pool.release(held[place]!);
      },
    };
  }

  #index(block: Block, content: string, parent: BlockNode | undefined): BlockNode {
    const siblings = parent === undefined ? this.#roots : parent.children;
    let node = siblings.get(content);
    if (node === undefined) {
      node = { content, parent, children: new Map(), blocks: [] };
      siblings.set(content, node);
    }
    node.blocks.push(block);
    block.node = node;
    return node;
  }

  /** Takes an evicted block out of the index, and with its last copy the node. */
  #forget(block: Block): void {
    const node = block.node!;
    block.node = undefined;
    node.blocks.splice(node.blocks.indexOf(block), 1);
    let empty: BlockNode | undefined = node;
    while (empty !== undefined && empty.blocks.length === 0 && empty.children.size === 0) {
      const siblings: Map<string, BlockNode> = empty.parent === undefined ? this.#roots : empty.parent.children;
      siblings.delete(empty.content);
      empty = empty.parent;
    }
  }
}

function checkSize(value: number, path: string): void {
  if (Number.isSafeInteger(value) && value > 0) return;
  throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path, detail: 'A whole number above 0 was expected.' });
}
