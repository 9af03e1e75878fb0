/** As much of an answer as says how its client takes it. */
export interface WrittenAnswer {
  /** Bytes that were written and that the client's connection has not taken. */
  readonly writableLength: number;
  destroy(): unknown;
}

/** An answer that may be written. */
export interface OpenAnswer {
  readonly answer: WrittenAnswer;
  /** Bytes that waited at the last look. */
  waiting: number;
  /** Where it stands among the others. */
  place: number;
}

/**
 * Ends answers of which a client takes nothing any more: they would hold a place in the engine, and memory, for as long
 * as it likes. One look at all of them in turn; an answer of which as much waits as at the look before is ended. An
 * answer on which nothing waits, because the engine is not that far, is none of these.
 */
export class StalledReaders {
  readonly #stallMs: () => number;
  /**
   * An array, and no Map: a Map that entries come to and leave all the time replaces its table again and again, each
   * table holds on to the next one, and so to every request until the next full collection (7 ms a scavenge, not 1.5).
   */
  readonly #open: OpenAnswer[] = [];
  #timer: NodeJS.Timeout | undefined;

  /** @param stallMs Milliseconds between two looks. */
  constructor(stallMs: () => number) {
    this.#stallMs = stallMs;
  }

  /** An answer may be written, until `ended` gets what this returns. O(1). */
  began(answer: WrittenAnswer): OpenAnswer {
    const open = { answer, waiting: 0, place: this.#open.length };
    this.#open.push(open);
    // One timer for all, and none while there is nothing to look at.
    this.#timer ??= setTimeout(this.#look, this.#stallMs()).unref();
    return open;
  }

  /** It is over. To be called once. O(1). */
  ended({ place }: OpenAnswer): void {
    const last = this.#open.pop()!;
    if (place === this.#open.length) return;
    this.#open[place] = last;
    last.place = place;
  }

  readonly #look = (): void => {
    this.#timer = undefined;
    for (const open of [...this.#open]) {
      const waiting = open.answer.writableLength;
      if (open.waiting > 0 && waiting >= open.waiting) open.answer.destroy();
      else open.waiting = waiting;
    }
    if (this.#open.length > 0) this.#timer = setTimeout(this.#look, this.#stallMs()).unref();
  };
}
