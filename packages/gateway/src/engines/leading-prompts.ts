import type { Document, Preamble } from '@warmpath/core';
import { TenantCache } from '../memory/tenant-cache.js';

/** A prefix that the engine has not computed yet. Prompts that share it follow the first one. */
export interface ColdPrefix {
  readonly preamble: Preamble;
  /** Keys of the documents behind the preamble, up to the first that is not cached; none where the preamble is not. */
  readonly documents: readonly string[];
}

/** Shared tokens that are not cached, at least, for a prompt to lead. */
const MIN_SHARED_TOKENS = 128;

/** Bytes for the hashes of bodies' beginnings that an engine computed. */
const COMPUTED_BYTES = 1_048_576;
/** Milliseconds for which a computed beginning counts as cached. */
const CACHED_MS = 300_000;
const COMPUTED_ENTRY_BYTES = 8;

/**
 * The prompts of an engine that are the first to compute a prefix. Some engines compute a shared prefix once for each
 * prompt of a burst, unless one goes first. Bounded by the prompts that the engine has. A lookup costs O(leaders of the
 * same preamble).
 */
export class LeadingPrompts {
  readonly #leaders = new Map<string, Set<ReadonlySet<string>>>();
  /** When the engine last computed the beginning of a body, by hash. */
  readonly #computed = new TenantCache<number>(COMPUTED_BYTES);

  get size(): number {
    let size = 0;
    for (const leaders of this.#leaders.values()) size += leaders.size;
    return size;
  }

  /** Adds a leader; returns the function that removes it, which may be called more than once. */
  lead(tenant: string, { preamble, documents }: ColdPrefix): () => void {
    const group = groupOf(tenant, preamble);
    const leaders = this.#leaders.get(group) ?? new Set();
    const leader = new Set(documents);
    leaders.add(leader);
    this.#leaders.set(group, leaders);
    return () => {
      leaders.delete(leader);
      if (leaders.size === 0 && this.#leaders.get(group) === leaders) this.#leaders.delete(group);
    };
  }

  /** Whether a prompt can begin with what a leader of the same tenant is computing. */
  isLed(tenant: string, { preamble, documents }: LedPrompt): boolean {
    const leaders = this.#leaders.get(groupOf(tenant, preamble));
    if (leaders === undefined) return false;
    for (const leader of leaders) {
      let shared = 0;
      for (const { key } of documents) if (leader.has(key)) shared++;
      if (shared === leader.size) return true;
    }
    return false;
  }

  /** The same for a body, by the hashes of its beginnings. O(beginnings). */
  isLedBytes(tenant: string, beginnings: readonly string[]): boolean {
    return beginnings.some((hash) => this.#leaders.has(groupOf(tenant, bytesNamed(hash))));
  }

  /** The shortest beginning that does not count as cached. */
  coldBytes(tenant: string, beginnings: readonly string[], now: number): ColdPrefix | undefined {
    for (const hash of beginnings) {
      const at = this.#computed.get(tenant, hash);
      if (at === undefined || now - at > CACHED_MS) return { preamble: bytesNamed(hash), documents: [] };
    }
    return undefined;
  }

  /** The engine has computed a prompt with these beginnings. */
  computedBytes(tenant: string, beginnings: readonly string[], now: number): void {
    for (const hash of beginnings) this.#computed.set(tenant, hash, now, COMPUTED_ENTRY_BYTES);
  }
}

/** A preamble for the beginning of a body; no parsed prompt has such a key. */
function bytesNamed(hash: string): Preamble {
  return { key: `bytes#${hash}`, tokens: 0 };
}

interface LedPrompt {
  readonly preamble: Preamble;
  readonly documents: readonly Document[];
}

function groupOf(tenant: string, { key }: Preamble): string {
  return JSON.stringify([tenant, key]);
}

/** The shortest prefix with enough tokens that are not cached; `undefined` where there is none. O(documents). */
export function coldPrefix({ preamble, documents }: LedPrompt, cachedTokens: number): ColdPrefix | undefined {
  let tokens = preamble.tokens;
  if (tokens - cachedTokens >= MIN_SHARED_TOKENS) return { preamble, documents: [] };
  for (const [place, document] of documents.entries()) {
    tokens += document.tokens;
    if (tokens - cachedTokens < MIN_SHARED_TOKENS) continue;
    return { preamble, documents: documents.slice(0, place + 1).map(({ key }) => key) };
  }
  return undefined;
}
