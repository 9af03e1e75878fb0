import { OpenTable } from '../observe/open-table.js';

/** As much of an answer as says how its client takes it. */
export interface WrittenAnswer {
  /** Bytes that were written and that the client's connection has not taken. */
  readonly writableLength: number;
  destroy(): unknown;
}

/** An answer that may be written. */
interface OpenAnswer {
  readonly answer: WrittenAnswer;
  /** Bytes that waited at the last look. */
  waiting: number;
}

/**
 * Ends answers of which a client takes nothing any more: they would hold a place in the engine, and memory, for as long
 * as it likes. One look at all of them in turn; an answer of which as much waits as at the look before is ended. An
 * answer on which nothing waits, because the engine is not that far, is none of these.
 */
export class StalledReaders {
  readonly #stallMs: () => number;
  readonly #stalled: () => void;
  readonly #open = new OpenTable<OpenAnswer>();
  #timer: NodeJS.Timeout | undefined;

  /**
   * @param stallMs Milliseconds between two looks.
   * @param stalled An answer is ended.
   */
  constructor(stallMs: () => number, stalled: () => void) {
    this.#stallMs = stallMs;
    this.#stalled = stalled;
  }

  /** An answer may be written, until `ended` gets the number that this returns. O(1). */
  began(answer: WrittenAnswer): number {
    const number = this.#open.add({ answer, waiting: 0 });
    // One timer for all, and none while there is nothing to look at.
    this.#timer ??= setTimeout(this.#look, this.#stallMs()).unref();
    return number;
  }

  /** It is over. O(1). */
  ended(number: number): void {
    this.#open.delete(number);
  }

  readonly #look = (): void => {
    this.#timer = undefined;
    for (const open of this.#open.values()) {
      const waiting = open.answer.writableLength;
      if (open.waiting > 0 && waiting >= open.waiting) {
        open.answer.destroy();
        this.#stalled();
      } else open.waiting = waiting;
    }
    if (this.#open.size > 0) this.#timer = setTimeout(this.#look, this.#stallMs()).unref();
  };
}
