/**
 * Milliseconds of one turn of the event loop in which requests are begun. A turn has its share of answers to pass on
 * besides, and a frame that comes 100 ms late is seen to stall.
 */
const TURN_MS = 10;

interface WaitingRequest {
  readonly go: () => void;
  readonly since: number;
}

/**
 * Spreads requests that come all at once over turns of the event loop, in the order in which they came, so that answers
 * under way go on between them: 512 prompts with documents take a quarter of a second of work. Without a burst, a
 * request goes on at once. Bounded by the bodies that are held. O(1).
 */
export class RequestTurns {
  readonly #now: () => number;
  readonly #waiting: WaitingRequest[] = [];
  /** When the first request of this turn was begun; `undefined` before there is one. */
  #beganAt: number | undefined;

  /** @param now the monotonic clock, in milliseconds */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** Begins with a request: now, or in one of the next turns. */
  run(go: () => void): void {
    const now = this.#now();
    if (this.#waiting.length === 0 && this.#hasTime(now)) go();
    else this.#waiting.push({ go, since: now });
  }

  /** Requests that wait, and for how many milliseconds the first of them has. */
  get queue(): { readonly requests: number; readonly waitMs: number } {
    const first = this.#waiting[0];
    return { requests: this.#waiting.length, waitMs: first === undefined ? 0 : this.#now() - first.since };
  }

  #hasTime(now: number): boolean {
    if (this.#beganAt === undefined) {
      this.#beganAt = now;
      setImmediate(this.#nextTurn);
    }
    return now - this.#beganAt < TURN_MS;
  }

  readonly #nextTurn = (): void => {
    this.#beganAt = undefined;
    while (this.#waiting.length > 0 && this.#hasTime(this.#now())) this.#waiting.shift()!.go();
  };
}
