import { hash } from 'node:crypto';
import { type ArrangeRequest, type Document, renderDocument, type TemplateName } from '@warmpath/core';
import {
  DOCUMENT_FIELDS,
  DOCUMENT_ID_FIELDS,
  NESTED_DOCUMENT_FIELDS,
  type PrepareRequestOptions,
  requestSteps,
  TenantCache,
  type WorkSteps,
} from '@warmpath/core/internal';
import type { RequestSwitches } from '../intake/parse-request.js';
import { escaped } from '../json/json-body.js';
import { type ByteSpan, JsonScanner } from '../json/json-scanner.js';
import { UNINTERRUPTED_SIZE } from '../limits/load.js';

/** Copies bytes that are kept: a small buffer would keep the 8 KiB that it shares with others. */
export function ownBytes(bytes: Buffer): Buffer {
  const own = Buffer.allocUnsafeSlow(bytes.length);
  bytes.copy(own);
  return own;
}

/** Documents seen once, of which only the hash is remembered. */
const MAX_SEEN_ONCE = 16_384;
/** Estimated bytes of a prepared document beside its texts. */
const ENTRY_BYTES = 416;
/** Part of the cache that one document may take. */
const MAX_ENTRY_PART = 1 / 16;

/** Options that decide how documents are read and written. */
export interface DocumentCacheOptions {
  readonly maxBytes: number;
  readonly template: TemplateName;
  readonly limits: { readonly documents: number; readonly documentLength: number };
}

/**
 * Caches documents by a hash of their JSON: prepared, and rendered as the inside of a JSON string. A document is cached
 * from its second request on. Tenants share nothing, because the time of a request would show what others asked for.
 * Bounded in bytes.
 */
export class DocumentCache {
  readonly #options: DocumentCacheOptions;
  readonly #documents: TenantCache<Document>;
  /** Hashes, the oldest first. */
  readonly #seenOnce = new Set<string>();
  /** Rendered documents, kept as long as the document. */
  readonly #rendered = new WeakMap<Document, Buffer>();
  readonly #remembered = new WeakSet<Document>();

  constructor(options: DocumentCacheOptions) {
    this.#options = options;
    this.#documents = new TenantCache(options.maxBytes);
  }

  get bytes(): number {
    return this.#documents.bytes;
  }

  get size(): number {
    return this.#documents.size;
  }

  /**
   * Reads and checks the documents and switches of a request. O(length); cached documents are only hashed. Renders the
   * documents of a long request as well.
   *
   * @param span the array of documents; `undefined` for none
   * @throws WarmpathError those of core's `prepareRequest`, with paths into the body
   */
  *prepare(
    tenant: string,
    scan: JsonScanner,
    span: ByteSpan | undefined,
    switches: RequestSwitches,
    options: Pick<PrepareRequestOptions, 'switchesPath'>,
  ): WorkSteps<ArrangeRequest> {
    const { template, limits } = this.#options;
    const elements = span === undefined ? [] : scan.again().elements(span.start, limits.documents + 1);
    const hashes: string[] = [];
    const read = (position: number): unknown => readFields(scan.bytes, elements[position]!);
    const size = (position: number): number => elements[position]!.end - elements[position]!.start;
    const list = { length: elements.length, read, size };
    const request = yield* requestSteps(list, switches as Record<string, unknown>, {
      switchesPath: options.switchesPath,
      limits: { maxDocuments: limits.documents, maxContentLength: limits.documentLength },
      template,
      memo: {
        recall: (position) => {
          const { start, end } = elements[position]!;
          hashes[position] = hash('sha256', scan.bytes.subarray(start, end));
          return this.#documents.get(tenant, hashes[position]);
        },
        remember: (position, document) => this.#remember(tenant, hashes[position]!, document, size(position)),
      },
    });
    // Documents of a short request are rendered when they are sent.
    if (span !== undefined && span.end - span.start > UNINTERRUPTED_SIZE) {
      for (const document of request.documents) {
        this.rendered(document);
        yield document.content.length;
      }
    }
    return request;
  }

  /** A document as in the prompt, as the inside of a JSON string. O(length), once for a cached document. */
  rendered(document: Document): Buffer {
    let rendered = this.#rendered.get(document);
    if (rendered === undefined) {
      rendered = escaped(renderDocument(document, this.#options.template));
      if (this.#remembered.has(document)) rendered = ownBytes(rendered);
      this.#rendered.set(document, rendered);
    }
    return rendered;
  }

  #remember(tenant: string, key: string, document: Document, length: number): void {
    const seen = `${tenant}\n${key}`;
    if (!this.#seenOnce.delete(seen)) {
      this.#seenOnce.add(seen);
      if (this.#seenOnce.size > MAX_SEEN_ONCE) this.#seenOnce.delete(this.#seenOnce.values().next().value!);
      return;
    }
    // The rendered bytes and the texts of the document.
    const bytes = ENTRY_BYTES + length + 2 * document.content.length;
    if (bytes > this.#options.maxBytes * MAX_ENTRY_PART) return;
    this.#remembered.add(document);
    this.#documents.set(tenant, key, document, bytes);
  }
}

/**
 * The fields of a document that core reads, without the content of its metadata, which may be large. O(JSON).
 *
 * @param isNested whether this is a document inside a field of another one
 */
function readFields(bytes: Buffer, span: ByteSpan, isNested = false): unknown {
  // A scanner of its own: bytes scanned before do not count against its bounds.
  const scan = new JsonScanner(bytes);
  if (!scan.isObject(span)) return scan.isArray(span) ? [] : scan.parse(span);
  const document: Record<string, unknown> = {};
  for (const { key, valueStart, end } of scan.members(span.start)) {
    const value = { start: valueStart, end };
    if (key === 'metadata') document[key] = scan.isObject(value) ? undefined : readField(scan, value);
    else if (DOCUMENT_ID_FIELDS.has(key)) document[key] = readId(scan, value);
    else if (DOCUMENT_FIELDS.has(key)) document[key] = readField(scan, value);
    else if (NESTED_DOCUMENT_FIELDS.has(key) && !isNested) document[key] = readFields(bytes, value, true);
  }
  return document;
}

/** A number that JavaScript would round is read as its digits: ids of 64 bits stay apart. */
function readId(scan: JsonScanner, value: ByteSpan): unknown {
  const id = readField(scan, value);
  return typeof id !== 'number' || Number.isSafeInteger(id)
    ? id
    : scan.bytes.toString('latin1', value.start, value.end);
}

/** Arrays and objects are invalid here and may be large, so they are not parsed. */
function readField(scan: JsonScanner, value: ByteSpan): unknown {
  if (scan.isObject(value)) return {};
  return scan.isArray(value) ? [] : scan.parse(value);
}
