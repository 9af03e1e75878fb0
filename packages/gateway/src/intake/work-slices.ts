import { WarmpathError, type WorkSteps } from '@warmpath/core';

/** What is worked through of bodies before everything else gets its turn: characters or bytes, some 3 ms of work. */
export const SLICE_SIZE = 262_144;

/** Work that was interrupted. */
interface Interrupted {
  /** Works on; false once it is done or failed. */
  next(): boolean;
}

/**
 * Works through large bodies in slices, so that none holds the event loop for long: between two slices, everything else
 * that is ready gets its turn, and of several large bodies each has one slice after the other. What takes one slice
 * only is done at once. Bounded by the requests under way.
 */
export class WorkSlices {
  readonly #interrupted: Interrupted[] = [];

  /**
   * The result of all steps: at once where they take one slice, else a promise of it. `isUnwanted`: asked before each
   * further slice.
   *
   * @throws WarmpathError `WARMPATH_CLIENT_CLOSED` for what is not wanted any more, and what a step throws.
   */
  run<Result>(steps: WorkSteps<Result>, isUnwanted: () => boolean): Result | Promise<Result> {
    const first = workSlice(steps);
    if (first.done === true) return first.value;
    return new Promise((resolve, reject) => {
      const next = (): boolean => {
        try {
          if (isUnwanted()) throw new WarmpathError('WARMPATH_CLIENT_CLOSED');
          const { done, value } = workSlice(steps);
          if (done !== true) return true;
          resolve(value);
        } catch (error) {
          reject(error);
        }
        return false;
      };
      if (this.#interrupted.push({ next }) === 1) setImmediate(this.#workOn);
    });
  }

  readonly #workOn = (): void => {
    const first = this.#interrupted.shift()!;
    if (first.next()) this.#interrupted.push(first);
    if (this.#interrupted.length > 0) setImmediate(this.#workOn);
  };
}

function workSlice<Result>(steps: WorkSteps<Result>): IteratorResult<number, Result> {
  let size = 0;
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step;
    size += step.value;
    if (size >= SLICE_SIZE) return step;
  }
}

/** Goes on with a value that is there, or comes. */
export function whenReady<Value, Result>(
  value: Value | Promise<Value>,
  goOn: (value: Value) => Result | Promise<Result>,
): Result | Promise<Result> {
  return value instanceof Promise ? value.then(goOn) : goOn(value);
}
