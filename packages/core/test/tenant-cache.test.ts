import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { TenantCache } from '../src/tenant-cache.js';

interface Held {
  readonly tenant: string;
  readonly key: string;
  readonly value: number;
  bytes: number;
  usedAt: number;
}

/** Bytes that the cache counts beside a value's own, for keys of one character. */
const ENTRY = 162;
const SHARE = 1_024;

/** The same rule, by looking at everything each time. */
class NaiveCache {
  readonly maxBytes: number;
  readonly usedAt = new Map<string, number>();
  /** Anonymous tenants that set a value while they held one. */
  readonly returned = new Set<string>();
  held: Held[] = [];
  uses = 0;

  constructor(maxBytes: number) {
    this.maxBytes = maxBytes;
  }

  bytesOf(tenant: string): number {
    const own = this.held.filter((entry) => entry.tenant === tenant);
    return own.length === 0 ? 0 : own.reduce((sum, { bytes }) => sum + ENTRY + bytes, SHARE);
  }

  get tenants(): string[] {
    return [...new Set(this.held.map(({ tenant }) => tenant))];
  }

  get bytes(): number {
    return this.tenants.reduce((sum, tenant) => sum + this.bytesOf(tenant), 0);
  }

  find(tenant: string, key: string): Held | undefined {
    return this.held.find((entry) => entry.tenant === tenant && entry.key === key);
  }

  get(tenant: string, key: string): number | undefined {
    const entry = this.find(tenant, key);
    if (entry !== undefined) this.use(entry);
    return entry?.value;
  }

  set(tenant: string, key: string, value: number, bytes: number): void {
    if (ENTRY + SHARE + bytes > this.maxBytes) {
      this.take(tenant, key);
      return;
    }
    if (this.tenants.includes(tenant)) this.returned.add(tenant);
    else this.returned.delete(tenant);
    this.held = this.held.filter((entry) => entry.tenant !== tenant || entry.key !== key);
    const entry = { tenant, key, value, bytes, usedAt: 0 };
    this.held.push(entry);
    this.use(entry);
    this.shrink(tenant);
  }

  resize(tenant: string, key: string, bytes: number): void {
    const entry = this.find(tenant, key);
    if (entry !== undefined) entry.bytes = bytes;
    this.shrink(tenant);
  }

  take(tenant: string, key: string): number | undefined {
    const entry = this.find(tenant, key);
    this.held = this.held.filter((other) => other !== entry);
    return entry?.value;
  }

  loser(grown: string): string {
    if (grown.startsWith('anonymous') && this.bytesOf(grown) > this.maxBytes / 8) return grown;
    const byUse = (a: string, b: string) => this.usedAt.get(a)! - this.usedAt.get(b)!;
    const anonymous = this.tenants.filter((tenant) => tenant.startsWith('anonymous')).sort(byUse);
    const returned = anonymous.find((tenant) => this.returned.has(tenant));
    const newcomer = anonymous.find((tenant) => !this.returned.has(tenant));
    const newcomerBytes = anonymous
      .filter((tenant) => !this.returned.has(tenant))
      .reduce((sum, tenant) => sum + this.bytesOf(tenant), 0);
    const first = newcomerBytes > this.maxBytes / 4 ? newcomer : returned;
    return (
      first ?? returned ?? newcomer ?? this.tenants.sort((a, b) => this.bytesOf(b) - this.bytesOf(a) || byUse(a, b))[0]!
    );
  }

  use(entry: Held): void {
    entry.usedAt = ++this.uses;
    this.usedAt.set(entry.tenant, entry.usedAt);
  }

  shrink(grown: string): void {
    while (this.bytes > this.maxBytes) {
      const loser = this.loser(grown);
      const [oldest] = this.held.filter(({ tenant }) => tenant === loser).sort((a, b) => a.usedAt - b.usedAt);
      this.held = this.held.filter((entry) => entry !== oldest);
    }
  }
}

const step = fc.record({
  kind: fc.constantFrom('set', 'set', 'set', 'get', 'resize', 'take'),
  tenant: fc.constantFrom('a', 'b', 'c', 'd', 'anonymous', 'anonymous:1', 'anonymous:2'),
  key: fc.constantFrom('1', '2', '3', '4', '5', '6'),
  bytes: fc.nat(1_500),
});

describe('TenantCache', () => {
  it('holds what a cache holds that looks at everything each time, within the budget', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 80 }), fc.integer({ min: 700, max: 8_000 }), (steps, maxBytes) => {
        const cache = new TenantCache<number>(maxBytes);
        const naive = new NaiveCache(maxBytes);
        for (const [value, { kind, tenant, key, bytes }] of steps.entries()) {
          if (kind === 'set') {
            naive.set(tenant, key, value, bytes);
            expect(cache.set(tenant, key, value, bytes)).toBe(naive.find(tenant, key) !== undefined);
          } else if (kind === 'resize') {
            cache.resize(tenant, key, bytes);
            naive.resize(tenant, key, bytes);
          } else expect(cache[kind](tenant, key)).toBe(naive[kind](tenant, key));
          expect([...cache.values()].sort()).toEqual(naive.held.map((entry) => entry.value).sort());
          expect(cache.bytes).toBe(naive.bytes);
          expect(cache.size).toBe(naive.held.length);
          expect(cache.bytes).toBeLessThanOrEqual(maxBytes);
        }
      }),
      { seed: 29, numRuns: 500 },
    );
  });

  it('never takes from a tenant within its fair share, whatever another one sends', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(2_000), { maxLength: 200 }), (floods) => {
        const cache = new TenantCache<string>(10_000);
        const kept = ['1', '2', '3', '4'];
        for (const key of kept) cache.set('quiet', key, key, 500);
        for (const [place, bytes] of floods.entries()) cache.set('loud', `${place}`, 'flood', bytes);
        expect(kept.map((key) => cache.get('quiet', key))).toEqual(kept);
      }),
      { seed: 31, numRuns: 100 },
    );
  });

  it('never takes from an authenticated tenant for anonymous ones, nor from one in use for any number of them', () => {
    const cache = new TenantCache<string>(10_000);
    cache.set('authenticated', 'key', 'kept', 5_000);
    cache.set('anonymous:in use', 'key', 'kept', 1_000);
    cache.set('anonymous:idle', 'key', 'lost', 1_000);
    for (let made = 0; made < 1_000; made++) {
      cache.set(`anonymous:${made}`, 'key', 'flood', 10);
      expect(cache.get('anonymous:in use', 'key')).toBe('kept');
    }
    expect(cache.get('authenticated', 'key')).toBe('kept');
    expect(cache.get('anonymous:idle', 'key')).toBeUndefined();
    // An anonymous tenant that holds much makes room by its own.
    for (let made = 0; made < 1_000; made++) cache.set('anonymous', `${made}`, 'flood', 100);
    expect(cache.get('authenticated', 'key')).toBe('kept');
    expect(cache.get('anonymous:in use', 'key')).toBe('kept');
    expect(cache.set('anonymous:large', 'key', 'none', 9_000)).toBe(false);
    expect(cache.get('authenticated', 'key')).toBe('kept');
  });

  it('counts the characters of its keys, and takes no key that is larger than the budget', () => {
    const cache = new TenantCache<number>(4_000);
    const before = cache.set('t', 'x', 1, 0) ? cache.bytes : 0;
    expect(cache.set('t', 'x'.repeat(501), 2, 0)).toBe(true);
    expect(cache.bytes - 2 * before).toBe(2 * 500 - SHARE);
    expect(cache.set('t', 'x'.repeat(5_000_000), 3, 0)).toBe(false);
    expect(cache.bytes).toBeLessThan(4_000);
  });

  it('shares the room of a tenant fairly among its users', () => {
    const cache = new TenantCache<string>(20_000);
    for (const user of ['a', 'b', 'c']) cache.set('t', `quiet ${user}`, 'kept', 500, user);
    for (let made = 0; made < 500; made++) cache.set('t', `loud ${made}`, 'flood', 500, 'loud');
    expect(['a', 'b', 'c'].map((user) => cache.get('t', `quiet ${user}`))).toEqual(['kept', 'kept', 'kept']);
    expect(cache.bytes).toBeLessThanOrEqual(20_000);
  });

  it('calls back with each value that leaves, once', () => {
    const left: number[] = [];
    const cache = new TenantCache<number>(3_000, (value) => left.push(value));
    for (let value = 0; value < 10; value++) cache.set('t', `${value}`, value, 500);
    cache.take('t', '9');
    expect(left).toHaveLength(10 - cache.size);
    expect(new Set(left).size).toBe(left.length);
  });
});
