import { TenantCache } from '@warmpath/core/internal';

/** A prompt prefix: the text before the documents, of one tenant and model. */
export interface PromptPrefix {
  readonly tenant: string;
  readonly key: string;
}

/** The key of a prefix. */
export function prefixOf(tenant: string, model: string, preambleKey: string): PromptPrefix {
  return { tenant, key: JSON.stringify([model, preambleKey]) };
}

/** Milliseconds after which a prefix counts as cold, if the engine does not say. */
const DEFAULT_TTL_MS = 300_000;
/** Estimated bytes of a timestamp. */
const TIME_BYTES = 16;

/**
 * When each prompt prefix was last prefilled, by a warm-up or an answered request. Bounded in bytes, shared fairly
 * among tenants. O(log tenants) an operation.
 */
export class WarmPrefixes {
  readonly #ttlMs: number;
  readonly #lastUse: TenantCache<number>;

  /** @param ttlMs milliseconds without use after which a prefix counts as cold */
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

  /** The engine has computed this prefix now, or read it from its cache. */
  touch({ tenant, key }: PromptPrefix, now: number): void {
    this.#lastUse.set(tenant, key, now, TIME_BYTES);
  }
}
