import { WarmpathError } from '@warmpath/core';
import type { ClientKey } from './authenticate.js';

const MINUTE_MS = 60_000;
/** Milliseconds after which a gateway that says nothing more of its requests under way counts as gone. */
const SILENT_MS = 3_000;
/** Other gateways whose requests under way are known of one key; the one with the oldest note goes first. */
const MAX_PEERS = 64;

/** What a key may do in a minute: full at the start, refilled evenly. A debt is allowed, and paid off first. */
class Bucket {
  #perMinute: number;
  #level: number;
  #at: number;

  constructor(perMinute: number, now: number) {
    this.#perMinute = perMinute;
    this.#level = perMinute;
    // What other gateways used within the last minute may be received later.
    this.#at = now - MINUTE_MS;
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
  /** As last configured. */
  key: ClientKey;
  requests: Bucket | undefined;
  tokens: Bucket | undefined;
  underWay: number;
  /** Requests under way in other gateways, by their names. */
  readonly others: Map<string, { readonly count: number; readonly at: number }>;
}

/** What a key did in one gateway since that last sent a note of it. */
export interface KeyUsage {
  readonly requests: number;
  readonly tokens: number;
  /** Requests that are under way now. */
  readonly underWay: number;
}

/**
 * The limits of keys: requests and tokens a minute, requests under way. A request enters while any token is left, and
 * is charged with what it used when its answer is over. Holds three numbers for each key that was used.
 *
 * Several gateways send each other what a key did (`takeUnpublished`, `heard`): then its limits hold for all of them
 * together, but for what they have not sent each other yet.
 */
export class RateLimits {
  readonly #now: () => number;
  /** By the names of keys, which stay where a key itself is replaced. */
  readonly #uses = new Map<string, KeyUse>();
  /** What other gateways are to hear of limited keys, by their names; `undefined` where there are none. */
  #unpublished: Map<string, { requests: number; tokens: number }> | undefined;
  #refreshedAt = Number.NEGATIVE_INFINITY;

  /** @param now The monotonic clock, in milliseconds. */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** There are other gateways to send notes to. */
  share(): void {
    this.#unpublished ??= new Map();
  }

  /** Lets a request of that key in, which `leave` ends; or says why not. O(1); O(gateways) with `maxConcurrent`. */
  enter(key: ClientKey): WarmpathError | undefined {
    const use = this.#useOf(key);
    const now = this.#now();
    const { maxConcurrent = Number.POSITIVE_INFINITY } = key;
    if (use.underWay + underWayElsewhere(use, now) >= maxConcurrent)
      return refusal(key, `${maxConcurrent} requests are under way`, 0);
    const tokensMs = use.tokens?.waitFor(1, now) ?? 0;
    if (tokensMs > 0) return refusal(key, `${key.tokensPerMinute} tokens a minute are used up`, tokensMs);
    const requestsMs = use.requests?.waitFor(1, now) ?? 0;
    if (requestsMs > 0) return refusal(key, `${key.requestsPerMinute} requests a minute are used up`, requestsMs);
    use.requests?.take(1, now);
    use.underWay++;
    this.#toTell(key, 1, 0);
    return undefined;
  }

  /** A request that entered is over. */
  leave(key: ClientKey): void {
    this.#useOf(key).underWay--;
    this.#toTell(key, 0, 0);
  }

  /** Other keys, or other limits of the same: what was used stays used. O(keys). */
  change(keys: readonly ClientKey[]): void {
    const now = this.#now();
    const byName = new Map(keys.map((key) => [key.name, key]));
    for (const [name, use] of this.#uses) {
      const key = byName.get(name);
      if (key !== undefined) {
        use.key = key;
        use.requests = changed(use.requests, key.requestsPerMinute, now);
        use.tokens = changed(use.tokens, key.tokensPerMinute, now);
      } else if (use.underWay === 0) this.#uses.delete(name);
    }
  }

  /** A request of that key used so many tokens. */
  charge(key: ClientKey, tokens: number): void {
    this.#useOf(key).tokens?.take(tokens, this.#now());
    this.#toTell(key, 0, tokens);
  }

  /**
   * What other gateways are to receive of so many keys, at most, by their names, which counts as sent: what limited
   * keys did since, and once a second what they have under way. O(keys in use) once a second, else O(most).
   */
  takeUnpublished(most: number): Map<string, KeyUsage> {
    const unpublished = this.#unpublished;
    const taken = new Map<string, KeyUsage>();
    if (unpublished === undefined) return taken;
    const now = this.#now();
    if (now - this.#refreshedAt >= SILENT_MS / 3) {
      this.#refreshedAt = now;
      for (const { key, underWay } of this.#uses.values()) if (underWay > 0) this.#toTell(key, 0, 0);
    }
    for (const [name, did] of unpublished) {
      if (taken.size === most) break;
      unpublished.delete(name);
      taken.set(name, { ...did, underWay: this.#uses.get(name)?.underWay ?? 0 });
    }
    return taken;
  }

  /** That could not be sent to the others: it is to be sent again. */
  giveBack(taken: ReadonlyMap<string, KeyUsage>): void {
    for (const [name, { requests, tokens }] of taken) {
      const key = this.#uses.get(name)?.key;
      if (key !== undefined) this.#toTell(key, requests, tokens);
    }
  }

  /**
   * Another gateway of that name has sent what the key did there. Of what came together while it could not be sent, no
   * more than a minute's worth counts.
   */
  heard(key: ClientKey, { requests, tokens, underWay }: KeyUsage, { from, ageMs }: { from: string; ageMs: number }) {
    const use = this.#useOf(key);
    const at = this.#now() - Math.min(ageMs, MINUTE_MS);
    if (requests > 0) use.requests?.take(Math.min(requests, key.requestsPerMinute!), at);
    if (tokens > 0) use.tokens?.take(Math.min(tokens, key.tokensPerMinute!), at);
    use.others.delete(from);
    if (underWay > 0) use.others.set(from, { count: underWay, at });
    if (use.others.size > MAX_PEERS) use.others.delete(use.others.keys().next().value!);
  }

  #toTell(key: ClientKey, requests: number, tokens: number): void {
    if (this.#unpublished === undefined || !isLimited(key)) return;
    const known = this.#unpublished.get(key.name);
    if (known === undefined) this.#unpublished.set(key.name, { requests, tokens });
    else {
      known.requests += requests;
      known.tokens += tokens;
    }
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

/** Whether there is anything that other gateways need to know of a key. */
export function isLimited({ requestsPerMinute, tokensPerMinute, maxConcurrent }: ClientKey): boolean {
  return requestsPerMinute !== undefined || tokensPerMinute !== undefined || maxConcurrent !== undefined;
}

function underWayElsewhere({ others }: KeyUse, now: number): number {
  let sum = 0;
  for (const { count, at } of others.values()) if (now - at < SILENT_MS) sum += count;
  return sum;
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
