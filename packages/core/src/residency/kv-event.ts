/** Where a block lies, in order of the time it takes to come back. Engines' own names are mapped to these. */
export const KV_TIERS = ['device', 'host', 'disk'] as const;
export type KvTier = (typeof KV_TIERS)[number];

/** Full blocks lie in a tier now; each continues the one before it. */
export interface BlocksStored {
  readonly kind: 'stored';
  readonly tier: KvTier;
  /** The engine's own names of the blocks, as text. */
  readonly hashes: readonly string[];
  /** The block that the first one continues; `undefined` when it begins a prompt. */
  readonly parent: string | undefined;
  /** The tokens of all blocks, one block after the other; empty for blocks that are known already. */
  readonly tokens: readonly number[];
  /** Tokens of one block; 0 where `tokens` is empty. */
  readonly blockSize: number;
  /**
   * What stands beside the tokens in each block's hash: salt, adapter, images. Blocks with equal tokens and other
   * extras are other blocks.
   */
  readonly extras?: readonly (string | undefined)[];
  /** Set where equal hashes of different scopes are different blocks, as in SGLang, whose hash leaves the salt out. */
  readonly scope?: string;
}

/** Blocks lie in a tier no more. */
export interface BlocksRemoved {
  readonly kind: 'removed';
  readonly tier: KvTier;
  readonly hashes: readonly string[];
  /** Copies of each block that are left in the tier, where the engine tells. */
  readonly copiesLeft?: readonly number[];
}

/** No block lies anywhere. */
interface BlocksCleared {
  readonly kind: 'cleared';
}

/** What an engine tells about its KV cache, whatever the wire format. */
export type KvEvent = BlocksStored | BlocksRemoved | BlocksCleared;
