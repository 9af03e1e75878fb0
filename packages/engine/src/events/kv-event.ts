/** Where a block lies, by vLLM's names for device, host and disk. */
export type KvMedium = 'GPU' | 'CPU' | 'DISK';

/**
 * A block's name: the last eight bytes of its chained SHA-256, as sixteen hexadecimal digits. On the wire it is the
 * unsigned integer that these digits write.
 */
export type BlockHash = string;

/** Full blocks lie on a medium now; each continues the one before it. */
export interface BlocksStored {
  readonly type: 'stored';
  readonly medium: KvMedium;
  readonly blockHashes: readonly BlockHash[];
  /** The block that the first one continues; `null` when it begins a prompt. */
  readonly parentBlockHash: BlockHash | null;
  /** The tokens of all blocks, one after the other. */
  readonly tokenIds: readonly number[];
  /** Tokens of one block. */
  readonly blockSize: number;
  /** The salt of a prompt that begins here. */
  readonly salt?: string;
}

export interface BlocksRemoved {
  readonly type: 'removed';
  readonly medium: KvMedium;
  readonly blockHashes: readonly BlockHash[];
}

interface AllBlocksCleared {
  readonly type: 'cleared';
}

export type KvEvent = BlocksStored | BlocksRemoved | AllBlocksCleared;

export interface KvEventBatch {
  /** Seconds since 1970. */
  readonly timestamp: number;
  readonly events: readonly KvEvent[];
}
