import { type ByteRange, byteChain } from '@warmpath/core/internal';
import { TenantCache } from './tenant-cache.js';

/**
 * Bytes of a body up to which its beginning is distinguished from others; what differs farther behind is not worth a
 * look.
 */
const MAX_BYTES = 131_072;
const FIRST_BYTES = 512;
/** Each beginning is longer by so much than the one before. */
const GROWTH = 1.5;
/** Engines that are remembered of one beginning: those that got it last. */
const MAX_ENGINES = 4;
const ENTRY_BYTES = 64;

/** Lengths of the beginnings that are compared. */
const LENGTHS: readonly number[] = (() => {
  const lengths: number[] = [];
  for (let length = FIRST_BYTES; length <= MAX_BYTES; length = Math.floor(GROWTH * length)) lengths.push(length);
  return lengths;
})();

/** The beginnings of one body, by their hashes, the shortest first. */
export interface BodyBeginnings {
  readonly tenant: string;
  readonly hashes: readonly string[];
}

/**
 * Which engines got a body that begins alike: all that is known of prompts in which nothing is arranged, and what keeps
 * a conversation with the engine that has its earlier turns. Bytes in common are an estimate of tokens in common, for
 * nobody has read the body. Within a budget of bytes, shared fairly among tenants; beginnings of one tenant say nothing
 * about another's.
 */
export class SentPrefixes {
  readonly #engines: TenantCache<readonly number[]>;

  constructor(maxBytes: number) {
    this.#engines = new TenantCache(maxBytes);
  }

  get bytes(): number {
    return this.#engines.bytes;
  }

  /** O(body), at most 128 KiB of it: some 60 µs. */
  beginningsOf(tenant: string, body: Buffer): BodyBeginnings {
    const pieces: ByteRange[] = [];
    for (const end of LENGTHS) {
      if (end > body.length) break;
      pieces.push({ start: pieces.at(-1)?.end ?? 0, end });
    }
    return { tenant, hashes: byteChain(body, pieces) };
  }

  /** Bytes at the beginning that an engine got before, at least: a function of the engine's number. */
  sharedBytes({ tenant, hashes }: BodyBeginnings): (engine: number) => number {
    const shared = new Map<number, number>();
    for (const [place, hash] of hashes.entries()) {
      const engines = this.#engines.get(tenant, hash);
      // Who has a longer beginning has the shorter ones.
      if (engines === undefined) break;
      for (const engine of engines) shared.set(engine, LENGTHS[place]!);
    }
    return (engine) => shared.get(engine) ?? 0;
  }

  /** An engine gets this body. */
  sent({ tenant, hashes }: BodyBeginnings, engine: number): void {
    for (const hash of hashes) {
      const others = (this.#engines.get(tenant, hash) ?? []).filter((other) => other !== engine);
      this.#engines.set(tenant, hash, [engine, ...others].slice(0, MAX_ENGINES), ENTRY_BYTES);
    }
  }
}
