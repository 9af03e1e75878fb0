import type { Document, Preamble } from '@warmpath/core';
import { TenantCache } from '../observe/tenant-cache.js';

/** What a prompt begins with that the engine has not computed yet: others that begin likewise wait until it has. */
export interface ColdPrefix {
  readonly preamble: Preamble;
  /** Keys of the documents behind it, the last one being cold; none where the preamble is. */
  readonly documents: readonly string[];
}

/** New tokens that must be shared before anybody waits for them: fewer are computed faster than waited for. */
const LEAST_SHARED_TOKENS = 128;

/** Bytes for what an engine computed lately of bodies that nobody has read: some thousand beginnings. */
const COMPUTED_BYTES = 1_048_576;
/** Milliseconds for which an engine is trusted to keep it. */
const KEPT_MS = 300_000;
const COMPUTED_ENTRY_BYTES = 8;

/**
 * The prompts of an engine that are the first to compute what they begin with. Some engines compute it once for each
 * request of a burst, unless one goes ahead: those that would follow it are distinguished here. Bounded by the requests
 * that the engine has. O(leaders of the same preamble) a question.
 */
export class LeadingPrompts {
  readonly #leaders = new Map<string, Set<ReadonlySet<string>>>();
  /** When the engine last computed what bodies begin with, by its hash. */
  readonly #computed = new TenantCache<number>(COMPUTED_BYTES);

  get size(): number {
    let size = 0;
    for (const leaders of this.#leaders.values()) size += leaders.size;
    return size;
  }

  /** A tenant's prompt goes ahead, until the answer is called: once or more often. */
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

  /** Whether a prompt begins, or can be made to begin, with what another one of the tenant is computing. */
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

  /** The same of a body that nobody has read, by the hashes of its beginnings. O(beginnings). */
  isLedBytes(tenant: string, beginnings: readonly string[]): boolean {
    return beginnings.some((hash) => this.#leaders.has(groupOf(tenant, bytesNamed(hash))));
  }

  /** The shortest beginning that the engine has not computed lately; `undefined` where there is none. */
  coldBytes(tenant: string, beginnings: readonly string[], now: number): ColdPrefix | undefined {
    for (const hash of beginnings) {
      const at = this.#computed.get(tenant, hash);
      if (at === undefined || now - at > KEPT_MS) return { preamble: bytesNamed(hash), documents: [] };
    }
    return undefined;
  }

  /** The engine has computed a prompt with these beginnings. */
  computedBytes(tenant: string, beginnings: readonly string[], now: number): void {
    for (const hash of beginnings) this.#computed.set(tenant, hash, now, COMPUTED_ENTRY_BYTES);
  }
}

/** What bytes begin with, as what stands before documents: no prompt that was read has such a key. */
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

/**
 * What a prompt has to compute first, of which so many tokens are cached; `undefined` where it is too little to wait
 * for. O(documents).
 */
export function coldPrefix({ preamble, documents }: LedPrompt, cachedTokens: number): ColdPrefix | undefined {
  let tokens = preamble.tokens;
  if (tokens - cachedTokens >= LEAST_SHARED_TOKENS) return { preamble, documents: [] };
  for (const [place, document] of documents.entries()) {
    tokens += document.tokens;
    if (tokens - cachedTokens < LEAST_SHARED_TOKENS) continue;
    return { preamble, documents: documents.slice(0, place + 1).map(({ key }) => key) };
  }
  return undefined;
}
