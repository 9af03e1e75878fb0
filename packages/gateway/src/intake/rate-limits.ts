import { WarmpathError } from '@warmpath/core';
import type { ClientKey } from './authenticate.js';

const MINUTE_MS = 60_000;

/** What a key may do in a minute: full at the start, refilled evenly. A debt is allowed, and paid off first. */
class Bucket {
  #perMinute: number;
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

  /** Another limit: what was used counts against it. */
  change(perMinute: number, now: number): void {
    const level = this.#levelAt(now);
    this.#level = Math.max(Math.min(level, 0), perMinute - (this.#perMinute - level));
    this.#at = now;
    this.#perMinute = perMinute;
  }

  #levelAt(now: number): number {
    return Math.min(this.#perMinute, this.#level + ((now - this.#at) * this.#perMinute) / MINUTE_MS);
  }
}

interface KeyUse {
  requests: Bucket | undefined;
  tokens: Bucket | undefined;
  underWay: number;
}

/**
 * The limits of keys: requests and tokens a minute, requests under way. A request enters while any token is left, and
 * is charged with what it used when its answer is over. Holds three numbers for each key that was used.
 */
export class RateLimits {
  readonly #now: () => number;
  /** By the names of keys, which stay where a key itself is replaced. */
  readonly #uses = new Map<string, KeyUse>();

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

  /** Other keys, or other limits of the same: what was used stays used. O(keys). */
  change(keys: readonly ClientKey[]): void {
    const now = this.#now();
    const byName = new Map(keys.map((key) => [key.name, key]));
    for (const [name, use] of this.#uses) {
      const key = byName.get(name);
      if (key !== undefined) {
        use.requests = changed(use.requests, key.requestsPerMinute, now);
        use.tokens = changed(use.tokens, key.tokensPerMinute, now);
      } else if (use.underWay === 0) this.#uses.delete(name);
    }
  }

  /** A request of that key used so many tokens. */
  charge(key: ClientKey, tokens: number): void {
    this.#useOf(key).tokens?.take(tokens, this.#now());
  }

  #useOf(key: ClientKey): KeyUse {
    let use = this.#uses.get(key.name);
    if (use === undefined) {
      const now = this.#now();
      const [requests, tokens] = [key.requestsPerMinute, key.tokensPerMinute];
      use = { requests: changed(undefined, requests, now), tokens: changed(undefined, tokens, now), underWay: 0 };
      this.#uses.set(key.name, use);
    }
    return use;
  }
}

/** The bucket for a limit: the one there was, or a full one. */
function changed(bucket: Bucket | undefined, perMinute: number | undefined, now: number): Bucket | undefined {
  if (perMinute === undefined) return undefined;
  if (bucket === undefined) return new Bucket(perMinute, now);
  bucket.change(perMinute, now);
  return bucket;
}

function refusal({ name }: ClientKey, why: string, waitMs: number): WarmpathError {
  const detail = `Key ${JSON.stringify(name)}: ${why}.`;
  const retryAfterS = Math.max(1, Math.ceil(waitMs / 1_000));
  return new WarmpathError('WARMPATH_RATE_LIMITED', { detail, retryAfterS });
}
