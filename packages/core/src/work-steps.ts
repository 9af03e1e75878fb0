/** Work in steps. The caller may pause between steps; each step yields the characters or bytes that it processed. */
export type WorkSteps<Result> = Generator<number, Result, void>;

/** Runs all steps. */
export function toEnd<Result>(steps: WorkSteps<Result>): Result {
  for (;;) {
    const { done, value } = steps.next();
    if (done === true) return value;
  }
}
