import { randomUUID } from 'node:crypto';
import type { Arrangement, Document } from '@warmpath/core';
import { type ServedRequest, TenantCache } from '@warmpath/core/internal';
import type { TenantModel } from './served-histories.js';

/** An arrangement whose result the client has not reported. */
export interface OpenArrangement {
  readonly arrangement: ServedRequest;
  readonly state: TenantModel;
}

/** A remembered arrangement. It does not keep its history, which has a bound of its own. */
interface RememberedArrangement {
  readonly arrangement: ServedRequest;
  readonly state: WeakRef<TenantModel>;
}

/** Estimated bytes of an arrangement beside its documents. */
const ARRANGEMENT_BYTES = 512;
/** Estimated bytes of a document beside its key. */
const DOCUMENT_BYTES = 128;

/**
 * Arrangements of clients that write their own prompts, by the id with which they report the result. Bounded in bytes,
 * shared fairly among tenants. A forgotten one counts as served.
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

  /** Remembers an arrangement. @returns its id, which cannot be guessed */
  open({ arrangement, state }: OpenArrangement): string {
    const id = randomUUID();
    let bytes = ARRANGEMENT_BYTES;
    for (const { key } of arrangement.documents) bytes += DOCUMENT_BYTES + 2 * key.length;
    this.#open.set(state.tenant, id, { arrangement, state: new WeakRef(state) }, bytes);
    return id;
  }

  /** Removes and returns an arrangement; `undefined` if this tenant has none with this id. */
  take(id: string, tenant: string): OpenArrangement | undefined {
    const open = this.#open.take(tenant, id);
    const state = open?.state.deref();
    return state && { arrangement: open!.arrangement, state };
  }
}

/** The parts of an arrangement that a history needs: no texts, no names. */
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
