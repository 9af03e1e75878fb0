import { type ByteRange, byteChain, TenantCache } from '@warmpath/core/internal';

/** Bytes of a body that are hashed, at most. */
const MAX_BYTES = 131_072;
const FIRST_BYTES = 512;
/** Factor between the lengths of two beginnings. */
const GROWTH = 1.5;
/** Engines remembered of one beginning: the latest ones. */
const MAX_ENGINES = 4;
const ENTRY_BYTES = 64;

/** Lengths of the hashed beginnings. */
const LENGTHS: readonly number[] = (() => {
  const lengths: number[] = [];
  for (let length = FIRST_BYTES; length <= MAX_BYTES; length = Math.floor(GROWTH * length)) lengths.push(length);
  return lengths;
})();

/** Hashes of the beginnings of one body, the shortest first. */
export interface BodyBeginnings {
  readonly tenant: string;
  readonly hashes: readonly string[];
}

/**
 * Remembers which engines got a body with the same beginning. This keeps a conversation at its engine, and routes
 * prompts without arranged documents. Shared bytes estimate shared tokens. Bounded in bytes, shared fairly among
 * tenants; tenants share nothing.
 */
export class SentPrefixes {
  readonly #engines: TenantCache<readonly number[]>;

  constructor(maxBytes: number) {
    this.#engines = new TenantCache(maxBytes);
  }

  get bytes(): number {
    return this.#engines.bytes;
  }

  /** O(body), at most `MAX_BYTES` of it. */
  beginningsOf(tenant: string, body: Buffer): BodyBeginnings {
    const pieces: ByteRange[] = [];
    for (const end of LENGTHS) {
      if (end > body.length) break;
      pieces.push({ start: pieces.at(-1)?.end ?? 0, end });
    }
    return { tenant, hashes: byteChain(body, pieces) };
  }

  /** Bytes at the beginning that an engine got before, by the engine's number. */
  sharedBytes({ tenant, hashes }: BodyBeginnings): (engine: number) => number {
    const shared = new Map<number, number>();
    for (const [place, hash] of hashes.entries()) {
      const engines = this.#engines.get(tenant, hash);
      // An engine with a longer beginning has the shorter ones, too.
      if (engines === undefined) break;
      for (const engine of engines) shared.set(engine, LENGTHS[place]!);
    }
    return (engine) => shared.get(engine) ?? 0;
  }

  /** A body is sent to an engine. */
  sent({ tenant, hashes }: BodyBeginnings, engine: number): void {
    for (const hash of hashes) {
      const others = (this.#engines.get(tenant, hash) ?? []).filter((other) => other !== engine);
      this.#engines.set(tenant, hash, [engine, ...others].slice(0, MAX_ENGINES), ENTRY_BYTES);
    }
  }
}
