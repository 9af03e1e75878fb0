/** Amounts of one resource that tenants hold, and their sum. Tenants that hold nothing take no memory. */
export class TenantShares {
  readonly #amounts = new Map<string, number>();
  #total = 0;

  get total(): number {
    return this.#total;
  }

  of(tenant: string): number {
    return this.#amounts.get(tenant) ?? 0;
  }

  /** @param amount Negative to give back. */
  add(tenant: string, amount: number): void {
    const own = this.of(tenant) + amount;
    if (own > 0) this.#amounts.set(tenant, own);
    else this.#amounts.delete(tenant);
    this.#total += amount;
  }

  /** The tenant that holds most, the first of equals; `undefined` when none holds anything. O(tenants). */
  get largest(): string | undefined {
    let largest: string | undefined;
    for (const [tenant, amount] of this.#amounts) {
      if (largest === undefined || amount > this.of(largest)) largest = tenant;
    }
    return largest;
  }

  [Symbol.iterator](): IterableIterator<[tenant: string, amount: number]> {
    return this.#amounts[Symbol.iterator]();
  }
}
