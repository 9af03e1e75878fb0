/** How fast the estimate follows slower times; a faster one counts at once. */
const SLOWER = 1.05;
/** How much the estimate falls when something is left where it is for its cost. */
const FADE = 0.8;

/**
 * What it costs to bring a byte back from a tier: the fastest of late, because one slow moment says nothing of the
 * next. Nothing before the first time, so that it is tried, unless it was measured beforehand.
 */
export class RestoreCost {
  #msPerByte: number;

  /** @param msPerByte Milliseconds a byte, where that was measured. */
  constructor(msPerByte: number = Number.POSITIVE_INFINITY) {
    this.#msPerByte = msPerByte;
  }

  /** Milliseconds that so many bytes will take. */
  expectedMs(bytes: number): number {
    return this.#msPerByte === Number.POSITIVE_INFINITY ? 0 : bytes * this.#msPerByte;
  }

  /** So many bytes took so long. */
  observe(bytes: number, durationMs: number): void {
    this.#msPerByte = Math.min(durationMs / bytes, SLOWER * this.#msPerByte);
  }

  /** Something was left where it is for its cost. The estimate falls, so that it is tried again some time. */
  fade(): void {
    this.#msPerByte *= FADE;
  }
}
