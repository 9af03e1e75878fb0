/**
 * Milliseconds of one turn of the event loop in which requests are begun. A turn has its share of answers to pass on
 * besides, and a frame that comes 100 ms late is seen to stall.
 */
const TURN_MS = 10;

const NOBODY = { requests: 0, waitMs: 0 } as const;
/** What an earlier turn counts for in the pace, of a later one. */
const FADING = 0.9;

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
  /** While some wait: how many were begun in how many milliseconds, and when the last turn was. */
  readonly #pace = { begun: 0, ms: 0 };
  #lastTurnAt: number | undefined;

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

  /** Requests that wait, and for how many milliseconds the first has, or the last will have at the pace of late. */
  get queue(): { readonly requests: number; readonly waitMs: number } {
    const requests = this.#waiting.length;
    if (requests === 0) return NOBODY;
    const { begun, ms } = this.#pace;
    const lastMs = begun === 0 ? 0 : (requests * ms) / begun;
    return { requests, waitMs: Math.max(this.#now() - this.#waiting[0]!.since, lastMs) };
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
    const pace = this.#pace;
    const before = this.#waiting.length;
    if (before === 0) {
      pace.begun = 0;
      pace.ms = 0;
      this.#lastTurnAt = undefined;
      return;
    }
    const now = this.#now();
    while (this.#waiting.length > 0 && this.#hasTime(this.#now())) this.#waiting.shift()!.go();
    if (this.#lastTurnAt !== undefined) {
      pace.begun = pace.begun * FADING + before - this.#waiting.length;
      pace.ms = pace.ms * FADING + now - this.#lastTurnAt;
    }
    this.#lastTurnAt = now;
  };
}
