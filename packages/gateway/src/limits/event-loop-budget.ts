import { WarmpathError } from '@warmpath/core';
import type { WorkSteps } from '@warmpath/core/internal';

/** Milliseconds of work on requests in one turn of the event loop. Answers under way need the rest. */
const TURN_MS = 10;

/** Characters or bytes of a body that are worked through between two looks at the clock: about 3 ms. */
export const UNINTERRUPTED_SIZE = 262_144;

interface WaitingWork {
  readonly since: number;
  begin(): void;
}

/**
 * Spreads the work on requests over turns of the event loop, first come, first served. Answers under way, probes and
 * timers get their turn in between. Bounded by the memory for bodies.
 */
export class EventLoopBudget {
  readonly #now: () => number;
  readonly #waiting: WaitingWork[] = [];
  /** When the budget of this turn is used up; `undefined` before the first work of a turn. */
  #turnEndsAt: number | undefined;
  #isShortened = false;

  /** @param now the monotonic clock, in milliseconds */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** Milliseconds that the oldest waiting work has waited. */
  get waitMs(): number {
    return this.#waiting.length === 0 ? 0 : this.#now() - this.#waiting[0]!.since;
  }

  /**
   * Ends the next turn after one piece of waiting work. Node.js accepts one connection in each turn: short turns accept
   * waiting connections, and so answer probes, sooner.
   */
  shortenTurn(): void {
    this.#isShortened = true;
  }

  /** Begins work at once, or in a later turn if this turn's budget is used up. */
  run(begin: () => void): void {
    this.#beginTurn();
    if (this.#waiting.length === 0 && !this.#isUsedUp()) begin();
    else this.#wait(begin);
  }

  /** Repeats a step until it returns false, over as many turns as needed. */
  repeat(step: () => boolean): void {
    const begin = (): void => {
      do if (!step()) return;
      while (!this.#isUsedUp());
      this.#wait(begin);
    };
    this.run(begin);
  }

  /**
   * Works through steps. Work below `UNINTERRUPTED_SIZE` is done at once; larger work gives way to other work when the
   * turn's budget is used up.
   *
   * @param isUnwanted asked before interrupted work goes on
   * @throws WarmpathError `WARMPATH_CLIENT_CLOSED` for unwanted work, and what a step throws.
   */
  runSteps<Result>(steps: WorkSteps<Result>, isUnwanted: () => boolean): Result | Promise<Result> {
    const first = this.#workOn(steps);
    if (first.done === true) return first.value;
    return new Promise((resolve, reject) => {
      const goOn = (): void => {
        try {
          if (isUnwanted()) throw new WarmpathError('WARMPATH_CLIENT_CLOSED');
          const { done, value } = this.#workOn(steps);
          if (done === true) resolve(value);
          else this.#wait(goOn);
        } catch (error) {
          reject(error);
        }
      };
      this.#wait(goOn);
    });
  }

  #workOn<Result>(steps: WorkSteps<Result>): IteratorResult<number, Result> {
    this.#beginTurn();
    for (let size = 0; ; ) {
      const step = steps.next();
      if (step.done === true) return step;
      size += step.value;
      if (size < UNINTERRUPTED_SIZE) continue;
      if (this.#isUsedUp()) return step;
      size = 0;
    }
  }

  #wait(begin: () => void): void {
    this.#waiting.push({ since: this.#now(), begin });
  }

  #isUsedUp(): boolean {
    return this.#now() >= this.#turnEndsAt!;
  }

  #beginTurn(ms = TURN_MS): void {
    if (this.#turnEndsAt !== undefined) return;
    this.#turnEndsAt = this.#now() + ms;
    setImmediate(this.#nextTurn);
  }

  readonly #nextTurn = (): void => {
    this.#turnEndsAt = undefined;
    const ms = this.#isShortened ? 0 : TURN_MS;
    this.#isShortened = false;
    if (this.#waiting.length === 0) return;
    this.#beginTurn(ms);
    do this.#waiting.shift()!.begin();
    while (this.#waiting.length > 0 && !this.#isUsedUp());
  };
}

/** Goes on with a value that is there, or comes. */
export function whenReady<Value, Result>(
  value: Value | Promise<Value>,
  goOn: (value: Value) => Result | Promise<Result>,
): Result | Promise<Result> {
  return value instanceof Promise ? value.then(goOn) : goOn(value);
}
