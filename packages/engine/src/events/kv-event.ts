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

/** Blocks lie on a medium no more. */
interface BlocksRemoved {
  readonly type: 'removed';
  readonly medium: KvMedium;
  readonly blockHashes: readonly BlockHash[];
}

/** No block lies anywhere. */
interface AllBlocksCleared {
  readonly type: 'cleared';
}

export type KvEvent = BlocksStored | BlocksRemoved | AllBlocksCleared;

/** What changed in one step, in order. Plain data, so that it can travel between processes as JSON. */
export interface KvEventBatch {
  /** Seconds since 1970. */
  readonly timestamp: number;
  readonly events: readonly KvEvent[];
}

/**
 * Tells the outside what the cache holds. It numbers batches from 0 on and goes on numbering as long as it lives,
 * whoever hands them in.
 */
export interface KvEventPublisher {
  /** Takes a batch; returns at once, never throws, and drops what nobody can be sent any more. */
  publish(batch: KvEventBatch): void;
  /** Sends what is left and ends. Safe to call again. */
  close(): Promise<void>;
}

/**
 * How events are written: `tagged` as maps with a `type`, as vLLM does since June 2026 (vllm-project/vllm#42892), or
 * `positional` as arrays, as it did before.
 */
export const KV_EVENT_ENCODINGS = ['tagged', 'positional'] as const;
export type KvEventEncoding = (typeof KV_EVENT_ENCODINGS)[number];
