/** How fast the estimate follows slower times; a faster one counts at once. */
const SLOWER = 1.05;
/** How much the estimate falls when something is left where it is for its cost. */
const FADE = 0.8;

/**
 * What it costs to bring a byte back from a tier: the fastest of late, because one slow moment says nothing of the
 * next. Nothing before the first time, so that it is tried. What is larger than anything so far is expected to cost no
 * more than the largest so far, so that it is tried as well: the rate of a small one is mostly what every transfer
 * takes, whatever its size.
 */
export class RestoreCost {
  #msPerByte = Number.POSITIVE_INFINITY;
  /** Bytes of the largest transfer that the rate comes from. */
  #largest = 0;

  /** Milliseconds that so many bytes will take. */
  expectedMs(bytes: number): number {
    return this.#largest === 0 ? 0 : Math.min(bytes, this.#largest) * this.#msPerByte;
  }

  /** So many bytes took so long. */
  observe(bytes: number, durationMs: number): void {
    this.#msPerByte = Math.min(durationMs / bytes, SLOWER * this.#msPerByte);
    this.#largest = Math.max(this.#largest, bytes);
  }

  /** Something was left where it is for its cost. The estimate falls, so that it is tried again some time. */
  fade(): void {
    this.#msPerByte *= FADE;
  }
}
