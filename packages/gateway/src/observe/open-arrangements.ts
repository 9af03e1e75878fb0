import { randomUUID } from 'node:crypto';
import type { Arrangement, Document, ServedRequest } from '@warmpath/core';
import type { TenantModel } from './served-histories.js';
import { TenantCache } from './tenant-cache.js';

/** An arrangement whose client has not said what became of it. */
export interface OpenArrangement {
  readonly arrangement: ServedRequest;
  readonly state: TenantModel;
}

/** Bytes of one document of an arrangement beside its key: an object and its place. */
const DOCUMENT_BYTES = 128;

/**
 * Arrangements that clients took away to write their own prompts, by the name under which they may report back. Within
 * a budget of bytes, shared fairly among tenants; one that is forgotten counts as served, which is what it was taken
 * for.
 */
export class OpenArrangements {
  readonly #open: TenantCache<OpenArrangement>;

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
  open(arrangement: OpenArrangement): string {
    const id = randomUUID();
    let bytes = DOCUMENT_BYTES;
    for (const { key } of arrangement.arrangement.documents) bytes += DOCUMENT_BYTES + 2 * key.length;
    this.#open.set(arrangement.state.tenant, id, arrangement, bytes);
    return id;
  }

  /** Takes one out; `undefined` if this tenant has none of that name (any more). */
  take(id: string, tenant: string): OpenArrangement | undefined {
    return this.#open.take(tenant, id);
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
