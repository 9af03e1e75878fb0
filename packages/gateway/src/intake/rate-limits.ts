import { WarmpathError } from '@warmpath/core';
import type { ClientKey } from './authenticate.js';

const MINUTE_MS = 60_000;
/** Milliseconds for which another gateway's count of requests under way holds. */
const PEER_COUNT_TTL_MS = 3_000;
const PEER_COUNT_INTERVAL_MS = PEER_COUNT_TTL_MS / 3;
/** Other gateways whose counts are kept for one key; the oldest count is dropped first. */
const MAX_PEERS = 64;

/** A token bucket: full at the start, refilled evenly over a minute. It may go below zero. */
class Bucket {
  #perMinute: number;
  #level: number;
  #at: number;

  constructor(perMinute: number, now: number) {
    this.#perMinute = perMinute;
    this.#level = perMinute;
    // Another gateway's use within the last minute may be received later.
    this.#at = now - MINUTE_MS;
  }

  take(amount: number, now: number): void {
    this.#level = this.#levelAt(now) - amount;
    this.#at = now;
  }

  /** Milliseconds until it holds `amount`. */
  waitFor(amount: number, now: number): number {
    return Math.max(0, ((amount - this.#levelAt(now)) * MINUTE_MS) / this.#perMinute);
  }

  /** Sets another limit; earlier use counts against it. */
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
  /** As last configured. */
  key: ClientKey;
  requests: Bucket | undefined;
  tokens: Bucket | undefined;
  underWay: number;
  /** Requests under way in other gateways, by gateway. */
  readonly others: Map<string, { readonly count: number; readonly at: number }>;
}

/** Use of a key in one gateway since its last note to the others. */
export interface KeyUsage {
  readonly requests: number;
  readonly tokens: number;
  /** Requests that are under way now. */
  readonly underWay: number;
}

/**
 * The limits of keys: requests a minute, tokens a minute, requests under way. A request may enter while one token is
 * left; its tokens are charged when its answer is over. Gateways with a shared store exchange their use of each key
 * (`takeUnpublished`, `received`), so that its limits hold for all of them together.
 */
export class RateLimits {
  readonly #now: () => number;
  /** By key name, which stays when the key itself is replaced. */
  readonly #uses = new Map<string, KeyUse>();
  /** Use of limited keys that other gateways have not received, by key name. */
  readonly #unpublished = new Map<string, { readonly requests: number; readonly tokens: number }>();
  #countsPublishedAt = Number.NEGATIVE_INFINITY;

  /** @param now The monotonic clock, in milliseconds. */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** Admits a request until `leave`, or returns the reason to refuse it. O(1); O(gateways) with `maxConcurrent`. */
  enter(key: ClientKey): WarmpathError | undefined {
    const use = this.#useOf(key);
    const now = this.#now();
    const { maxConcurrent = Number.POSITIVE_INFINITY } = key;
    if (use.underWay + underWayElsewhere(use, now) >= maxConcurrent) return refusal(key, 'maxConcurrent', 0);
    const tokensMs = use.tokens?.waitFor(1, now) ?? 0;
    if (tokensMs > 0) return refusal(key, 'tokensPerMinute', tokensMs);
    const requestsMs = use.requests?.waitFor(1, now) ?? 0;
    if (requestsMs > 0) return refusal(key, 'requestsPerMinute', requestsMs);
    use.requests?.take(1, now);
    use.underWay++;
    this.#publishLater(key, 1, 0);
    return undefined;
  }

  /** Ends a request that entered. */
  leave(key: ClientKey): void {
    this.#useOf(key).underWay--;
    this.#publishLater(key, 0, 0);
  }

  /** Replaces the keys or their limits; earlier use counts. O(keys). */
  change(keys: readonly ClientKey[]): void {
    const now = this.#now();
    const byName = new Map(keys.map((key) => [key.name, key]));
    for (const [name, use] of this.#uses) {
      const key = byName.get(name);
      if (key !== undefined) {
        use.key = key;
        use.requests = changed(use.requests, key.requestsPerMinute, now);
        use.tokens = changed(use.tokens, key.tokensPerMinute, now);
      } else if (use.underWay === 0) {
        this.#uses.delete(name);
        this.#unpublished.delete(name);
      }
    }
  }

  /** Charges the tokens of a request. */
  charge(key: ClientKey, tokens: number): void {
    this.#useOf(key).tokens?.take(tokens, this.#now());
    this.#publishLater(key, 0, tokens);
  }

  /**
   * Removes and returns the unpublished use of at most `maxKeys` keys, by key name; once a second also of keys with
   * requests under way. O(keys in use) once a second, else O(maxKeys).
   */
  takeUnpublished(maxKeys: number): Map<string, KeyUsage> {
    const now = this.#now();
    if (now - this.#countsPublishedAt >= PEER_COUNT_INTERVAL_MS) {
      this.#countsPublishedAt = now;
      for (const { key, underWay } of this.#uses.values()) if (underWay > 0) this.#publishLater(key, 0, 0);
    }
    const taken = new Map<string, KeyUsage>();
    for (const [name, use] of this.#unpublished) {
      if (taken.size === maxKeys) break;
      this.#unpublished.delete(name);
      taken.set(name, { ...use, underWay: this.#uses.get(name)?.underWay ?? 0 });
    }
    return taken;
  }

  /** Returns use that could not be sent. */
  giveBack(taken: ReadonlyMap<string, KeyUsage>): void {
    for (const [name, { requests, tokens }] of taken) {
      const key = this.#uses.get(name)?.key;
      if (key !== undefined) this.#publishLater(key, requests, tokens);
    }
  }

  /** Counts the use of a key in another gateway: at most one minute's worth, because the note may be late. */
  received(key: ClientKey, { requests, tokens, underWay }: KeyUsage, { from, ageMs }: { from: string; ageMs: number }) {
    const use = this.#useOf(key);
    const at = this.#now() - Math.min(ageMs, MINUTE_MS);
    if (requests > 0) use.requests?.take(Math.min(requests, key.requestsPerMinute!), at);
    if (tokens > 0) use.tokens?.take(Math.min(tokens, key.tokensPerMinute!), at);
    use.others.delete(from);
    if (underWay > 0) use.others.set(from, { count: underWay, at });
    if (use.others.size > MAX_PEERS) use.others.delete(use.others.keys().next().value!);
  }

  #publishLater(key: ClientKey, requests: number, tokens: number): void {
    if (!isLimited(key)) return;
    const { requests: earlierRequests, tokens: earlierTokens } = this.#unpublished.get(key.name) ?? NO_USE;
    this.#unpublished.set(key.name, { requests: earlierRequests + requests, tokens: earlierTokens + tokens });
  }

  #useOf(key: ClientKey): KeyUse {
    let use = this.#uses.get(key.name);
    if (use === undefined) {
      const now = this.#now();
      use = {
        key,
        requests: changed(undefined, key.requestsPerMinute, now),
        tokens: changed(undefined, key.tokensPerMinute, now),
        underWay: 0,
        others: new Map(),
      };
      this.#uses.set(key.name, use);
    }
    return use;
  }
}

const NO_USE = { requests: 0, tokens: 0 };

/** Whether a key has a limit. */
export function isLimited({ requestsPerMinute, tokensPerMinute, maxConcurrent }: ClientKey): boolean {
  return requestsPerMinute !== undefined || tokensPerMinute !== undefined || maxConcurrent !== undefined;
}

function underWayElsewhere({ others }: KeyUse, now: number): number {
  let sum = 0;
  for (const { count, at } of others.values()) if (now - at < PEER_COUNT_TTL_MS) sum += count;
  return sum;
}

/** The bucket with another limit; a full one if there was none. */
function changed(bucket: Bucket | undefined, perMinute: number | undefined, now: number): Bucket | undefined {
  if (perMinute === undefined) return undefined;
  if (bucket === undefined) return new Bucket(perMinute, now);
  bucket.change(perMinute, now);
  return bucket;
}

function refusal(
  key: ClientKey,
  limit: 'maxConcurrent' | 'requestsPerMinute' | 'tokensPerMinute',
  waitMs: number,
): WarmpathError {
  const detail = `Key ${JSON.stringify(key.name)} has reached its limit (\`${limit}\`: ${key[limit]}).`;
  const retryAfterS = Math.max(1, Math.ceil(waitMs / 1_000));
  return new WarmpathError('WARMPATH_RATE_LIMITED', { detail, retryAfterS });
}
