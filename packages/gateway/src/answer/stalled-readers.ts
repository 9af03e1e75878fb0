/** As much of an answer as says how its client takes it. */
export interface WrittenAnswer {
  /** Bytes that were written and that the client's connection has not taken. */
  readonly writableLength: number;
  destroy(): unknown;
}

/**
 * Ends answers of which a client takes nothing any more: they would hold a place in the engine, and memory, for as long
 * as it likes. One look at all of them in turn; an answer of which as much waits as at the look before is ended. An
 * answer on which nothing waits, because the engine is not that far, is none of these.
 */
export class StalledReaders {
  readonly #stallMs: () => number;
  /** Bytes that waited at the last look. */
  readonly #open = new Map<WrittenAnswer, number>();
  #timer: NodeJS.Timeout | undefined;

  /** @param stallMs Milliseconds between two looks. */
  constructor(stallMs: () => number) {
    this.#stallMs = stallMs;
  }

  /** An answer may be written. O(1). */
  began(answer: WrittenAnswer): void {
    this.#open.set(answer, 0);
    // One timer for all, and none while there is nothing to look at.
    this.#timer ??= setTimeout(this.#look, this.#stallMs()).unref();
  }

  /** It is over. O(1). */
  ended(answer: WrittenAnswer): void {
    this.#open.delete(answer);
  }

  readonly #look = (): void => {
    this.#timer = undefined;
    for (const [answer, before] of [...this.#open]) {
      const waiting = answer.writableLength;
      if (before > 0 && waiting >= before) answer.destroy();
      else this.#open.set(answer, waiting);
    }
    if (this.#open.size > 0) this.#timer = setTimeout(this.#look, this.#stallMs()).unref();
  };
}
