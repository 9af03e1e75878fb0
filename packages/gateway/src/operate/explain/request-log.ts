import {
  type BlockFormat,
  BREAK_CAUSES,
  findPrefixBreak,
  type LabelRule,
  outlinePrompt,
  type PrefixBreak,
  type PromptOutline,
  recognise,
  sharedLength,
} from '@warmpath/core';
import type { PlacedBlock } from '../../arrange/found/arrange-in-place.js';
import type { Fallback } from '../../arrange/inserted-documents.js';
import { isObject } from '../../intake/apis/content-texts.js';
import type { PromptApi } from '../../intake/apis/prompt-api.js';
import { promptPieces } from './prompt-pieces.js';

/** What became of documents that stand side by side. */
export interface RecordedBlock {
  /** `documents`: those of the request's own field. */
  readonly format: BlockFormat | 'documents';
  readonly documents: number;
  readonly decided: PlacedBlock['decided'];
  /** `order[place]` is the rank of the document that stood there. */
  readonly order: readonly number[];
  readonly labels: LabelRule;
  /** Ranks of the documents that stand farther up in full, and were referred to. */
  readonly references: readonly number[];
  /** Ranks of the documents of which parts stand farther up, and were referred to. */
  readonly shortened: readonly number[];
}

/** Where a prompt parted from the earlier one that it shares most with. */
export interface RecordedPrefix {
  /** The earlier request's id; `null` if there was none to compare with. */
  readonly comparedWith: string | null;
  readonly break: (PrefixBreak & { readonly remedy: string }) | null;
}

/** What a request went without, and why. */
export interface RecordedFallback {
  readonly fallback: Fallback;
  /** The name of an error or its code, or what became of the store of conversations; never its message, which may quote the request. */
  readonly reason: string;
}

/** Counts and times of a request, without a word of its text. */
export interface RequestRecord {
  readonly object: 'request';
  readonly id: string;
  readonly route: string;
  readonly status: number;
  readonly overheadMs: number | null;
  readonly queuedMs: number | null;
  readonly ttftMs: number | null;
  readonly promptTokens: number | null;
  readonly cachedTokens: number | null;
  readonly predictedCachedTokens: number | null;
  readonly blocks: readonly RecordedBlock[];
  /** Documents referred to and not repeated, those of which parts were, and the tokens that both spared, estimated. */
  readonly references: number;
  readonly shortened: number;
  readonly deduplicatedTokens: number;
  /** Empty where nothing failed. */
  readonly failedOpen: readonly RecordedFallback[];
  /** `null` where prompts are not compared. */
  readonly prefix: RecordedPrefix | null;
}

interface Outlined {
  readonly id: string;
  readonly scope: string;
  readonly outline: PromptOutline;
}

interface TenantLog {
  readonly records: Map<string, RequestRecord>;
  readonly outlines: Outlined[];
}

/** Earlier prompts of a tenant that a new one is compared with. */
const OUTLINES = 16;

/**
 * What became of the last requests of each tenant, for that tenant to ask. Holds counts, and where prompts are compared prints of
 * them, but no text. Bounded in requests a tenant and in tenants; the oldest, and the least recently used, go first.
 */
export class RequestLog {
  readonly #capacity: number;
  readonly #tenantCapacity: number;
  readonly #tenants = new Map<string, TenantLog>();

  constructor(capacity: number, tenantCapacity: number) {
    this.#capacity = capacity;
    this.#tenantCapacity = tenantCapacity;
  }

  /** Records kept, of all tenants. O(tenants). */
  get size(): number {
    let size = 0;
    for (const { records } of this.#tenants.values()) size += records.size;
    return size;
  }

  /** The record of that tenant's request; `undefined` for one that is forgotten, unknown, or somebody else's. */
  find(tenant: string, id: string): RequestRecord | undefined {
    return this.#tenants.get(tenant)?.records.get(id);
  }

  /** The record of any tenant's request. O(tenants). */
  findOfAny(id: string): RequestRecord | undefined {
    for (const { records } of this.#tenants.values()) {
      const record = records.get(id);
      if (record !== undefined) return record;
    }
    return undefined;
  }

  add(tenant: string, record: RequestRecord): void {
    const { records } = this.#of(tenant);
    records.delete(record.id);
    if (records.size >= this.#capacity) records.delete(records.keys().next().value!);
    records.set(record.id, record);
  }

  /**
   * Compares a prompt with the earlier one of this tenant that it shares most with, and remembers its outline. `body` is what the
   * engine gets. O(body), and one `JSON.parse`.
   */
  compare(
    tenant: string,
    id: string,
    { body, api }: { readonly body: string; readonly api: PromptApi },
  ): RecordedPrefix {
    const object: unknown = JSON.parse(body);
    if (!isObject(object)) return { comparedWith: null, break: null };
    const messages = api.messages(object);
    const texts = messages.flatMap((message) => message.texts);
    const pieces = promptPieces(body, object, { api, messages, blocks: recognise(texts, { mode: 'conservative' }) });
    const outline = outlinePrompt(pieces, { keepText: false });
    const { outlines } = this.#of(tenant);
    const scope = `${api.name}\n${typeof object['model'] === 'string' ? object['model'] : ''}`;
    const earlier = nearest(outlines, scope, outline);
    outlines.push({ id, scope, outline });
    if (outlines.length > OUTLINES) outlines.shift();
    const found = earlier && findPrefixBreak(earlier.outline, pieces);
    return {
      comparedWith: earlier?.id ?? null,
      break: found === undefined ? null : { ...found, remedy: BREAK_CAUSES[found.cause] },
    };
  }

  #of(tenant: string): TenantLog {
    const known = this.#tenants.get(tenant);
    const log = known ?? { records: new Map(), outlines: [] };
    this.#tenants.delete(tenant);
    this.#tenants.set(tenant, log);
    if (this.#tenants.size > this.#tenantCapacity) this.#tenants.delete(this.#tenants.keys().next().value!);
    return log;
  }
}

/** The earlier prompt of the same API and model that shares most with this one, the latest of equals. */
function nearest(outlines: readonly Outlined[], scope: string, outline: PromptOutline): Outlined | undefined {
  let best: { readonly earlier: Outlined; readonly shared: number } | undefined;
  for (const earlier of outlines) {
    if (earlier.scope !== scope) continue;
    const shared = sharedLength(earlier.outline, outline);
    if (best === undefined || shared >= best.shared) best = { earlier, shared };
  }
  return best?.earlier;
}
