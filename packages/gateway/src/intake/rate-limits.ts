import { WarmpathError } from '@warmpath/core';
import type { ClientKey } from './authenticate.js';

const MINUTE_MS = 60_000;

/** What a key may do in a minute: full at the start, refilled evenly. A debt is allowed, and paid off first. */
class Bucket {
  readonly #perMinute: number;
  #level: number;
  #at: number;

  constructor(perMinute: number, now: number) {
    this.#perMinute = perMinute;
    this.#level = perMinute;
    this.#at = now;
  }

  take(amount: number, now: number): void {
    this.#level = this.#levelAt(now) - amount;
    this.#at = now;
  }

  /** Milliseconds until `amount` is there; 0 if it is. */
  waitFor(amount: number, now: number): number {
    return Math.max(0, ((amount - this.#levelAt(now)) * MINUTE_MS) / this.#perMinute);
  }

  #levelAt(now: number): number {
    return Math.min(this.#perMinute, this.#level + ((now - this.#at) * this.#perMinute) / MINUTE_MS);
  }
}

interface KeyUse {
  readonly requests: Bucket | undefined;
  readonly tokens: Bucket | undefined;
  underWay: number;
}

/**
 * The limits of keys: requests and tokens a minute, requests under way. A request enters while any token is left, and
 * is charged with what it used when its answer is over. Holds three numbers for each key that was used.
 */
export class RateLimits {
  readonly #now: () => number;
  readonly #uses = new Map<ClientKey, KeyUse>();

  /** @param now The monotonic clock, in milliseconds. */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** Lets a request of that key in, which `leave` ends; or says why not. O(1). */
  enter(key: ClientKey): WarmpathError | undefined {
    const use = this.#useOf(key);
    const now = this.#now();
    const { maxConcurrent = Number.POSITIVE_INFINITY } = key;
    if (use.underWay >= maxConcurrent) return refusal(key, `${maxConcurrent} requests are under way`, 0);
    const tokensMs = use.tokens?.waitFor(1, now) ?? 0;
    if (tokensMs > 0) return refusal(key, `${key.tokensPerMinute} tokens a minute are used up`, tokensMs);
    const requestsMs = use.requests?.waitFor(1, now) ?? 0;
    if (requestsMs > 0) return refusal(key, `${key.requestsPerMinute} requests a minute are used up`, requestsMs);
    use.requests?.take(1, now);
    use.underWay++;
    return undefined;
  }

  /** A request that entered is over. */
  leave(key: ClientKey): void {
    this.#useOf(key).underWay--;
  }

  /** A request of that key used so many tokens. */
  charge(key: ClientKey, tokens: number): void {
    this.#useOf(key).tokens?.take(tokens, this.#now());
  }

  #useOf(key: ClientKey): KeyUse {
    let use = this.#uses.get(key);
    if (use === undefined) {
      const now = this.#now();
      const bucket = (perMinute: number | undefined) =>
        perMinute === undefined ? undefined : new Bucket(perMinute, now);
      use = {
        requests: bucket(key.requestsPerMinute),
        tokens: bucket(key.tokensPerMinute),
        underWay: 0,
      };
      this.#uses.set(key, use);
    }
    return use;
  }
}

function refusal({ name }: ClientKey, why: string, waitMs: number): WarmpathError {
  const detail = `Key ${JSON.stringify(name)}: ${why}.`;
  const retryAfterS = Math.max(1, Math.ceil(waitMs / 1_000));
  return new WarmpathError('WARMPATH_RATE_LIMITED', { detail, retryAfterS });
}
