/** Default bound on one search: a few milliseconds on the slowest tree. */
export const BEST_PATH_MAX_OPERATIONS = 65_536;

/** Operations that one look-up in a tree counts: it takes as long as so many steps of arithmetic. */
export const OPERATIONS_A_LOOK_UP = 8;

/** Counts the operations of one decision, so that its time is bounded on any input. */
export interface OperationBudget {
  readonly taken: number;
  readonly left: number;
  /** Whether more operations were requested than were left. From then on, none are granted. */
  readonly isExceeded: boolean;
  /** Whether this budget, or one shared from it, is exceeded. */
  readonly isCutShort: boolean;
  /** Takes operations. Returns false if fewer are left. */
  take(operations: number): boolean;
  /** Runs `work` with a budget of its own: this part of what is left. */
  share<Result>(part: number, work: (share: OperationBudget) => Result): Result;
}

/** A budget of a number of operations. */
export class CountedBudget implements OperationBudget {
  readonly #limit: number;
  #taken = 0;
  #isExceeded = false;
  #isCutShort = false;

  constructor(operations: number) {
    this.#limit = Math.floor(operations);
  }

  get taken(): number {
    return this.#taken;
  }

  get left(): number {
    return this.#limit - this.#taken;
  }

  get isExceeded(): boolean {
    return this.#isExceeded;
  }

  get isCutShort(): boolean {
    return this.#isExceeded || this.#isCutShort;
  }

  take(operations: number): boolean {
    if (operations > this.left) this.#isExceeded = true;
    if (this.#isExceeded) return false;
    this.#taken += operations;
    return true;
  }

  share<Result>(part: number, work: (share: OperationBudget) => Result): Result {
    const share = new CountedBudget(part * this.left);
    const result = work(share);
    this.#taken += share.taken;
    this.#isCutShort ||= share.isCutShort;
    return result;
  }
}
