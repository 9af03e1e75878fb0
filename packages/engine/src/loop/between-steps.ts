import { WarmpathError } from '@warmpath/core';

/** Work on the cache that waits for the end of the step that is computed. */
export class BetweenSteps {
  readonly #wake: () => void;
  #waiting: (() => void)[] = [];
  #isClosed = false;

  /** @param wake Has the loop take a turn, if it sleeps. */
  constructor(wake: () => void) {
    this.#wake = wake;
  }

  /** @throws WARMPATH_SHUTTING_DOWN, and what the work throws. */
  run<T>(work: () => T): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#waiting.push(() => {
        try {
          if (this.#isClosed) throw new WarmpathError('WARMPATH_SHUTTING_DOWN');
          resolve(work());
        } catch (error) {
          reject(error as Error);
        }
      });
      if (this.#isClosed) this.step();
      this.#wake();
    });
  }

  /** Does what waits. */
  step(): void {
    for (const work of this.#waiting.splice(0)) work();
  }

  /** Refuses what waits and what comes. */
  close(): void {
    this.#isClosed = true;
    this.step();
  }
}
