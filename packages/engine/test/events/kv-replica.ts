import { hash } from 'node:crypto';
import { expect } from 'vitest';
import type { RadixNode } from '../../src/cache/radix-node.js';
import type { KvEvent, KvMedium } from '../../src/events/kv-event.js';

/** By medium and hash: the tokens of a block. */
export type Blocks = Map<string, readonly number[]>;

const MEDIA = [
  ['device', 'GPU'],
  ['host', 'CPU'],
  ['disk', 'DISK'],
] as const;

/** A consumer that believes every event, and complains of one that cannot be true. */
export class KvReplica {
  readonly blocks: Blocks = new Map();

  apply(events: readonly KvEvent[]): void {
    for (const event of events) {
      if (event.type === 'cleared') {
        this.blocks.clear();
      } else if (event.type === 'removed') {
        for (const blockHash of event.blockHashes) {
          expect(this.blocks.delete(key(event.medium, blockHash)), 'a block is removed that was not stored').toBe(true);
        }
      } else {
        const { medium, blockHashes, tokenIds, blockSize } = event;
        expect(tokenIds).toHaveLength(blockHashes.length * blockSize);
        for (const [index, blockHash] of blockHashes.entries()) {
          expect(this.blocks.has(key(medium, blockHash)), 'a block is stored twice').toBe(false);
          this.blocks.set(key(medium, blockHash), tokenIds.slice(index * blockSize, (index + 1) * blockSize));
        }
      }
    }
  }

  /** By medium, how many blocks. */
  get counts(): Partial<Record<KvMedium, number>> {
    const counts: Partial<Record<KvMedium, number>> = {};
    for (const name of this.blocks.keys()) {
      const medium = name.split(' ')[0] as KvMedium;
      counts[medium] = (counts[medium] ?? 0) + 1;
    }
    return counts;
  }
}

/** The full blocks that a tree holds on each tier, found by walking all its paths, without any memory. */
export function blocksOf(roots: readonly RadixNode[], blockSize: number): Blocks {
  const blocks: Blocks = new Map();
  const walk = (
    node: RadixNode,
    path: readonly { token: number; node: RadixNode }[],
    salt: string | undefined,
  ): void => {
    const here = [...path, ...node.tokens.map((token) => ({ token, node }))];
    for (let end = blockSize; end <= here.length; end += blockSize) {
      const block = here.slice(end - blockSize, end);
      for (const [tier, medium] of MEDIA) {
        if (block.every((place) => place.node.liesIn(tier))) {
          const tokens = here.slice(0, end).map(({ token }) => token);
          blocks.set(key(medium, naiveHash(tokens, blockSize, salt)), tokens.slice(-blockSize));
        }
      }
    }
    for (const child of node.children.values()) {
      walk(child, here, salt);
    }
  };
  for (const root of roots) {
    walk(root, [], root.salt);
  }
  return blocks;
}

/** The hash of the last block of these tokens, as the page on KV events describes it. */
export function naiveHash(tokens: readonly number[], blockSize: number, salt?: string): string {
  let digest = salt === undefined ? '00'.repeat(32) : hash('sha256', salt);
  for (let start = 0; start < tokens.length; start += blockSize) {
    const bytes = tokens.slice(start, start + blockSize).map((token) => [token, token >> 8, token >> 16, token >> 24]);
    digest = hash('sha256', Buffer.concat([Buffer.from(digest, 'hex'), Buffer.from(bytes.flat())]));
  }
  return digest.slice(-16);
}

function key(medium: KvMedium, blockHash: string): string {
  return `${medium} ${blockHash}`;
}
