/** Crashes further back than this count no more. */
export const CRASH_WINDOW_MS = 60_000;

/** Before the second restart of a window; every further one waits twice as long. */
const FIRST_DELAY_MS = 200;
const LONGEST_DELAY_MS = 5_000;

/** When a crashed worker is started again, and when no more: pure, the clock is passed in. */
export class RestartLimit {
  readonly #most: number;
  readonly #crashes: number[] = [];

  /** @param most Restarts within {@link CRASH_WINDOW_MS}; one more crash and it is given up. */
  constructor(most: number) {
    this.#most = most;
  }

  /** Crashes within the window. */
  get crashes(): number {
    return this.#crashes.length;
  }

  /** The last crash counts as one with the one before it. */
  forgive(): void {
    this.#crashes.pop();
  }

  /**
   * A crash.
   *
   * @param nowMs Milliseconds since some moment.
   * @returns Milliseconds to wait before the restart, none after a crash that stands alone; `undefined` to give up.
   */
  crashed(nowMs: number): number | undefined {
    while (this.#crashes.length > 0 && this.#crashes[0]! <= nowMs - CRASH_WINDOW_MS) {
      this.#crashes.shift();
    }
    this.#crashes.push(nowMs);
    if (this.#crashes.length > this.#most) {
      return undefined;
    }
    const earlier = this.#crashes.length - 1;
    return earlier === 0 ? 0 : Math.min(FIRST_DELAY_MS * 2 ** (earlier - 1), LONGEST_DELAY_MS);
  }
}
