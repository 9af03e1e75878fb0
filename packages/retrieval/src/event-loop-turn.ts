/** Milliseconds that one piece of work may keep the event loop. */
const TURN_MS = 2;
/** Steps between two looks at the clock. */
const STEPS = 4;

/** Divides long work into turns of the event loop: `if (turn.isOver) await turn.next()`. */
export class Turn {
  #began = performance.now();
  #steps = 0;

  /** Whether other work is due. Looks at the clock at every fourth call. */
  get isOver(): boolean {
    return ++this.#steps % STEPS === 0 && performance.now() - this.#began >= TURN_MS;
  }

  async next(): Promise<void> {
    await new Promise<void>((resolve) => setImmediate(resolve));
    this.#began = performance.now();
  }
}
