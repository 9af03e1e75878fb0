import type { Preamble } from '@warmpath/core';
import { TenantCache } from '@warmpath/core/internal';

/** What a prompt can begin with: its preamble, and its documents in an order that is still open. */
interface PromptStart {
  readonly preamble: Preamble;
  readonly documents: readonly { readonly key: string; readonly tokens: number }[];
}

/** A prefix that the engine has not computed yet. Prompts that share it follow the first one. */
export interface ColdPrefix {
  readonly preamble: Preamble;
  /** Keys of the documents behind the preamble, up to the first that is not cached; none where the preamble is not. */
  readonly documents: readonly string[];
}

/** Shared tokens that are not cached, at least, for a prompt to lead. */
const MIN_SHARED_TOKENS = 128;
/** Bytes for the hashes of body beginnings that an engine computed. */
const MAX_COMPUTED_BYTES = 1_048_576;
const COMPUTED_ENTRY_BYTES = 8;
/** Milliseconds for which a computed beginning counts as cached. */
const CACHED_MS = 300_000;

/**
 * The prompts of one engine that are the first to compute a prefix: some engines compute a shared prefix once for each
 * prompt of a burst, unless one prompt goes first. Bounded by the prompts that the engine has. Tenants share nothing.
 */
export class LeadingPrompts {
  /** Document keys of leaders' prefixes, by tenant and preamble. */
  readonly #leaders = new Map<string, Set<readonly string[]>>();
  /** When the engine last computed the beginning of a body, by hash. */
  readonly #computed = new TenantCache<number>(MAX_COMPUTED_BYTES);

  get isEmpty(): boolean {
    return this.#leaders.size === 0;
  }

  /** Adds a leader. @returns the function that removes it, to be called once. */
  lead(tenant: string, { preamble, documents }: ColdPrefix): () => void {
    const group = groupOf(tenant, preamble.key);
    const leaders = this.#leaders.get(group) ?? new Set();
    this.#leaders.set(group, leaders.add(documents));
    return () => {
      leaders.delete(documents);
      if (leaders.size === 0) this.#leaders.delete(group);
    };
  }

  /** Whether a prompt can begin with a leader's prefix. O(leaders behind the same preamble * documents). */
  isLed(tenant: string, { preamble, documents }: PromptStart): boolean {
    const leaders = this.#leaders.get(groupOf(tenant, preamble.key));
    if (leaders === undefined) return false;
    const keys = new Set(documents.map(({ key }) => key));
    return [...leaders].some((leader) => leader.every((key) => keys.has(key)));
  }

  /** The shortest beginning of a body that does not count as cached. */
  coldBytes(tenant: string, beginnings: readonly string[], now: number): ColdPrefix | undefined {
    const isCold = (computedAt = Number.NEGATIVE_INFINITY) => now - computedAt > CACHED_MS;
    const place = beginnings.findIndex((hash) => isCold(this.#computed.get(tenant, hash)));
    const start = bytesStart(beginnings.slice(0, place + 1));
    return start && { preamble: start.preamble, documents: start.documents.map(({ key }) => key) };
  }

  /** The engine has computed a prompt with these beginnings. */
  computedBytes(tenant: string, beginnings: readonly string[], now: number): void {
    for (const hash of beginnings) this.#computed.set(tenant, hash, now, COMPUTED_ENTRY_BYTES);
  }
}

/** The shortest prefix with enough tokens that are not cached; `undefined` where there is none. O(documents). */
export function coldPrefix({ preamble, documents }: PromptStart, cachedTokens: number): ColdPrefix | undefined {
  let tokens = preamble.tokens;
  if (tokens - cachedTokens >= MIN_SHARED_TOKENS) return { preamble, documents: [] };
  for (const [place, document] of documents.entries()) {
    tokens += document.tokens;
    if (tokens - cachedTokens < MIN_SHARED_TOKENS) continue;
    return { preamble, documents: documents.slice(0, place + 1).map(({ key }) => key) };
  }
  return undefined;
}

function groupOf(tenant: string, preambleKey: string): string {
  return JSON.stringify([tenant, preambleKey]);
}

/** The beginnings of a body as a preamble and documents; no parsed prompt has such a preamble. */
export function bytesStart([first, ...longer]: readonly string[]): PromptStart | undefined {
  if (first === undefined) return undefined;
  return {
    preamble: { key: `bytes#${first}`, tokens: 0 },
    documents: longer.map((key) => ({ key, tokens: 0 })),
  };
}
