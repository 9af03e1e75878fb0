import { ABSENT, type HeapOrder, IndexedHeap, type RecencyLinks, RecencyList } from './intrusive-collections.js';

/** Tenant of clients without a key, if keys are not checked. */
export const ANONYMOUS_TENANT = 'anonymous';

const ANONYMOUS_PREFIX = `${ANONYMOUS_TENANT}:`;

/** Tenant of clients with this key, if keys are not checked. `digest` identifies the key. */
export function anonymousTenant(digest: string): string {
  return ANONYMOUS_PREFIX + digest;
}

/**
 * Whether a tenant was not authenticated. Clients can invent any number of these. Names of authenticated tenants must
 * not look like this.
 */
export function isAnonymousTenant(tenant: string): boolean {
  return tenant === ANONYMOUS_TENANT || tenant.startsWith(ANONYMOUS_PREFIX);
}

/** A holder of bytes: a tenant, or a user of a tenant. */
interface Holder {
  bytes: number;
  /** Number of its last use. */
  usedAt: number;
  /** Position in its heap. */
  place: number;
}

/** The entries of one user of a tenant. */
interface UserShare<Value> extends Holder {
  readonly name: string;
  readonly byUse: RecencyList<Entry<Value>>;
}

/** The entries of one tenant. Only anonymous tenants are in a recency list. */
interface TenantShare<Value> extends Holder, RecencyLinks<TenantShare<Value>> {
  readonly tenant: string;
  readonly entries: Map<string, Entry<Value>>;
  readonly users: Map<string, UserShare<Value>>;
  readonly largestUsers: IndexedHeap<UserShare<Value>>;
  readonly isAnonymous: boolean;
  /** Whether it is anonymous and has set only one value. */
  isNewcomer: boolean;
}

interface Entry<Value> extends RecencyLinks<Entry<Value>> {
  readonly share: TenantShare<Value>;
  readonly user: UserShare<Value>;
  readonly key: string;
  value: Value;
  bytes: number;
}

/** Estimated bytes of an entry beside its value and the characters of its key. */
const ENTRY_BYTES = 160;
/** Estimated bytes of a tenant, with its first user, and of each further user. */
const TENANT_BYTES = 1_024;
const USER_BYTES = 384;
/** An anonymous tenant with more than this part of a full cache loses its own entries first. */
const LARGEST_ANONYMOUS_PART = 1 / 8;
/** While newcomers have more than this part, they lose entries before other anonymous tenants. */
const NEWCOMERS_PART = 1 / 4;

/** The largest holder first; among equals, the one idle longest. */
const LARGEST_FIRST: HeapOrder<Holder> = {
  before: (one, other) => one.bytes > other.bytes || (one.bytes === other.bytes && one.usedAt < other.usedAt),
  placeOf: ({ place }) => place,
  setPlace: (holder, place) => {
    holder.place = place;
  },
};

/**
 * A bounded, fair map: values by tenant and key, within a budget of bytes for all tenants. A value may belong to a user
 * of the tenant.
 *
 * A full cache removes the least recently used entry of the largest user of the largest tenant. So no tenant loses its
 * fair share (the budget divided by tenants) to another one. Anonymous tenants lose first, because clients can invent
 * them. O(log tenants + log users) an operation.
 */
export class TenantCache<Value> {
  readonly #maxBytes: number;
  readonly #removed: (value: Value) => void;
  readonly #shares = new Map<string, TenantShare<Value>>();
  /** Authenticated tenants. */
  readonly #largest = new IndexedHeap<TenantShare<Value>>(LARGEST_FIRST);
  /** Anonymous tenants in order of use: newcomers, and returned ones. */
  readonly #newcomers = new RecencyList<TenantShare<Value>>();
  readonly #returned = new RecencyList<TenantShare<Value>>();
  #newcomerBytes = 0;
  #bytes = 0;
  #size = 0;
  #uses = 0;

  /** @param removed called with each value that leaves the cache */
  constructor(maxBytes: number, removed: (value: Value) => void = () => {}) {
    this.#maxBytes = maxBytes;
    this.#removed = removed;
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
    return this.#find(tenant, key)?.value;
  }

  /** The value. Counts as used. */
  get(tenant: string, key: string): Value | undefined {
    const entry = this.#find(tenant, key);
    if (entry !== undefined) this.#use(entry);
    return entry?.value;
  }

  /**
   * Sets a value of so many bytes. Counts as used.
   *
   * @param user whose value it is, the same each time
   * @returns false if it was not kept: a value larger than the whole budget is not
   */
  set(tenant: string, key: string, value: Value, valueBytes: number, user = ''): boolean {
    const bytes = entryBytes(key, valueBytes);
    const share = this.#shares.get(tenant);
    const known = share?.entries.get(key);
    if (bytes + TENANT_BYTES > this.#maxBytes) {
      if (known !== undefined) this.#remove(known);
      return false;
    }
    if (share?.isNewcomer) this.#markReturned(share);
    const entry = known ?? this.#add(share ?? this.#addTenant(tenant), key, value, user);
    entry.value = value;
    this.#grow(entry.share, entry.user, bytes - entry.bytes);
    entry.bytes = bytes;
    this.#use(entry);
    if (this.#bytes > this.#maxBytes) this.#shrink(entry);
    return entry.share.entries.get(key) === entry;
  }

  /** Changes the size of a value. */
  resize(tenant: string, key: string, valueBytes: number): void {
    const entry = this.#find(tenant, key);
    if (entry === undefined) return;
    const bytes = entryBytes(entry.key, valueBytes);
    if (bytes === entry.bytes) return;
    this.#grow(entry.share, entry.user, bytes - entry.bytes);
    entry.bytes = bytes;
    if (this.#bytes > this.#maxBytes) this.#shrink(entry);
  }

  /** Removes and returns a value. */
  take(tenant: string, key: string): Value | undefined {
    const entry = this.#find(tenant, key);
    if (entry !== undefined) this.#remove(entry);
    return entry?.value;
  }

  #find(tenant: string, key: string): Entry<Value> | undefined {
    return this.#shares.get(tenant)?.entries.get(key);
  }

  #add(share: TenantShare<Value>, key: string, value: Value, userName: string): Entry<Value> {
    const user = share.users.get(userName) ?? this.#addUser(share, userName);
    const entry: Entry<Value> = { share, user, key, value, bytes: 0, older: undefined, newer: undefined };
    share.entries.set(key, entry);
    user.byUse.add(entry);
    this.#size++;
    return entry;
  }

  #addTenant(tenant: string): TenantShare<Value> {
    const isAnonymous = isAnonymousTenant(tenant);
    const share: TenantShare<Value> = {
      tenant,
      entries: new Map(),
      users: new Map(),
      largestUsers: new IndexedHeap<UserShare<Value>>(LARGEST_FIRST),
      isAnonymous,
      isNewcomer: isAnonymous,
      bytes: 0,
      usedAt: 0,
      place: ABSENT,
      older: undefined,
      newer: undefined,
    };
    this.#shares.set(tenant, share);
    if (isAnonymous) this.#newcomers.add(share);
    else this.#largest.add(share);
    this.#grow(share, undefined, TENANT_BYTES - USER_BYTES);
    return share;
  }

  #addUser(share: TenantShare<Value>, name: string): UserShare<Value> {
    const user: UserShare<Value> = { name, byUse: new RecencyList(), bytes: 0, usedAt: 0, place: ABSENT };
    share.users.set(name, user);
    share.largestUsers.add(user);
    this.#grow(share, undefined, USER_BYTES);
    return user;
  }

  #markReturned(share: TenantShare<Value>): void {
    share.isNewcomer = false;
    this.#newcomerBytes -= share.bytes;
    this.#newcomers.remove(share);
    this.#returned.add(share);
  }

  #use(entry: Entry<Value>): void {
    const { share, user } = entry;
    user.byUse.use(entry);
    user.usedAt = ++this.#uses;
    share.usedAt = this.#uses;
    share.largestUsers.settle(user);
    if (share.isAnonymous) (share.isNewcomer ? this.#newcomers : this.#returned).use(share);
    else this.#largest.settle(share);
  }

  #remove(entry: Entry<Value>): void {
    const { share, user } = entry;
    share.entries.delete(entry.key);
    user.byUse.remove(entry);
    this.#size--;
    this.#grow(share, user, -entry.bytes);
    if (user.byUse.oldest === undefined) {
      share.users.delete(user.name);
      share.largestUsers.delete(user);
      this.#grow(share, undefined, -USER_BYTES);
    }
    if (share.entries.size === 0) this.#removeTenant(share);
    this.#removed(entry.value);
  }

  #removeTenant(share: TenantShare<Value>): void {
    this.#grow(share, undefined, USER_BYTES - TENANT_BYTES);
    this.#shares.delete(share.tenant);
    if (share.isAnonymous) (share.isNewcomer ? this.#newcomers : this.#returned).remove(share);
    else this.#largest.delete(share);
  }

  #grow(share: TenantShare<Value>, user: UserShare<Value> | undefined, bytes: number): void {
    if (user !== undefined) {
      user.bytes += bytes;
      share.largestUsers.settle(user);
    }
    share.bytes += bytes;
    this.#bytes += bytes;
    if (share.isNewcomer) this.#newcomerBytes += bytes;
    if (!share.isAnonymous) this.#largest.settle(share);
  }

  /** Makes room after an entry has grown. */
  #shrink(grown: Entry<Value>): void {
    while (this.#bytes > this.#maxBytes) this.#remove(this.#victim(this.#loser(grown.share), grown));
  }

  /** The tenant that loses an entry next. */
  #loser(grown: TenantShare<Value>): TenantShare<Value> {
    const holdsMuch = grown.entries.size > 0 && grown.bytes > LARGEST_ANONYMOUS_PART * this.#maxBytes;
    if (grown.isAnonymous && holdsMuch) return grown;
    const [newcomer, returned] = [this.#newcomers.oldest, this.#returned.oldest];
    const isCrowded = this.#newcomerBytes > NEWCOMERS_PART * this.#maxBytes;
    return (isCrowded ? (newcomer ?? returned) : (returned ?? newcomer)) ?? this.#largest.first!;
  }

  /** The least recently used entry of the largest user. Spares the entry that grew if another user has half as much. */
  #victim({ largestUsers }: TenantShare<Value>, grown: Entry<Value>): Entry<Value> {
    const largest = largestUsers.first!;
    const oldest = largest.byUse.oldest!;
    if (oldest !== grown) return oldest;
    largestUsers.delete(largest);
    const next = largestUsers.first;
    largestUsers.add(largest);
    return next !== undefined && 2 * next.bytes >= largest.bytes ? next.byUse.oldest! : oldest;
  }
}

/** Bytes that a cache counts for a value of so many bytes. */
export function entryBytes(key: string, valueBytes: number): number {
  return ENTRY_BYTES + 2 * key.length + valueBytes;
}
