/** Tokens by where they are found, the nearest place counting. */
export interface TokensByTier {
  readonly device: number;
  /** In host memory. */
  readonly host: number;
  /** On the disk. */
  readonly disk: number;
}
