import { hash } from 'node:crypto';
import { isAnonymousTenant, type RecencyLinks, RecencyList } from '@warmpath/core/internal';

/** The entries of one tenant. Only anonymous tenants are in a recency list. */
interface Share<Value> extends RecencyLinks<Share<Value>> {
  readonly tenant: string;
  readonly entries: Map<string, Entry<Value>>;
  readonly byUse: RecencyList<Entry<Value>>;
  readonly isAnonymous: boolean;
  bytes: number;
  /** The number of its last use. */
  usedAt: number;
  /** Its position in the heap, if it is authenticated. */
  place: number;
}

interface Entry<Value> extends RecencyLinks<Entry<Value>> {
  readonly share: Share<Value>;
  readonly key: string;
  readonly value: Value;
  bytes: number;
}

/** Longer keys are replaced by their digest, because clients choose keys of any length. In characters. */
const LONG_KEY = 128;
/** Estimated bytes of an entry beside its value and the characters of its key. */
const ENTRY_BYTES = 160;
/** Estimated bytes of a tenant beside its entries. */
const SHARE_BYTES = 512;
/** An anonymous tenant with more than this part of a full cache loses its own entries first. */
const LARGEST_ANONYMOUS_PART = 1 / 8;

/**
 * The bounded map of the gateway: values by tenant and key, within a budget of bytes for all tenants. Used by
 * everything that clients can make the gateway keep.
 *
 * A full cache removes the least recently used entry of the tenant that holds most; among equals, of the tenant idle
 * longest. So no tenant loses its fair share (the budget divided by tenants) to another one. Anonymous tenants
 * (`isAnonymousTenant`) lose first, the one idle longest before the others, because clients can invent them.
 *
 * O(log tenants) an operation.
 */
export class TenantCache<Value> {
  readonly #maxBytes: number;
  readonly #shares = new Map<string, Share<Value>>();
  /** Authenticated tenants, as a binary heap: the share that loses next is the first. */
  readonly #heap: Share<Value>[] = [];
  /** Anonymous tenants in order of use. */
  readonly #anonymous = new RecencyList<Share<Value>>();
  #bytes = 0;
  #size = 0;
  #uses = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Bytes of all entries, with keys and overhead. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Number of entries. */
  get size(): number {
    return this.#size;
  }

  /** All values, tenant by tenant. */
  *values(): Generator<Value> {
    for (const { entries } of this.#shares.values()) for (const { value } of entries.values()) yield value;
  }

  /** The value, without counting it as used. */
  peek(tenant: string, key: string): Value | undefined {
    return this.#find(tenant, keptKey(key))?.value;
  }

  /** The value. Counts as used. */
  get(tenant: string, key: string): Value | undefined {
    const entry = this.#find(tenant, keptKey(key));
    if (entry === undefined) return undefined;
    entry.share.byUse.use(entry);
    this.#use(entry.share);
    return entry.value;
  }

  /** Sets a value of so many bytes. Counts as used. @returns false for a value that is larger than the whole budget */
  set(tenant: string, key: string, value: Value, valueBytes: number): boolean {
    const kept = keptKey(key);
    const before = this.#find(tenant, kept);
    if (before !== undefined) this.#remove(before);
    const bytes = entryBytes(kept, valueBytes);
    if (bytes + SHARE_BYTES > this.#maxBytes) return false;
    const share = this.#shares.get(tenant) ?? this.#open(tenant);
    const entry: Entry<Value> = { share, key: kept, value, bytes, older: undefined, newer: undefined };
    share.entries.set(kept, entry);
    share.byUse.add(entry);
    this.#size++;
    this.#grow(share, bytes);
    this.#use(share);
    this.#shrink(share);
    return share.entries.has(kept);
  }

  /** Changes the size of a value. */
  resize(tenant: string, key: string, valueBytes: number): void {
    const kept = keptKey(key);
    const entry = this.#find(tenant, kept);
    if (entry === undefined) return;
    const bytes = entryBytes(kept, valueBytes);
    const growth = bytes - entry.bytes;
    if (growth === 0) return;
    entry.bytes = bytes;
    this.#grow(entry.share, growth);
    this.#shrink(entry.share);
  }

  /** Removes and returns a value. */
  take(tenant: string, key: string): Value | undefined {
    const entry = this.#find(tenant, keptKey(key));
    if (entry !== undefined) this.#remove(entry);
    return entry?.value;
  }

  #find(tenant: string, kept: string): Entry<Value> | undefined {
    return this.#shares.get(tenant)?.entries.get(kept);
  }

  #remove(entry: Entry<Value>): void {
    const { share } = entry;
    share.entries.delete(entry.key);
    share.byUse.remove(entry);
    this.#size--;
    this.#grow(share, -entry.bytes);
    if (share.entries.size === 0) this.#close(share);
  }

  /** Makes room after this share has grown. */
  #shrink(grown: Share<Value>): void {
    while (this.#bytes > this.#maxBytes) this.#remove(this.#loser(grown).byUse.oldest!);
  }

  #loser(grown: Share<Value>): Share<Value> {
    const holdsMuch = grown.entries.size > 0 && grown.bytes > LARGEST_ANONYMOUS_PART * this.#maxBytes;
    if (grown.isAnonymous && holdsMuch) return grown;
    return this.#anonymous.oldest ?? this.#heap[0]!;
  }

  #open(tenant: string): Share<Value> {
    const share: Share<Value> = {
      tenant,
      entries: new Map(),
      byUse: new RecencyList(),
      isAnonymous: isAnonymousTenant(tenant),
      bytes: 0,
      usedAt: 0,
      place: this.#heap.length,
      older: undefined,
      newer: undefined,
    };
    this.#shares.set(tenant, share);
    if (share.isAnonymous) this.#anonymous.add(share);
    else this.#heap.push(share);
    this.#grow(share, SHARE_BYTES);
    return share;
  }

  #close(share: Share<Value>): void {
    this.#shares.delete(share.tenant);
    this.#bytes -= share.bytes;
    if (share.isAnonymous) {
      this.#anonymous.remove(share);
      return;
    }
    const last = this.#heap.pop()!;
    if (last === share) return;
    last.place = share.place;
    this.#heap[last.place] = last;
    this.#settle(last);
  }

  #use(share: Share<Value>): void {
    share.usedAt = ++this.#uses;
    if (share.isAnonymous) this.#anonymous.use(share);
    else this.#settle(share);
  }

  #grow(share: Share<Value>, bytes: number): void {
    share.bytes += bytes;
    this.#bytes += bytes;
    if (!share.isAnonymous) this.#settle(share);
  }

  /** Moves a share to its position in the heap. O(log tenants). */
  #settle(share: Share<Value>): void {
    const heap = this.#heap;
    let { place } = share;
    for (;;) {
      const above = (place - 1) >> 1;
      if (place === 0 || !losesBefore(share, heap[above]!)) break;
      this.#put(heap[above]!, place);
      place = above;
    }
    for (;;) {
      const left = 2 * place + 1;
      if (left >= heap.length) break;
      const right = left + 1;
      const below = right < heap.length && losesBefore(heap[right]!, heap[left]!) ? right : left;
      if (!losesBefore(heap[below]!, share)) break;
      this.#put(heap[below]!, place);
      place = below;
    }
    this.#put(share, place);
  }

  #put(share: Share<Value>, place: number): void {
    this.#heap[place] = share;
    share.place = place;
  }
}

function losesBefore(one: Share<unknown>, other: Share<unknown>): boolean {
  return one.bytes > other.bytes || (one.bytes === other.bytes && one.usedAt < other.usedAt);
}

function entryBytes(kept: string, valueBytes: number): number {
  return ENTRY_BYTES + 2 * kept.length + valueBytes;
}

function keptKey(key: string): string {
  return key.length > LONG_KEY ? hash('sha256', key) : key;
}
