import { type Document, type DocumentMemo, renderDocuments, type TemplateName } from '@warmpath/core';

interface Entry {
  readonly tenant: string;
  readonly givenId: string | undefined;
  readonly document: Document;
  /** The rendered document as it stands inside a JSON string. */
  readonly json: string;
  readonly bytes: number;
}

/** Characters of a text that its place in the table depends on. */
const SAMPLES = 32;
/** Passages seen once, remembered by their sample alone; a power of two. */
const CANDIDATES = 16_384;
/** Bytes of an entry beside its text: objects, map slot, key. Generous. */
const ENTRY_BYTES = 512;
/** A single passage takes at most this part of the memory, so that one giant does not evict all others. */
const LARGEST_PART = 1 / 16;

/**
 * Remembers passages that come again, as they do in every prompt that Warmpath is for: their fingerprint, tokens and
 * rendered JSON. They are found by a few characters and then compared whole, which costs a fiftieth of the fingerprint,
 * so a passage can never be taken for another one. A passage is kept from its second request on: the many that come once
 * cost four bytes each. Tenants share the space and nothing else, or the time a request takes would tell what others
 * asked for.
 *
 * Bounded by `maxBytes`, counting two bytes a character; the least recently used passage goes first.
 */
export class DocumentMemory {
  readonly #maxBytes: number;
  readonly #template: TemplateName;
  readonly #entries = new Map<number, Entry>();
  readonly #seenOnce = new Int32Array(CANDIDATES);
  #bytes = 0;

  constructor(maxBytes: number, template: TemplateName) {
    this.#maxBytes = maxBytes;
    this.#template = template;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get size(): number {
    return this.#entries.size;
  }

  /** The part of the memory that one tenant may see. */
  of(tenant: string): TenantDocuments {
    return {
      recall: (givenId, title, content) => {
        const key = sample(tenant, title, content);
        const entry = this.#find(key, tenant, title, content);
        if (entry === undefined || entry.givenId !== givenId) return undefined;
        this.#entries.delete(key);
        this.#entries.set(key, entry);
        return entry.document;
      },
      remember: (givenId, document) => this.#remember(tenant, givenId, document),
      renderedJson: (documents) => this.#renderedJson(tenant, documents),
    };
  }

  #find(key: number, tenant: string, title: string | undefined, content: string): Entry | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined || entry.tenant !== tenant) return undefined;
    return entry.document.title === title && entry.document.content === content ? entry : undefined;
  }

  #renderedJson(tenant: string, documents: readonly Document[]): string {
    const parts: string[] = [];
    // Unknown neighbours are escaped together: each call of JSON.stringify costs as much as some hundred characters.
    let unknown: Document[] = [];
    for (const document of documents) {
      const { title, content, label } = document;
      const entry = this.#find(sample(tenant, title, content), tenant, title, content);
      if (entry === undefined || entry.document.label !== label) {
        unknown.push(document);
        continue;
      }
      if (unknown.length > 0) parts.push(this.#render(unknown));
      unknown = [];
      parts.push(entry.json);
    }
    if (unknown.length > 0) parts.push(this.#render(unknown));
    return parts.join('');
  }

  #remember(tenant: string, givenId: string | undefined, document: Document): void {
    const key = sample(tenant, document.title, document.content);
    const slot = key & (CANDIDATES - 1);
    if (this.#seenOnce[slot] !== key) {
      this.#seenOnce[slot] = key;
      return;
    }
    const json = this.#render([document]);
    const characters = json.length + document.content.length + 2 * document.id.length + (document.title?.length ?? 0);
    const bytes = ENTRY_BYTES + 2 * characters;
    if (bytes > this.#maxBytes * LARGEST_PART) return;
    this.#drop(key);
    this.#entries.set(key, { tenant, givenId, document, json, bytes });
    this.#bytes += bytes;
    while (this.#bytes > this.#maxBytes) this.#drop(this.#entries.keys().next().value!);
  }

  #drop(key: number): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    this.#entries.delete(key);
    this.#bytes -= entry.bytes;
  }

  #render(documents: readonly Document[]): string {
    return JSON.stringify(renderDocuments(documents, this.#template)).slice(1, -1);
  }
}

/** One tenant's view of the memory. */
export interface TenantDocuments extends DocumentMemo {
  /** The documents rendered one after the other, as the inside of a JSON string. O(length). */
  renderedJson(documents: readonly Document[]): string;
}

/** A hash of the tenant, the length, and some dozens of characters spread evenly over title and content. O(1). */
function sample(tenant: string, title: string | undefined, content: string): number {
  let hash = mixed(content.length, tenant);
  if (title !== undefined) hash = mixed(hash, title);
  return mixed(hash, content);
}

function mixed(seed: number, text: string): number {
  let hash = Math.imul(seed ^ text.length, 0x85ebca6b);
  const step = Math.ceil(text.length / SAMPLES);
  for (let at = 0; at < text.length; at += step) {
    hash = Math.imul(hash ^ text.charCodeAt(at), 0x9e3779b1);
    hash ^= hash >>> 15;
  }
  return hash;
}
