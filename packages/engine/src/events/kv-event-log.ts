import type { Tier } from '@warmpath/core/internal';
import type { RadixNode, TierListener } from '../cache/radix-node.js';
import { type Block, BlockChain } from './block-chain.js';
import type { BlockHash, BlocksRemoved, BlocksStored, KvEvent, KvEventBatch, KvMedium } from './kv-event.js';

/** Hexadecimal digits of a {@link BlockHash}, the last ones of the digest. */
const HASH_DIGITS = 16;

const MEDIA: Readonly<Record<Tier, KvMedium>> = { device: 'GPU', host: 'CPU', disk: 'DISK' };

/** Events that later blocks may still join. */
type OpenStored = BlocksStored & { readonly blockHashes: BlockHash[]; readonly tokenIds: number[] };
type OpenRemoved = BlocksRemoved & { readonly blockHashes: BlockHash[] };

/**
 * Turns changes of the tree into KV events. The tree shares single tokens, events name full blocks: a block lies on a
 * medium while all its tokens do. It may begin in one node and end in another, so a node that comes to a tier can
 * complete blocks below it, and one that leaves takes them along. Applying all events gives exactly the tree's blocks.
 */
export class KvEventLog implements TierListener {
  readonly #chain: BlockChain;
  #open: (OpenStored | OpenRemoved)[] = [];

  constructor(blockTokens: number) {
    this.#chain = new BlockChain(blockTokens);
  }

  stored(node: RadixNode, tier: Tier, from: number): void {
    const medium = MEDIA[tier];
    for (const block of this.#affected(node, tier, from)) {
      const parent = this.#chain.parentDigest(block);
      const parentBlockHash = parent === undefined ? null : shortHash(parent);
      const last = this.#open.at(-1);
      const isNext = last?.type === 'stored' && last.medium === medium && last.blockHashes.at(-1) === parentBlockHash;
      const event = isNext ? last : this.#begin(block, medium, parentBlockHash);
      event.blockHashes.push(shortHash(this.#chain.digest(block)));
      event.tokenIds.push(...this.#chain.tokensOf(block));
    }
  }

  leaving(node: RadixNode, tier: Tier): void {
    const medium = MEDIA[tier];
    for (const block of this.#affected(node, tier, node.start)) {
      const hash = shortHash(this.#chain.digest(block));
      const last = this.#open.at(-1);
      if (last?.type === 'removed' && last.medium === medium) last.blockHashes.push(hash);
      else this.#open.push({ type: 'removed', medium, blockHashes: [hash] });
    }
  }

  /** What has happened since the last time, in order. */
  drain(): KvEvent[] {
    const events = this.#open;
    this.#open = [];
    return events;
  }

  #begin({ node }: Block, medium: KvMedium, parentBlockHash: BlockHash | null): OpenStored {
    const salt = parentBlockHash === null ? rootOf(node).salt : undefined;
    const blockSize = this.#chain.size;
    const event: OpenStored = { type: 'stored', medium, blockHashes: [], parentBlockHash, tokenIds: [], blockSize };
    this.#open.push(salt === undefined ? event : Object.assign(event, { salt }));
    return event;
  }

  /**
   * The blocks that lie in the tier because these tokens do: those that end in the node behind `from`, and those that
   * begin before its end and end below it.
   */
  *#affected(node: RadixNode, tier: Tier, from: number): Iterable<Block> {
    for (const block of this.#chain.blocksIn(node, from)) {
      if (this.#liesIn(block, tier)) yield block;
    }
    if (node.end % this.#chain.size !== 0) {
      for (const child of node.children.values()) yield* this.#completedBelow(child, tier, node.end);
    }
  }

  /** The block that begins before position `before`, above this node, and ends in it or below it. */
  *#completedBelow(node: RadixNode, tier: Tier, before: number): Iterable<Block> {
    if (!node.liesIn(tier)) return;
    const index = Math.floor(before / this.#chain.size);
    if ((index + 1) * this.#chain.size <= node.end) {
      const block = { node, index };
      if (this.#liesIn(block, tier)) yield block;
      return;
    }
    for (const child of node.children.values()) yield* this.#completedBelow(child, tier, before);
  }

  /** Whether all tokens of a block lie in a tier. */
  #liesIn({ node, index }: Block, tier: Tier): boolean {
    let current = node;
    while (current.liesIn(tier) && current.start > index * this.#chain.size) current = current.parent!;
    return current.liesIn(tier);
  }
}

export interface KvEventFeedOptions {
  readonly publisher: { publish(batch: KvEventBatch): void };
  readonly blockTokens: number;
  /** Milliseconds since 1970. */
  readonly clock: () => number;
}

/**
 * Publishes what changed in a cache, one batch a step. The first event says that nothing lies anywhere, because a
 * consumer may still believe what an earlier process held; so does the last.
 */
export class KvEventFeed {
  readonly #publisher: KvEventFeedOptions['publisher'];
  readonly #log: KvEventLog;
  readonly #clock: () => number;
  #hasBegun = false;

  constructor({ publisher, blockTokens, clock }: KvEventFeedOptions) {
    this.#publisher = publisher;
    this.#log = new KvEventLog(blockTokens);
    this.#clock = clock;
  }

  get listener(): TierListener {
    return this.#log;
  }

  /** Publishes what has changed since the last time, if anything has. */
  flush(): void {
    const events = this.#log.drain();
    this.#publish(this.#hasBegun ? events : [{ type: 'cleared' }, ...events]);
    this.#hasBegun = true;
  }

  end(): void {
    this.#log.drain();
    this.#publish([{ type: 'cleared' }]);
  }

  #publish(events: readonly KvEvent[]): void {
    if (events.length > 0) this.#publisher.publish({ timestamp: this.#clock() / 1000, events });
  }
}

function rootOf(node: RadixNode): RadixNode {
  let root = node;
  while (root.parent !== undefined) root = root.parent;
  return root;
}

function shortHash(digest: string): BlockHash {
  return digest.slice(-HASH_DIGITS);
}
