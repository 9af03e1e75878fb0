/**
 * Work that a caller may interrupt between its steps; each yields how many characters or bytes it worked through.
 */
export type WorkSteps<Result> = Generator<number, Result, void>;

/** Works without a pause. */
export function toEnd<Result>(steps: WorkSteps<Result>): Result {
  for (;;) {
    const { done, value } = steps.next();
    if (done === true) return value;
  }
}
