import { hash } from 'node:crypto';
import type { RadixNode } from '../cache/radix-node.js';

const DIGEST_BYTES = 32;
const TOKEN_BYTES = 4;
const NO_DIGEST = '00'.repeat(DIGEST_BYTES);

/** A full block of a path, named by the node in which it ends: no two nodes of a tree end the same block. */
export interface Block {
  readonly node: RadixNode;
  /** Which block of the path, from 0 on. */
  readonly index: number;
}

/** SHA-256 of the blocks that end in a node, from block `first` on. */
interface NodeDigests {
  first: number;
  readonly digests: string[];
}

/**
 * The chained hashes of a tree's full blocks. A block is `size` tokens of a path, at a multiple of `size`; its digest
 * is the SHA-256 of the digest before it and its token ids, four bytes each, little end first. Before the first block
 * stands the SHA-256 of the salt, or 32 zero bytes without one: prompts of different salts have no block in common.
 *
 * Digests are kept with their node, 64 bytes and a little more a block, and go with it. Cost: one hash a block.
 */
export class BlockChain {
  readonly size: number;
  readonly #input: Buffer;
  readonly #known = new WeakMap<RadixNode, NodeDigests>();

  constructor(size: number) {
    this.size = size;
    this.#input = Buffer.alloc(DIGEST_BYTES + TOKEN_BYTES * size);
  }

  /** The blocks that end in a node behind position `from`. */
  blocksIn(node: RadixNode, from: number = node.start): Block[] {
    const first = this.#blocksBefore(from);
    const end = this.#blocksBefore(node.end);
    return Array.from({ length: end - first }, (_, offset) => ({ node, index: first + offset }));
  }

  /** A block's digest, as 64 hexadecimal digits. */
  digest({ node, index }: Block): string {
    const { first, digests } = this.#digestsOf(node);
    return digests[index - first]!;
  }

  /** The digest of the block before a block; `undefined` when it is the first. */
  parentDigest({ node, index }: Block): string | undefined {
    return index === 0 ? undefined : this.#digestBefore(node, index);
  }

  tokensOf({ node, index }: Block): number[] {
    return tokensBetween(node, index * this.size, (index + 1) * this.size);
  }

  #blocksBefore(position: number): number {
    return Math.floor(position / this.size);
  }

  /**
   * Those that are known of a node, and those that it has got since. A node that was cut knows those of its lower part;
   * one that lost tokens at its end never gets others in their place.
   */
  #digestsOf(node: RadixNode): NodeDigests {
    const first = this.#blocksBefore(node.start);
    const end = this.#blocksBefore(node.end);
    let known = this.#known.get(node);
    if (known === undefined) {
      known = { first, digests: [] };
      this.#known.set(node, known);
    }

    known.digests.splice(0, first - known.first);
    known.first = first;
    for (let index = first + known.digests.length; index < end; index++) {
      const before = index > first ? known.digests.at(-1)! : this.#digestBefore(node, index);
      known.digests.push(this.#hash(before, this.tokensOf({ node, index })));
    }
    return known;
  }

  /** The digest that block `index`, which ends in the node, continues. */
  #digestBefore(node: RadixNode, index: number): string {
    let current = node;
    while (current.parent !== undefined && this.#blocksBefore(current.start) >= index) current = current.parent;
    if (current.parent === undefined) return current.salt === undefined ? NO_DIGEST : hash('sha256', current.salt);
    return this.digest({ node: current, index: index - 1 });
  }

  #hash(before: string, tokens: readonly number[]): string {
    this.#input.write(before, 'hex');
    for (const [place, token] of tokens.entries()) this.#input.writeUInt32LE(token, DIGEST_BYTES + TOKEN_BYTES * place);
    return hash('sha256', this.#input);
  }
}

/** The tokens of a node's path at positions `from` … `to - 1`; the node must reach so far. */
function tokensBetween(node: RadixNode, from: number, to: number): number[] {
  const tokens = node.tokens.slice(Math.max(0, from - node.start), to - node.start);
  return from >= node.start ? tokens : [...tokensBetween(node.parent!, from, node.start), ...tokens];
}
