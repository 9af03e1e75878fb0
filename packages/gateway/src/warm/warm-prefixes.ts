/**
 * When each prompt prefix was last prefilled, as far as the gateway knows: by a warm-up or by a request that was
 * answered. Bounded: the least recently used prefix goes first. Every operation is O(1).
 */
export class WarmPrefixes {
  readonly #limit: number;
  readonly #ttlMs: number;
  readonly #lastUse = new Map<string, number>();

  /** `limit`: prefixes remembered. `ttlMs`: milliseconds without use after which one counts as cold. */
  constructor(limit: number, ttlMs: number) {
    this.#limit = limit;
    this.#ttlMs = ttlMs;
  }

  get size(): number {
    return this.#lastUse.size;
  }

  isWarm(prefix: string, now: number): boolean {
    const lastUse = this.#lastUse.get(prefix);
    return lastUse !== undefined && now - lastUse <= this.#ttlMs;
  }

  /** The engine has just computed this prefix, or read it from its cache. */
  touch(prefix: string, now: number): void {
    this.#lastUse.delete(prefix);
    this.#lastUse.set(prefix, now);
    if (this.#lastUse.size > this.#limit) this.#lastUse.delete(this.#lastUse.keys().next().value!);
  }
}
