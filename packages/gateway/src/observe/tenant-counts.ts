/** Tenants that are kept for their next count although they have none, beside as many as have one. */
const SPARE = 64;

interface Count {
  value: number;
}

/**
 * A number for each tenant that has one above 0. One that comes to 0 is kept for a while: where a Map loses an entry
 * with each request and gets it back with the next, it makes a new table every few requests. O(1), amortised.
 */
export class TenantCounts {
  readonly #counts = new Map<string, Count>();
  #size = 0;

  /** Tenants with a number above 0. */
  get size(): number {
    return this.#size;
  }

  get(tenant: string): number {
    return this.#counts.get(tenant)?.value ?? 0;
  }

  /** The number of a tenant grows by so much, or shrinks; it never comes below 0. */
  add(tenant: string, by: number): void {
    let count = this.#counts.get(tenant);
    if (count === undefined) {
      count = { value: 0 };
      this.#counts.set(tenant, count);
    }
    if (count.value === 0) this.#size++;
    count.value += by;
    if (count.value > 0) return;
    this.#size--;
    if (this.#counts.size > 2 * this.#size + SPARE) this.#drop();
  }

  /** Whether any tenant has at least so many; more than 0. O(tenants). */
  someHas(least: number): boolean {
    for (const { value } of this.#counts.values()) if (value >= least) return true;
    return false;
  }

  #drop(): void {
    for (const [tenant, { value }] of this.#counts) if (value === 0) this.#counts.delete(tenant);
  }
}
