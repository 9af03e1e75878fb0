import { resolve } from 'node:path';
import { estimateTokens, WarmpathError } from '@warmpath/core';
import type { EmbeddingEndpoint } from '../embeddings/embedding-endpoint.js';
import type { RerankEndpoint } from '../fusion/rerank-endpoint.js';
import { RerankRetriever } from '../fusion/rerank-retriever.js';
import {
  type EmbeddingReport,
  type EmbedPassagesOptions,
  embedPassages,
  manyVectors,
} from '../ingest/embed-passages.js';
import { isWithin, realPathOf } from '../ingest/find-files.js';
import { type IngestOptions, type IngestReader, type IngestReport, ingestFiles } from '../ingest/ingest.js';
import { type CutDocument, cutDocument, type DocumentText, linesOf, tooLong } from '../ingest/read-file.js';
import { Bm25Retriever } from '../lexical/bm25-retriever.js';
import { LexicalIndex } from '../lexical/lexical-index.js';
import { type ChunkSettings, DEFAULT_CHUNKS } from '../parse/chunk.js';
import { RefinedRetriever } from '../refined-retriever.js';
import type { StagedRetriever } from '../staged-retriever.js';
import { CollectionSearch } from '../vector/collection-vectors.js';
import { type CollectionStore, checkEmbedding } from './collection-store.js';
import { type Applied, type CollectionTotals, type DocumentRecord, HANDED_IN, type NewDocument } from './records.js';

/** Documents written in one transaction when they are handed in. */
const BATCH = 256;
/** Longest line of an export: a document is one, and a text file of 64 MB must come back. */
const LONGEST_LINE_BYTES = 256 * 2 ** 20;
/** Text that is cut before others get their turn. */
const SLICE_BYTES = 65_536;
/** Passages of others that get their vectors along with documents that are handed in: a caller waits for them. */
const CATCH_UP = 1024;

interface ImportOptions {
  /** Called after each transaction with the documents that were taken in so far. */
  readonly onTaken?: (documents: number) => void;
  /** Called after each transaction with the passages that got their vectors so far, of those that had none. */
  readonly onEmbedded?: ((embedded: number, total: number) => void) | undefined;
}

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
  readonly #files: IngestReader;
  /** Ends with the last write that was begun. */
  #written: Promise<unknown> = Promise.resolve();

  constructor(
    name: string,
    store: CollectionStore,
    {
      endpoint,
      reranker,
      files,
    }: {
      readonly files: IngestReader;
      readonly endpoint?: EmbeddingEndpoint | undefined;
      readonly reranker?: RerankEndpoint | undefined;
    },
  ) {
    this.name = name;
    this.#store = store;
    this.#index = new LexicalIndex(store);
    this.#endpoint = endpoint;
    this.#files = files;
    const lexical = new Bm25Retriever({
      current: () => this.#index.current(),
      passage: (ordinal, where) => store.passage(ordinal, where),
      filter: (where) => store.matching(where),
    });
    this.#search = endpoint && new CollectionSearch(store, endpoint, lexical);
    const retriever = this.#search ?? lexical;
    const ranked = reranker === undefined ? retriever : new RerankRetriever({ retriever, endpoint: reranker });
    this.retriever = new RefinedRetriever(ranked, (passage, count) => store.neighbours(passage, count));
  }

  get totals(): CollectionTotals {
    return this.#store.totals;
  }

  /** How documents are cut that come in, unless an ingestion says otherwise. */
  get chunks(): ChunkSettings {
    return this.#store.chunks ?? DEFAULT_CHUNKS;
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
   * Takes an export in, as it comes. Errors: WARMPATH_INVALID_REQUEST with the line, and how many documents were taken
   * in before it; WARMPATH_COLLECTION_BUSY, WARMPATH_COLLECTION_EMBEDDINGS.
   */
  import(bytes: AsyncIterable<Buffer>, { onTaken, onEmbedded }: ImportOptions = {}): Promise<Applied & Embedded> {
    let taken = 0;
    const onApplied = (documents: number) => {
      taken = documents;
      onTaken?.(documents);
    };
    return this.#put(
      readExport(bytes, () => taken),
      { onApplied, onEmbedded },
    );
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
      const report = await ingestFiles(this.#store, paths, { ...options, ...this.#files });
      const embedding = await this.#embed({ onProgress: onEmbedded, ...(signal && { signal }) });
      return { ...report, ...this.#reported(embedding) };
    });
  }

  /**
   * Puts documents in, in the place of those of the same ids.
   * Errors: WARMPATH_COLLECTION_BUSY, WARMPATH_COLLECTION_EMBEDDINGS.
   */
  put(documents: Iterable<DocumentText>): Promise<Applied & Embedded> {
    return this.#put(this.#cut(documents));
  }

  /**
   * Puts documents in that are cut already. A part of one replaces none that was read whole, and then counts as
   * nothing. Errors: those of `put`.
   */
  putCut(documents: readonly CutDocument[]): Promise<Applied & Embedded> {
    return this.#put(this.#unlessWhole(documents));
  }

  /** Documents that came from a file, or from below a folder, whether it is still there or not. */
  async documentsAt(path: string): Promise<number> {
    const files = await filesOf(this.#store, path);
    return files.reduce((sum, file) => sum + [...this.#store.documentsFrom(file)].length, 0);
  }

  /**
   * Takes documents out by their ids, or all that came from a file or from below a folder, whether it is still there or
   * not. The files are forgotten: what is still in them comes back when they are ingested again.
   * Error: WARMPATH_COLLECTION_BUSY.
   *
   * @returns how many were removed, and the names that are none of an id, a file or a folder here.
   */
  forget(names: readonly string[]): Promise<{ readonly removed: number; readonly unknown: readonly string[] }> {
    return this.#writing(async () => {
      let removed = 0;
      const unknown: string[] = [];
      for (const name of names) {
        // An empty path would be the folder that the process is in.
        if (name === '') {
          unknown.push(name);
          continue;
        }
        const document = this.#store.document(name);
        const files = document === undefined ? await filesOf(this.#store, name) : [document.origin];
        const ids = document === undefined ? files.flatMap((file) => [...this.#store.documentsFrom(file)]) : [name];
        if (files.length === 0) unknown.push(name);
        for (let from = 0; from < ids.length; from += BATCH) {
          removed += (await this.#store.apply({ removedDocuments: ids.slice(from, from + BATCH) })).removed;
        }
        for (let from = 0; from < files.length; from += BATCH) {
          await this.#store.apply({ removedFiles: files.slice(from, from + BATCH) });
        }
      }
      return { removed, unknown };
    });
  }

  /** Takes documents out by their ids. Error: WARMPATH_COLLECTION_BUSY. */
  remove(ids: readonly string[]): Promise<Applied> {
    return this.#writing(() => this.#store.apply({ removedDocuments: ids }));
  }

  /** Deletes the collection and its files. Error: WARMPATH_COLLECTION_BUSY. */
  async delete(): Promise<void> {
    await this.#written;
    await this.#store.beginWriting(Date.now());
    await this.#search?.close();
    await this.#store.delete();
  }

  /** Waits for what is being written. */
  async close(): Promise<void> {
    await this.#written;
    await this.#search?.close();
    await this.#store.close();
  }

  async *#cut(documents: Iterable<DocumentText>): AsyncIterable<NewDocument> {
    const { chunks } = this;
    for (const document of documents) yield { ...(await cutDocument(document, chunks)), origin: HANDED_IN };
  }

  /** Looks when it is taken, within the write. */
  *#unlessWhole(documents: readonly CutDocument[]): Iterable<NewDocument> {
    for (const document of documents) {
      const before = document.isPart ? this.#store.document(document.id) : undefined;
      const replacesWhole = before !== undefined && !before.isPart;
      if (!replacesWhole) yield { ...document, origin: HANDED_IN };
    }
  }

  #put(
    documents: Iterable<NewDocument> | AsyncIterable<NewDocument>,
    { onApplied, onEmbedded }: Pick<ImportOptions, 'onEmbedded'> & { onApplied?: (documents: number) => void } = {},
  ): Promise<Applied & Embedded> {
    return this.#writing(async () => {
      this.#checkEmbedding();
      const from = this.#store.position.nextOrdinal;
      const sum = { added: 0, changed: 0, unchanged: 0, removed: 0 };
      let batch: NewDocument[] = [];
      const flush = async () => {
        const applied = await this.#store.apply({ documents: batch });
        for (const key of Object.keys(sum) as (keyof Applied)[]) sum[key] += applied[key];
        batch = [];
        onApplied?.(sum.added + sum.changed + sum.unchanged);
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
      const own = await this.#embed({ from, onProgress: onEmbedded });
      if (own === undefined || own.warning !== undefined) return { ...sum, ...this.#reported(own) };
      const others = await this.#embed({ most: CATCH_UP, endsWhenLate: true });
      return { ...sum, ...this.#reported({ ...others, embedded: own.embedded + others!.embedded }) };
    });
  }

  /** Before anything is written: a collection has vectors of one model. */
  #checkEmbedding(): void {
    const { embedding } = this.#store;
    if (embedding === undefined || this.#endpoint === undefined) return;
    const { name: model, dimension } = this.#endpoint;
    checkEmbedding(embedding, { model, dimension });
  }

  async #embed(options: Partial<EmbedPassagesOptions>): Promise<EmbeddingReport | undefined> {
    if (this.#endpoint === undefined) return undefined;
    const { signal = new AbortController().signal } = options;
    return embedPassages(this.#store, this.#endpoint, { ...options, signal });
  }

  #reported(embedding: EmbeddingReport | undefined): Embedded {
    const warning = manyVectors(this.#store.vectorCount);
    return embedding === undefined ? {} : { embedding: { ...(warning && { warning }), ...embedding } };
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

/** Files that were ingested by a path, or from below it; else those that it leads to by links. */
async function filesOf(store: CollectionStore, path: string): Promise<string[]> {
  const files = filesAt(store, resolve(path));
  return files.length > 0 ? files : filesAt(store, await realPathOf(path));
}

/** Files of the collection that are at a path, or below it. */
function filesAt(store: CollectionStore, path: string): string[] {
  const [first] = store.documentsFrom(path);
  if (first !== undefined || store.file(path) !== undefined) return [path];
  return [...store.files()].flatMap((file) => (isWithin(path, file.path) ? [file.path] : []));
}

/**
 * Reads an export without taking anything in.
 * @returns how many documents it has.
 * @throws WARMPATH_INVALID_REQUEST with the first bad line.
 */
export async function checkExport(bytes: AsyncIterable<Buffer>): Promise<number> {
  let documents = 0;
  for await (const _ of readExport(bytes, () => 0)) documents++;
  return documents;
}

/** `taken`: how many of the documents are in the collection by now. */
async function* readExport(bytes: AsyncIterable<Buffer>, taken: () => number): AsyncIterable<NewDocument> {
  let number = 0;
  for await (const { line } of linesOf(bytes, LONGEST_LINE_BYTES)) {
    number++;
    const refuse = (reason: string) => {
      const detail = `${reason}; ${taken().toLocaleString('en')} documents before it were taken in.`;
      return new WarmpathError('WARMPATH_INVALID_REQUEST', { path: `line ${number}`, detail });
    };
    if (line === undefined) throw refuse(tooLong(LONGEST_LINE_BYTES));
    if (line.trim() === '') continue;
    let value: Record<string, unknown>;
    try {
      value = JSON.parse(line) as Record<string, unknown>;
    } catch {
      throw refuse('it is not valid JSON');
    }
    const { id, title, metadata, bytes, passages } = value ?? {};
    if (typeof id !== 'string' || !Array.isArray(passages)) throw refuse('it is no document of an export');
    yield {
      id,
      ...(typeof title === 'string' && { title }),
      ...(typeof metadata === 'object' && metadata !== null && { metadata: metadata as Record<string, unknown> }),
      bytes: Number(bytes) || 0,
      origin: HANDED_IN,
      passages: passages.map((passage: unknown) => {
        const { title: heading, content, pages, lines } = (passage ?? {}) as Record<string, unknown>;
        if (typeof content !== 'string') throw refuse('a passage has no string `content`');
        return {
          ...(typeof heading === 'string' && { title: heading }),
          content,
          tokens: estimateTokens(content),
          ...(typeof pages === 'string' && { pages }),
          ...(typeof lines === 'string' && { lines }),
        };
      }),
    };
  }
}
