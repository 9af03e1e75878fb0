import { randomUUID } from 'node:crypto';
import type { Arrangement, Document } from '@warmpath/core';
import type { ServedRequest } from '@warmpath/core/internal';
import type { TenantModel } from './served-histories.js';
import { TenantCache } from './tenant-cache.js';

/** An arrangement whose client has not said what became of it. */
export interface OpenArrangement {
  readonly arrangement: ServedRequest;
  readonly state: TenantModel;
}

/** What is remembered of one. The history may go first: it is bounded by itself, and not to be kept by this. */
interface RememberedArrangement {
  readonly arrangement: ServedRequest;
  readonly state: WeakRef<TenantModel>;
}

/** Bytes of an arrangement beside its documents: a few objects, and what stands before the documents. */
const ARRANGEMENT_BYTES = 512;
/** Bytes of one document of an arrangement beside its key: an object and its place. */
const DOCUMENT_BYTES = 128;

/**
 * Arrangements that clients took away to write their own prompts, by the name under which they may report back. Within
 * a budget of bytes, shared fairly among tenants; one that is forgotten, itself or the history that it belongs to,
 * counts as served, which is what it was taken for.
 */
export class OpenArrangements {
  readonly #open: TenantCache<RememberedArrangement>;

  constructor(maxBytes: number) {
    this.#open = new TenantCache(maxBytes);
  }

  get size(): number {
    return this.#open.size;
  }

  get bytes(): number {
    return this.#open.bytes;
  }

  /** Remembers one and names it. The name cannot be guessed. */
  open({ arrangement, state }: OpenArrangement): string {
    const id = randomUUID();
    let bytes = ARRANGEMENT_BYTES;
    for (const { key } of arrangement.documents) bytes += DOCUMENT_BYTES + 2 * key.length;
    this.#open.set(state.tenant, id, { arrangement, state: new WeakRef(state) }, bytes);
    return id;
  }

  /** Takes one out; `undefined` if this tenant has none of that name (any more). */
  take(id: string, tenant: string): OpenArrangement | undefined {
    const open = this.#open.take(tenant, id);
    const state = open?.state.deref();
    return state && { arrangement: open!.arrangement, state };
  }
}

/** What a history needs of an arrangement to hear what became of it: no text, no names. */
export function withoutTexts({ documents, preamble, order }: Arrangement): ServedRequest {
  const bare = ({ key, tokens }: Document): Document => ({
    id: '',
    label: '',
    title: undefined,
    content: '',
    metadata: undefined,
    key,
    tokens,
  });
  return { documents: documents.map(bare), preamble, order };
}
