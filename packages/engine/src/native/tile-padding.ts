/**
 * Rows from which llama.cpp's CPU attention works in tiles (`GGML_FA_TILE_Q` in ggml/src/ggml-cpu/common.h). A batch of
 * fewer goes row by row and cell by cell (`ggml_compute_forward_flash_attn_ext_f16` in ops.cpp), which is many times
 * slower behind a long prefix, and less exact: row by row the values are summed up in 16-bit numbers (`VKQ16`), where a
 * sum over thousands of cells soon loses what the next one adds; tiles sum in 32 bits.
 */
export const TILE_ROWS = 64;

/**
 * Nanoseconds on one AVX-512 core, fitted to `bench/small-batches.js`. Only their ratios matter, and these differ
 * little from core to core. Row by row, what is left over behind the last whole vector is computed number by number.
 */
const ROW_NS = 0.33;
const LEFTOVER_NS = 4.3;
const TILE_NS = 0.1;
const WEIGHT_NS = 0.045;

/** Padding must be clearly cheaper, for the estimate is rough. */
const MARGIN = 1.25;

/** What attention costs depends on. */
export interface AttentionShape {
  readonly layers: number;
  readonly heads: number;
  /** Numbers of one head's key. */
  readonly headWidth: number;
  /** Weights that a token is multiplied with. */
  readonly weights: number;
  readonly threads: number;
  /** Whether the library computes with AVX-512: then whole vectors are of 64 numbers, and elsewhere of 32. */
  readonly wideVectors: boolean;
}

/** What a batch attends to. */
export interface BatchAttention {
  /** Tokens of the batch. */
  readonly rows: number;
  /** Cells that each token attends to, summed. */
  readonly attended: number;
  /** Cells that any token attends to. */
  readonly span: number;
}

/** What computing a batch is estimated to take, padding included. */
export interface BatchEstimate {
  /** On the core that the constants were fitted on: only the ratio of two estimates says anything. */
  readonly nanoseconds: number;
  /** Whether its attention works in tiles; else it goes row by row. */
  readonly isTiled: boolean;
}

/**
 * When a small batch is worth filling up with tokens that nobody wants, so that its attention works in tiles. With
 * 2,048 cells before them, 40 tokens took 20 times longer than 64 on the demo model, and 1.4 times on `random:24m`. A
 * function of the batch alone and not of measured time, so that the same batch is always computed in the same way.
 */
export class TilePadding {
  readonly #shape: AttentionShape;
  readonly #isConstant: boolean;

  /** @param isConstant Fill up every small batch, so that all are computed in tiles, in the same way. */
  constructor(shape: AttentionShape, isConstant = false) {
    this.#shape = shape;
    this.#isConstant = isConstant;
  }

  /** How many tokens to add to a batch; 0 when that would not pay. O(1). */
  wanted(batch: BatchAttention): number {
    const added = TILE_ROWS - batch.rows;
    if (added <= 0 || this.#isConstant) {
      return Math.max(0, added);
    }
    const isCheaper = this.#byRowNs(batch) > MARGIN * (this.#byTileNs(batch) + this.#weightsNs(added));
    return isCheaper ? added : 0;
  }

  /**
   * What a batch takes.
   *
   * @param isPadded Whether it is filled up where that pays. O(1).
   */
  estimate(batch: BatchAttention, isPadded: boolean): BatchEstimate {
    const rows = batch.rows + (isPadded ? this.wanted(batch) : 0);
    const isTiled = rows >= TILE_ROWS;
    const attention = isTiled ? Math.ceil(rows / TILE_ROWS) * this.#byTileNs(batch) : this.#byRowNs(batch);
    return { nanoseconds: attention + this.#weightsNs(rows), isTiled };
  }

  #byRowNs({ attended }: BatchAttention): number {
    const { layers, headWidth, heads, wideVectors } = this.#shape;
    const leftover = headWidth % (wideVectors ? 64 : 32);
    return attended * layers * heads * (ROW_NS * (headWidth - leftover) + LEFTOVER_NS * leftover);
  }

  /** Of one tile of every head. */
  #byTileNs({ span }: BatchAttention): number {
    const { layers, headWidth } = this.#shape;
    return this.#tiles() * TILE_ROWS * span * layers * TILE_NS * headWidth;
  }

  #weightsNs(rows: number): number {
    return rows * this.#shape.weights * WEIGHT_NS;
  }

  /**
   * Tiles of all heads. Each thread takes four pieces of the rows of all heads, and a piece smaller than a tile costs a
   * whole one.
   */
  #tiles(): number {
    const { heads, threads } = this.#shape;
    const rows = heads * TILE_ROWS;
    const pieceRows = threads === 1 ? rows : Math.ceil(rows / (4 * threads));
    return Math.max(heads, Math.ceil(rows / pieceRows));
  }
}
