import { estimateTokens, WarmpathError } from '@warmpath/core';
import type { EmbeddingEndpoint } from '../embeddings/embedding-endpoint.js';
import type { RerankEndpoint } from '../fusion/rerank-endpoint.js';
import { RerankRetriever } from '../fusion/rerank-retriever.js';
import { type EmbeddingReport, type EmbedPassagesOptions, embedPassages } from '../ingest/embed-passages.js';
import { type IngestOptions, type IngestReport, ingestFiles } from '../ingest/ingest.js';
import { cutDocument, type DocumentText } from '../ingest/read-file.js';
import { Bm25Retriever } from '../lexical/bm25-retriever.js';
import { LexicalIndex } from '../lexical/lexical-index.js';
import { DEFAULT_CHUNKS } from '../parse/chunk.js';
import type { StagedRetriever } from '../staged-retriever.js';
import { CollectionSearch } from '../vector/collection-vectors.js';
import { type CollectionStore, checkEmbedding } from './collection-store.js';
import { type Applied, type CollectionTotals, type DocumentRecord, HANDED_IN, type NewDocument } from './records.js';

/** Documents written in one transaction when they are handed in. */
const BATCH = 256;
/** Text that is cut before others get their turn. */
const SLICE_BYTES = 65_536;
/** Passages of others that get their vectors along with documents that are handed in: a caller waits for them. */
const CATCH_UP = 1024;

/** What a write says of vectors, where the collection has an endpoint for them. */
type Embedded = { readonly embedding?: EmbeddingReport };

/**
 * A collection: documents cut into passages, and the search over them. Any number may be open on the same folder; one
 * writes at a time.
 */
export class Collection {
  readonly name: string;
  /**
   * Over the passages as they are when a search begins: by words, and where passages have vectors of the configured
   * model, then by words and vectors together; ranked anew at last where an endpoint does that.
   */
  readonly retriever: StagedRetriever;
  readonly #store: CollectionStore;
  readonly #index: LexicalIndex;
  readonly #endpoint: EmbeddingEndpoint | undefined;
  readonly #search: CollectionSearch | undefined;
  /** Ends with the last write that was begun. */
  #written: Promise<unknown> = Promise.resolve();

  constructor(
    name: string,
    store: CollectionStore,
    {
      endpoint,
      reranker,
      graphAbove,
    }: {
      readonly endpoint?: EmbeddingEndpoint | undefined;
      readonly reranker?: RerankEndpoint | undefined;
      readonly graphAbove?: number | undefined;
    },
  ) {
    this.name = name;
    this.#store = store;
    this.#index = new LexicalIndex(store);
    this.#endpoint = endpoint;
    const lexical = new Bm25Retriever({
      current: () => this.#index.current(),
      passage: (ordinal) => store.passage(ordinal),
    });
    this.#search = endpoint && new CollectionSearch(store, endpoint, { lexical, graphAbove });
    const retriever = this.#search ?? lexical;
    this.retriever = reranker === undefined ? retriever : new RerankRetriever({ retriever, endpoint: reranker });
  }

  get totals(): CollectionTotals {
    return this.#store.totals;
  }

  /** Whether somebody deleted it since it was opened. */
  get isDeleted(): boolean {
    return this.#store.isDeleted;
  }

  document(id: string): DocumentRecord | undefined {
    return this.#store.document(id);
  }

  /** In the order in which they came in, from behind the document `after` on. */
  documents(after?: string): Iterable<DocumentRecord> {
    return this.#store.documents(after);
  }

  /** All documents with their passages, each as a line of JSON: what `import` takes. */
  *export(): Iterable<string> {
    for (const document of this.#store.documents()) {
      const { id, title, metadata, bytes } = document;
      yield `${JSON.stringify({ id, title, metadata, bytes, passages: this.#store.passagesOf(document) })}\n`;
    }
  }

  /**
   * Takes lines of an export in. Errors: WARMPATH_INVALID_REQUEST with the line; WARMPATH_COLLECTION_BUSY,
   * WARMPATH_COLLECTION_EMBEDDINGS.
   */
  import(lines: AsyncIterable<string>): Promise<Applied & Embedded> {
    return this.#put(readExport(lines));
  }

  /**
   * Brings the collection to what files say; passages without vectors, new or not, then get theirs.
   * Errors: WARMPATH_COLLECTION_BUSY, WARMPATH_COLLECTION_EMBEDDINGS.
   */
  ingest(
    paths: readonly string[],
    {
      onEmbedded,
      ...options
    }: IngestOptions & { readonly onEmbedded?: (embedded: number, total: number) => void } = {},
  ): Promise<IngestReport & Embedded> {
    const { signal } = options;
    return this.#writing(async () => {
      this.#checkEmbedding();
      const report = await ingestFiles(this.#store, paths, options);
      return { ...report, ...(await this.#embed({ onProgress: onEmbedded, ...(signal && { signal }) })) };
    });
  }

  /**
   * Puts documents in, in the place of those of the same ids.
   * Errors: WARMPATH_COLLECTION_BUSY, WARMPATH_COLLECTION_EMBEDDINGS.
   */
  put(documents: Iterable<DocumentText>): Promise<Applied & Embedded> {
    const cut = function* () {
      for (const document of documents) yield { ...cutDocument(document, DEFAULT_CHUNKS), origin: HANDED_IN };
    };
    return this.#put(cut());
  }

  /** Takes documents out by their ids. Error: WARMPATH_COLLECTION_BUSY. */
  remove(ids: readonly string[]): Promise<Applied> {
    return this.#writing(() => this.#store.apply({ removedDocuments: ids }));
  }

  /** Deletes the collection and its files. Error: WARMPATH_COLLECTION_BUSY. */
  async delete(): Promise<void> {
    await this.#written;
    await this.#store.beginWriting(Date.now());
    await this.#search?.close({ saves: false });
    await this.#store.delete();
  }

  /** Waits for what is being written. */
  async close(): Promise<void> {
    await this.#written;
    await this.#search?.close({ saves: true });
    await this.#store.close();
  }

  #put(documents: Iterable<NewDocument> | AsyncIterable<NewDocument>): Promise<Applied & Embedded> {
    return this.#writing(async () => {
      this.#checkEmbedding();
      const from = this.#store.position.nextOrdinal;
      const sum = { added: 0, changed: 0, unchanged: 0, removed: 0 };
      let batch: NewDocument[] = [];
      const flush = async () => {
        const applied = await this.#store.apply({ documents: batch });
        for (const key of Object.keys(sum) as (keyof Applied)[]) sum[key] += applied[key];
        batch = [];
      };
      let bytes = 0;
      for await (const document of documents) {
        batch.push(document);
        bytes += document.bytes;
        if (batch.length === BATCH) await flush();
        if (bytes < SLICE_BYTES) continue;
        // Others get their turn while much is cut.
        bytes = 0;
        await new Promise(setImmediate);
      }
      await flush();
      const own = await this.#embed({ from });
      if (own.embedding === undefined || own.embedding.warning !== undefined) return { ...sum, ...own };
      const { embedding: others } = await this.#embed({ most: CATCH_UP });
      return { ...sum, embedding: { ...others, embedded: own.embedding.embedded + others!.embedded } };
    });
  }

  /** Before anything is written: a collection has vectors of one model. */
  #checkEmbedding(): void {
    const { embedding } = this.#store;
    if (embedding === undefined || this.#endpoint === undefined) return;
    const { name: model, dimension } = this.#endpoint;
    checkEmbedding(embedding, { model, dimension });
  }

  async #embed(options: Partial<EmbedPassagesOptions>): Promise<Embedded> {
    if (this.#endpoint === undefined) return {};
    const { signal = new AbortController().signal } = options;
    return { embedding: await embedPassages(this.#store, this.#endpoint, { ...options, signal }) };
  }

  #writing<Result>(write: () => Promise<Result>): Promise<Result> {
    // One after the other within this process; another process gets an error while this one writes.
    const result = this.#written.then(() => this.#write(write));
    this.#written = result.catch(() => {});
    return result;
  }

  async #write<Result>(write: () => Promise<Result>): Promise<Result> {
    await this.#store.beginWriting(Date.now());
    try {
      const result = await write();
      await this.#store.dropLeftVectors();
      await this.#index.save();
      await this.#store.flushed();
      return result;
    } finally {
      await this.#store.endWriting();
    }
  }
}

async function* readExport(lines: AsyncIterable<string>): AsyncIterable<NewDocument> {
  let number = 0;
  for await (const line of lines) {
    number++;
    if (line.trim() === '') continue;
    const refuse = (detail: string) =>
      new WarmpathError('WARMPATH_INVALID_REQUEST', { path: `line ${number}`, detail });
    let value: Record<string, unknown>;
    try {
      value = JSON.parse(line) as Record<string, unknown>;
    } catch {
      throw refuse('it is not valid JSON.');
    }
    const { id, title, metadata, bytes, passages } = value ?? {};
    if (typeof id !== 'string' || !Array.isArray(passages)) throw refuse('it is no document of an export.');
    yield {
      id,
      ...(typeof title === 'string' && { title }),
      ...(typeof metadata === 'object' && metadata !== null && { metadata: metadata as Record<string, unknown> }),
      bytes: Number(bytes) || 0,
      origin: HANDED_IN,
      passages: passages.map((passage: unknown) => {
        const { title: heading, content } = (passage ?? {}) as Record<string, unknown>;
        if (typeof content !== 'string') throw refuse('a passage has no string `content`.');
        return { ...(typeof heading === 'string' && { title: heading }), content, tokens: estimateTokens(content) };
      }),
    };
  }
}
