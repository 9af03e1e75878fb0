import {
  BREAK_CAUSES,
  findPrefixBreak,
  outlinePrompt,
  type PromptOutline,
  recognise,
  sharedLength,
} from '@warmpath/core';
import type { PromptApi } from '../../intake/apis/prompt-api.js';
import { readObject } from '../../intake/json-body.js';
import type { Exchange, RecordedBlock, RecordedFallback, RecordedPrefix } from '../../observe/exchange.js';
import { TenantCache } from '../../observe/tenant-cache.js';
import { promptPieces } from './prompt-pieces.js';

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
  readonly bytes: number;
}

/** Earlier prompts of a tenant that a new one is compared with. */
const OUTLINES = 16;
/** Under which a tenant's are kept. */
const OUTLINES_KEY = 'outlines';
/** Part of the memory for records that outlines may take. */
const OUTLINES_PART = 3 / 4;
/** Bytes of a record, of what is said of one block or document in it, and of one piece of an outline. Generous. */
const RECORD_BYTES = 512;
const BLOCK_BYTES = 256;
const NUMBER_BYTES = 8;
const PIECE_BYTES = 384;

/**
 * What became of the last requests, for the tenant whose they were to ask. Holds counts, and where prompts are compared
 * hashes of them, but no text. Within a budget of bytes, shared fairly among tenants.
 */
export class RequestLog {
  readonly #records: TenantCache<RequestRecord>;
  /** Of each tenant one entry, of its last prompts. */
  readonly #outlines: TenantCache<readonly Outlined[]>;

  constructor(maxBytes: number) {
    this.#outlines = new TenantCache(Math.floor(OUTLINES_PART * maxBytes));
    this.#records = new TenantCache(Math.floor((1 - OUTLINES_PART) * maxBytes));
  }

  /** Records kept, of all tenants. */
  get size(): number {
    return this.#records.size;
  }

  get bytes(): number {
    return this.#records.bytes + this.#outlines.bytes;
  }

  /** The record of that tenant's request; `undefined` for one that is forgotten, unknown, or somebody else's. */
  find(tenant: string, id: string): RequestRecord | undefined {
    return this.#records.get(tenant, id);
  }

  /** The record of any tenant's request. O(records). */
  findOfAny(id: string): RequestRecord | undefined {
    for (const record of this.#records.values()) if (record.id === id) return record;
    return undefined;
  }

  add(tenant: string, record: RequestRecord): void {
    let bytes = RECORD_BYTES;
    for (const { order, references, shortened } of record.blocks) {
      bytes += BLOCK_BYTES + NUMBER_BYTES * (order.length + references.length + shortened.length);
    }
    this.#records.set(tenant, record.id, record, bytes);
  }

  /**
   * Compares a prompt with the earlier one of this tenant that it shares most with, and remembers its outline. `body`
   * is what the engine gets. O(body), and one `JSON.parse`.
   */
  compare(
    tenant: string,
    id: string,
    { body, api }: { readonly body: string; readonly api: PromptApi },
  ): RecordedPrefix {
    const object = readObject(Buffer.from(body));
    const messages = api.messages(object);
    const texts = messages.flatMap((message) => message.texts);
    const pieces = promptPieces(body, object, { api, messages, blocks: recognise(texts, { mode: 'conservative' }) });
    const outline = outlinePrompt(pieces, { keepText: false });
    const outlines = this.#outlines.get(tenant, OUTLINES_KEY) ?? [];
    const scope = `${api.name}\n${typeof object['model'] === 'string' ? object['model'] : ''}`;
    const earlier = nearest(outlines, scope, outline);
    this.#remember(tenant, [...outlines, { id, scope, outline, bytes: bytesOf(outline) }]);
    const found = earlier && findPrefixBreak(earlier.outline, pieces);
    return {
      comparedWith: earlier?.id ?? null,
      break: found === undefined ? null : { ...found, remedy: BREAK_CAUSES[found.cause] },
    };
  }

  /** The last ones, as many as fit. */
  #remember(tenant: string, outlines: readonly Outlined[]): void {
    const bytes = outlines.reduce((sum, outlined) => sum + outlined.bytes, 0);
    if (outlines.length <= OUTLINES && this.#outlines.set(tenant, OUTLINES_KEY, outlines, bytes)) return;
    if (outlines.length > 1) this.#remember(tenant, outlines.slice(1));
  }
}

function bytesOf({ pieces }: PromptOutline): number {
  let bytes = 0;
  for (const { name, chunks, documents } of pieces) {
    bytes += PIECE_BYTES + 2 * name.length + chunks.byteLength + PIECE_BYTES * documents.length;
  }
  return bytes;
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

/** What is kept of a request when it is over. */
export function recordOf(exchange: Exchange, route: string, status: number): RequestRecord {
  return {
    object: 'request',
    id: exchange.requestId,
    route,
    status,
    overheadMs: exchange.overheadMs ?? null,
    queuedMs: exchange.queuedMs ?? null,
    ttftMs: exchange.ttftMs ?? null,
    promptTokens: exchange.promptTokens ?? null,
    cachedTokens: exchange.cachedTokens ?? null,
    predictedCachedTokens: exchange.predictedCachedTokens ?? null,
    blocks: exchange.blocks,
    references: exchange.references,
    shortened: exchange.shortened,
    deduplicatedTokens: exchange.deduplicatedTokens,
    failedOpen: exchange.failedOpen,
    prefix: exchange.prefix ?? null,
  };
}
