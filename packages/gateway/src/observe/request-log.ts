import type { ErrorCode } from '@warmpath/core';
import {
  BREAK_CAUSES,
  findPrefixBreak,
  type PromptOutline,
  sharedCharacters,
  TenantCache,
} from '@warmpath/core/internal';
import type { RequestSummary } from '@warmpath/dashboard';
import type { PromptApi } from '../apis/prompt-view.js';
import type {
  ChosenEngine,
  DecidedSlot,
  NoGainReason,
  RecordedBreak,
  RecordedFallback,
  RecordedPrefix,
  RecordedRetrieval,
  Report,
} from '../shapes/shapes.js';
import type { OutlinedPrompt } from './prompt-pieces.js';

/** Counts and times of a request, without a word of its text. */
export interface RequestRecord {
  readonly object: 'request';
  readonly id: string;
  readonly route: string;
  /** The model that it names; `null` where that was not read. */
  readonly model: string | null;
  readonly status: number;
  readonly error: ErrorCode | null;
  /** From the headers of the request until the end of its answer, and until its body was complete. */
  readonly durationMs: number;
  readonly receivedMs: number;
  readonly overheadMs: number | null;
  /** Which of several engines got it, and what was weighed; `null` where there is one only. */
  readonly engine: ChosenEngine | null;
  readonly queuedMs: number | null;
  /** How its passages were looked for; `null` where it asked for none. */
  readonly retrieval: RecordedRetrieval | null;
  readonly ttftMs: number | null;
  readonly promptTokens: number | null;
  readonly cachedTokens: number | null;
  readonly predictedCachedTokens: number | null;
  /** Tokens that the engine would have had cached of the prompt as the client wrote it. */
  readonly baselineTokens: number | null;
  /** Cached tokens without those. */
  readonly gainTokens: number | null;
  /** Tokens that the engine wrote into its cache for a price of their own. */
  readonly cacheWriteTokens: number | null;
  /** What it cost, and would have cost without the gateway, where a price is configured. */
  readonly cost: number | null;
  readonly baselineCost: number | null;
  /** Whether it is of the group that is left as it is. */
  readonly isHeldOut: boolean;
  /** Why nothing was gained; `null` where something was. */
  readonly noGain: NoGainReason | null;
  /** Documents that it brought, or that stood in its prompt; `null` where nothing was arranged. */
  readonly documents: number | null;
  readonly blocks: readonly DecidedSlot[];
  /** Documents referred to and not repeated, those of which parts were, and the tokens that both spared, estimated. */
  readonly references: number;
  readonly shortened: number;
  readonly deduplicatedTokens: number;
  /** Empty where nothing failed. */
  readonly failedOpen: readonly RecordedFallback[];
  /** The conversation that it names (`GET /v1/sessions`). */
  readonly session: string | null;
  /** What its session lost of the cache; `null` where nothing. */
  readonly sessionBreak: RecordedBreak | null;
  /** `null` where prompts are not compared. */
  readonly prefix: RecordedPrefix | null;
}

interface Outlined {
  readonly id: string;
  readonly scope: string;
  readonly outline: PromptOutline;
  readonly bytes: number;
}

/** `arrivedAt` in milliseconds of the gateway's clock. */
interface LatestRequest {
  readonly record: RequestRecord;
  readonly tenant: string;
  readonly arrivedAt: number;
  readonly bytes: number;
}

/** Earlier prompts of a tenant that a new one is compared with. */
const OUTLINES = 16;
/** Under which a tenant's are kept. */
const OUTLINES_KEY = 'outlines';
/** Outlines, records, and the latest requests of all tenants each get this part of the memory. */
const PART = 1 / 3;
/** The most of the latest. */
const MAX_LATEST = 1_000;
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
  /** The latest requests of all tenants, the oldest first. */
  readonly #latest: LatestRequest[] = [];
  readonly #maxLatestBytes: number;
  #latestBytes = 0;
  /** Requests recorded since the start. */
  #sequence = 0;

  constructor(maxBytes: number) {
    this.#outlines = new TenantCache(Math.floor(PART * maxBytes));
    this.#records = new TenantCache(Math.floor(PART * maxBytes));
    this.#maxLatestBytes = PART * maxBytes;
  }

  /** Records kept, of all tenants. */
  get size(): number {
    return this.#records.size;
  }

  get bytes(): number {
    return this.#records.bytes + this.#outlines.bytes + this.#latestBytes;
  }

  /** Requests recorded since the start. */
  get sequence(): number {
    return this.#sequence;
  }

  /** The latest requests of all tenants behind number `sequence`, at most `limit`, the oldest first. O(answer). */
  latest(sequence: number, limit: number): RequestSummary[] {
    const wanted = Math.min(limit, this.#sequence - sequence, this.#latest.length);
    const first = this.#sequence - wanted + 1;
    const latest = this.#latest.slice(this.#latest.length - wanted);
    return latest.map((each, i) => summaryOf({ ...each, sequence: first + i }));
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

  /** `arrivedAt`: on the gateway's clock, in milliseconds. */
  add(tenant: string, record: RequestRecord, arrivedAt: number): void {
    const bytes = recordBytes(record);
    this.#records.set(tenant, record.id, record, bytes);
    this.#latest.push({ record, tenant, arrivedAt, bytes });
    this.#latestBytes += bytes;
    this.#sequence++;
    while (this.#latest.length > MAX_LATEST || (this.#latestBytes > this.#maxLatestBytes && this.#latest.length > 1)) {
      this.#latestBytes -= this.#latest.shift()!.bytes;
    }
  }

  /** Compares a prompt with the earlier one of this tenant that it shares most with, and remembers its outline. */
  compare(
    tenant: string,
    id: string,
    { model, pieces, outline }: OutlinedPrompt,
    api: PromptApi['name'],
  ): RecordedPrefix {
    const outlines = this.#outlines.get(tenant, OUTLINES_KEY) ?? [];
    const scope = `${api}\n${model}`;
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

function recordBytes({ blocks, model }: RequestRecord): number {
  let bytes = RECORD_BYTES + 2 * (model?.length ?? 0);
  for (const { order, references, shortened } of blocks) {
    bytes += BLOCK_BYTES + NUMBER_BYTES * (order.length + references.length + shortened.length);
  }
  return bytes;
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
    const shared = sharedCharacters(earlier.outline, outline);
    if (best === undefined || shared >= best.shared) best = { earlier, shared };
  }
  return best?.earlier;
}

/** What is kept of a request when it is over. */
export function recordOf(report: Report): RequestRecord {
  return {
    object: 'request',
    id: report.requestId,
    route: report.route,
    model: report.model ?? null,
    status: report.status,
    error: report.errorCode ?? null,
    durationMs: report.durationMs,
    receivedMs: report.receivedMs,
    overheadMs: report.overheadMs ?? null,
    engine: report.engine ?? null,
    queuedMs: report.queuedMs ?? null,
    retrieval: report.retrieval ?? null,
    ttftMs: report.ttftMs ?? null,
    promptTokens: report.promptTokens ?? null,
    cachedTokens: report.cachedTokens ?? null,
    predictedCachedTokens: report.predictedCachedTokens ?? null,
    baselineTokens: report.baselineTokens ?? null,
    gainTokens: report.gainTokens ?? null,
    cacheWriteTokens: report.cacheWriteTokens ?? null,
    cost: report.cost ?? null,
    baselineCost: report.baselineCost ?? null,
    isHeldOut: report.isHeldOut,
    noGain: report.noGain ?? null,
    documents: report.documents ?? null,
    blocks: report.slots,
    references: report.references,
    shortened: report.shortened,
    deduplicatedTokens: report.deduplicatedTokens,
    failedOpen: report.failedOpen,
    session: report.session?.id ?? null,
    sessionBreak: report.sessionBreak ?? null,
    prefix: report.prefix ?? null,
  };
}

function summaryOf({
  record,
  tenant,
  arrivedAt,
  sequence,
}: LatestRequest & { readonly sequence: number }): RequestSummary {
  const { id, route, status, overheadMs, queuedMs, retrieval, ttftMs } = record;
  return {
    sequence,
    id,
    route,
    status,
    arrivedAt: rounded(arrivedAt),
    durationMs: rounded(record.durationMs),
    receivedMs: rounded(record.receivedMs),
    overheadMs: overheadMs && rounded(overheadMs),
    queuedMs: queuedMs && rounded(queuedMs),
    retrievalMs: retrieval && rounded(retrieval.ms),
    aheadMs: rounded(retrieval?.aheadMs ?? 0),
    speculation: retrieval?.speculation ?? null,
    model: record.model,
    tenant,
    engine: record.engine?.name ?? null,
    ttftMs: ttftMs && rounded(ttftMs),
    documents: record.documents,
    promptTokens: record.promptTokens,
    cachedTokens: record.cachedTokens,
    predictedTokens: record.predictedCachedTokens,
    baselineTokens: record.baselineTokens,
    gainTokens: record.gainTokens,
    references: record.references,
    broke: record.sessionBreak?.cause ?? record.prefix?.break?.cause ?? null,
    error: record.error,
    failedOpen: record.failedOpen.length > 0,
  };
}

function rounded(ms: number): number {
  return Math.round(ms * 100) / 100;
}
