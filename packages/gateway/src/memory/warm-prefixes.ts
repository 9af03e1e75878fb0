import { TenantCache } from './tenant-cache.js';

/** A prompt prefix: what stands before the documents, of one tenant's requests to one model. */
export interface PromptPrefix {
  readonly tenant: string;
  readonly key: string;
}

/** The name of a prefix in the tables of what is warm, or being warmed. */
export function prefixOf(tenant: string, model: string, preambleKey: string): PromptPrefix {
  return { tenant, key: JSON.stringify([model, preambleKey]) };
}

/** Milliseconds after which a prefix counts as cold, where nothing is known of the engine. */
const DEFAULT_TTL_MS = 300_000;
/** Bytes of a time. */
const TIME_BYTES = 16;

/**
 * When each prompt prefix was last prefilled, as far as the gateway knows: by a warm-up or by a request that was
 * answered. Within a budget of bytes, shared fairly among tenants. Every operation is O(log tenants).
 */
export class WarmPrefixes {
  readonly #ttlMs: number;
  readonly #lastUse: TenantCache<number>;

  /** `ttlMs`: milliseconds without use after which one counts as cold. */
  constructor(maxBytes: number, ttlMs = DEFAULT_TTL_MS) {
    this.#ttlMs = ttlMs;
    this.#lastUse = new TenantCache(maxBytes);
  }

  get size(): number {
    return this.#lastUse.size;
  }

  get bytes(): number {
    return this.#lastUse.bytes;
  }

  isWarm({ tenant, key }: PromptPrefix, now: number): boolean {
    const lastUse = this.#lastUse.get(tenant, key);
    return lastUse !== undefined && now - lastUse <= this.#ttlMs;
  }

  /** The engine has just computed this prefix, or read it from its cache. */
  touch({ tenant, key }: PromptPrefix, now: number): void {
    this.#lastUse.set(tenant, key, now, TIME_BYTES);
  }
}
