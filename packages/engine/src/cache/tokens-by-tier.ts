/** Tokens by where they are found, the nearest place counting. */
export interface TokensByTier {
  readonly device: number;
  /** In host memory. */
  readonly host: number;
  /** On the disk. */
  readonly disk: number;
}

/** What a prompt finds in the tree. */
export interface TreeReuse extends TokensByTier {
  /** Milliseconds that bringing what is not on the device there is expected to take. */
  readonly transferMs: number;
}
