import { WarmpathError } from '@warmpath/core';
import { refusalStatus } from './json-service.js';

/** Failures one after the other from which on an endpoint counts as down. */
const MAX_FAILURES = 3;
/** Milliseconds for which it is left alone then; doubled as often as it fails again, up to the longest. */
const FIRST_REST_MS = 5_000;
const LONGEST_REST_MS = 60_000;
/** Doublings that lead there. */
const MAX_RESTS = 4;
/** Statuses that are not about what a search sends: every other one gets the same. */
const OF_ENDPOINT = new Set([401, 403, 404, 429, 502, 503, 504]);

/**
 * Keeps searches from waiting for an endpoint that is down. Where it fails several times in a row, the next ones do not
 * wait for the same failure: for some seconds they hear of it at once, then one of them tries again.
 */
export class CircuitBreaker {
  readonly #now: () => number;
  /** One after the other. */
  #failures = 0;
  #rests = 0;
  #lastFailure: WarmpathError | undefined;
  /** When the endpoint may be asked again. */
  #restsUntil = 0;

  /** @param now The monotonic clock, in milliseconds. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** @throws what `ask` throws, now or the last time that it did; the signal's reason. */
  async run<T>(ask: () => Promise<T>, signal: AbortSignal): Promise<T> {
    const isTrial = this.#lastFailure !== undefined;
    if (isTrial && this.#now() < this.#restsUntil) throw this.#lastFailure!;
    // Whoever comes while this one tries does not try, too.
    if (isTrial) this.#restsUntil = this.#now() + LONGEST_REST_MS;
    try {
      const answer = await ask();
      this.#isWell();
      return answer;
    } catch (error) {
      if (signal.aborted) {
        // The next one tries.
        if (isTrial) this.#restsUntil = 0;
      } else if (!isOfEndpoint(error)) this.#isWell();
      else if (isTrial) this.#rest(error);
      // Those that were asked before it rested say nothing new.
      else if (this.#lastFailure === undefined && ++this.#failures === MAX_FAILURES) this.#rest(error);
      throw error;
    }
  }

  #isWell(): void {
    this.#failures = 0;
    this.#rests = 0;
    this.#lastFailure = undefined;
  }

  #rest(failure: WarmpathError): void {
    this.#failures = 0;
    this.#lastFailure = failure;
    this.#restsUntil = this.#now() + Math.min(LONGEST_REST_MS, FIRST_REST_MS * 2 ** this.#rests);
    this.#rests = Math.min(this.#rests + 1, MAX_RESTS);
  }
}

/** Whether the next search would fail, too: the endpoint is not there, late or broken, whatever it is asked. */
function isOfEndpoint(error: unknown): error is WarmpathError {
  if (!WarmpathError.isInstance(error)) return false;
  const status = refusalStatus(error);
  return status === undefined ? error.status >= 500 : OF_ENDPOINT.has(status);
}
