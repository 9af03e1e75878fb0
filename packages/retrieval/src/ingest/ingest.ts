import { stat } from 'node:fs/promises';
import { WarmpathError } from '@warmpath/core';
import { fileErrorReason } from '@warmpath/core/internal';
import type { CollectionStore } from '../collections/collection-store.js';
import { type FileRecord, HANDED_IN, hashOf, type NewDocument } from '../collections/records.js';
import { type ChunkSettings, DEFAULT_CHUNKS } from '../parse/chunk.js';
import type { FileReader } from './file-reader.js';
import {
  type FindOptions,
  type FoundFile,
  type FoundLink,
  findFiles,
  type IngestError,
  isWithin,
  type SkippedFile,
} from './find-files.js';

/** How far an ingestion is. What it counts is committed. */
export interface IngestProgress {
  readonly files: number;
  readonly totalFiles: number;
  readonly bytes: number;
  readonly totalBytes: number;
}

/** What an ingestion did. */
export interface IngestReport {
  readonly files: number;
  /** Files that are as they were, and were not read. */
  readonly unchangedFiles: number;
  /** Files and folders that were left out. */
  readonly skippedCount: number;
  /** The first thousand of them. */
  readonly skipped: readonly SkippedFile[];
  /** Links in folders that were followed, and links whose target was left out; the first thousand of each. */
  readonly followedLinks: readonly FoundLink[];
  readonly followedLinkCount: number;
  readonly skippedLinks: readonly FoundLink[];
  readonly skippedLinkCount: number;
  readonly bytes: number;
  /** Documents. */
  readonly added: number;
  readonly changed: number;
  readonly removed: number;
  /** The first thousand. */
  readonly errors: readonly IngestError[];
  /** What was read with doubt; the first thousand. */
  readonly doubts: readonly IngestError[];
  readonly errorCount: number;
}

export interface IngestOptions extends FindOptions {
  /** How documents are cut from now on; as before if left out. */
  readonly chunks?: ChunkSettings;
  readonly signal?: AbortSignal;
  /** Milliseconds since 1970. */
  readonly now?: () => number;
  readonly onProgress?: (progress: IngestProgress) => void;
  readonly onError?: (error: IngestError) => void;
}

/** Where an ingestion has its files read. */
export interface IngestReader {
  readonly reader: FileReader;
  /** Files of several tenants take turns. */
  readonly tenant: string;
}

/** Raised when documents are cut another way, so that files are read again. */
const CUTTING = 2;
const MAX_ERRORS = 1000;
const MAX_SKIPPED = 1000;
const MAX_LINKS = 1000;
/** What is written in one transaction. */
const BATCH_DOCUMENTS = 256;
const BATCH_PASSAGES = 1024;
const BATCH_BYTES = 16 * 2 ** 20;
/** In the place of the hash of a file of which a part could not be read. */
const READ_IN_PART = '';
/** A file that was written this shortly before it was read may be written again within the same tick of its time. */
const FRESH_MS = 2000;

/**
 * Brings a collection to what files say. Files that are as they were are not read; documents of files that are gone
 * leave. Each batch is one transaction, so after a kill the same call goes on where it was. Begin to write before.
 */
export async function ingestFiles(
  store: CollectionStore,
  paths: readonly string[],
  { reader, tenant, ...options }: IngestOptions & IngestReader,
): Promise<IngestReport> {
  const signal = options.signal ?? new AbortController().signal;
  const { chunks = store.chunks ?? DEFAULT_CHUNKS } = options;
  const found = await findFiles(paths, { ...options, signal });
  await store.keepChunks(chunks);
  const ingestion = new Ingestion(store, found.files, { ...options, reader, tenant, chunks, signal });
  for (const error of found.errors) ingestion.fail(error);
  for (const skipped of found.skipped) ingestion.skip(skipped);
  for (const file of found.files) await ingestion.take(file);
  const names = new Set(found.files.map(({ path }) => path));
  for (const { path } of [...store.files()]) {
    const isOurs = !names.has(path) && found.folders.some((folder) => isWithin(folder, path));
    // A folder that could not be read says nothing about what is in it.
    if (isOurs && (found.errors.length === 0 || (await isGone(path)))) await ingestion.remove(path);
  }
  const { followedLinks, skippedLinks } = found;
  return {
    ...(await ingestion.finish()),
    followedLinks: followedLinks.slice(0, MAX_LINKS),
    followedLinkCount: followedLinks.length,
    skippedLinks: skippedLinks.slice(0, MAX_LINKS),
    skippedLinkCount: skippedLinks.length,
  };
}

class Ingestion {
  readonly #store: CollectionStore;
  readonly #chunks: ChunkSettings;
  readonly #settings: string;
  readonly #reader: FileReader;
  readonly #tenant: string;
  readonly #signal: AbortSignal;
  readonly #now: () => number;
  readonly #onProgress: (progress: IngestProgress) => void;
  readonly #onError: (error: IngestError) => void;
  readonly #totalFiles: number;
  readonly #totalBytes: number;
  /** Of the file that is being read, what is in documents that were taken. */
  #partOfFile = 0;
  #documents: NewDocument[] = [];
  #passages = 0;
  /** Of the files, in the documents that wait for the next transaction. */
  #bytes = 0;
  #files: FileRecord[] = [];
  #removedDocuments: string[] = [];
  #removedFiles: string[] = [];
  readonly #errors: IngestError[] = [];
  readonly #doubts: IngestError[] = [];
  readonly #skipped: SkippedFile[] = [];
  #counts = { files: 0, unchangedFiles: 0, skippedCount: 0, bytes: 0, added: 0, changed: 0, removed: 0, errorCount: 0 };

  constructor(
    store: CollectionStore,
    files: readonly FoundFile[],
    {
      chunks,
      now = Date.now,
      onProgress,
      onError,
      signal,
      reader,
      tenant,
    }: IngestOptions & IngestReader & { readonly chunks: ChunkSettings; readonly signal: AbortSignal },
  ) {
    this.#store = store;
    this.#chunks = chunks;
    this.#reader = reader;
    this.#tenant = tenant;
    this.#settings = `${CUTTING}/${chunks.tokens}/${chunks.overlap}`;
    this.#signal = signal;
    this.#now = now;
    this.#onProgress = onProgress ?? (() => {});
    this.#onError = onError ?? (() => {});
    this.#totalFiles = files.length;
    this.#totalBytes = files.reduce((sum, { size }) => sum + size, 0);
  }

  fail(error: IngestError): void {
    this.#counts.errorCount++;
    if (this.#errors.length < MAX_ERRORS) this.#errors.push(error);
    this.#onError(error);
  }

  skip(skipped: SkippedFile): void {
    this.#counts.skippedCount++;
    if (this.#skipped.length < MAX_SKIPPED) this.#skipped.push(skipped);
  }

  async take(file: FoundFile): Promise<void> {
    this.#signal.throwIfAborted();
    const known = this.#store.file(file.path);
    const isSame = known?.size === file.size && known.settings === this.#settings;
    if (isSame && known.modifiedMs === file.modifiedMs) {
      this.#counts.unchangedFiles++;
    } else {
      try {
        await this.#read(file, isSame ? known : undefined);
      } catch (error) {
        if (this.#signal.aborted) throw this.#signal.reason;
        if (isOurs(error)) throw error;
        if (isNoText(error) && file.format === undefined && !file.isNamed)
          this.skip({ file: file.name, reason: reasonOf(error) });
        else this.fail({ file: file.name, message: reasonOf(error) });
      }
    }
    this.#counts.files++;
    this.#counts.bytes += file.size;
    this.#partOfFile = 0;
    if (this.#passages === 0 && this.#documents.length === 0) this.#tell();
  }

  async remove(path: string): Promise<void> {
    this.#removedDocuments.push(...this.#store.documentsFrom(path));
    this.#removedFiles.push(path);
    if (this.#removedDocuments.length >= BATCH_DOCUMENTS) await this.#flush();
  }

  async finish() {
    await this.#flush();
    return { ...this.#counts, skipped: this.#skipped, errors: this.#errors, doubts: this.#doubts };
  }

  async #read(file: FoundFile, same: FileRecord | undefined): Promise<void> {
    const startedMs = this.#now();
    const record = (hash: string): FileRecord => ({
      path: file.path,
      size: file.size,
      modifiedMs: hash !== READ_IN_PART && startedMs - file.modifiedMs > FRESH_MS ? file.modifiedMs : 0,
      hash,
      settings: this.#settings,
    });
    const seen = new Set<string>();
    let isWhole = true;
    let isEmpty = false;
    let hash = READ_IN_PART;
    const options = { tenant: this.#tenant, signal: this.#signal, knownHash: same?.hash };
    for await (const part of this.#reader.documents(file, this.#chunks, options)) {
      if ('unread' in part) {
        const { isRead, ...place } = part.unread;
        const error = { file: file.name, ...place };
        if (isRead) {
          if (this.#doubts.length < MAX_ERRORS) this.#doubts.push(error);
          this.#onError(error);
          continue;
        }
        this.fail(error);
        isWhole = false;
        continue;
      }
      if ('hash' in part) {
        hash = part.hash;
        if (!part.isKnown) continue;
        this.#counts.unchangedFiles++;
        this.#files.push(record(hash));
        return;
      }
      const { document: read, bytes } = part;
      if (read.isPart && this.#wasReadWhole(file.path)) return;
      if (read.passages.length === 0) {
        this.#leaveEmpty(file, read.id);
        // A file of one document is named at each run.
        isEmpty = read.id === file.name;
        continue;
      }
      const id = this.#freeId(read.id, file.path);
      seen.add(id);
      this.#documents.push({ ...read, id, origin: file.path });
      this.#passages += read.passages.length;
      this.#bytes += Math.max(read.bytes, bytes - this.#partOfFile);
      // A file may grow while it is read.
      this.#partOfFile = Math.min(file.size, bytes);
      const isFull = this.#passages >= BATCH_PASSAGES || this.#bytes >= BATCH_BYTES;
      if (isFull || this.#documents.length >= BATCH_DOCUMENTS) await this.#flush();
    }
    if (isWhole) {
      for (const id of this.#store.documentsFrom(file.path)) if (!seen.has(id)) this.#removedDocuments.push(id);
    }
    // What could not be read may be a document that is there: nothing leaves, and the file is read again next time.
    this.#files.push(record(isWhole && !isEmpty ? hash : READ_IN_PART));
  }

  /** A document without text is none. */
  #leaveEmpty(file: FoundFile, id: string): void {
    const { message } = new WarmpathError('WARMPATH_EMPTY_DOCUMENT');
    if (file.isNamed && id === file.name) this.fail({ file: id, message });
    else this.skip({ file: id, reason: message });
  }

  /** A part of a document replaces none that was read whole: that one stays until all of it can be read again. */
  #wasReadWhole(path: string): boolean {
    const known = this.#store.file(path);
    return known !== undefined && known.hash !== READ_IN_PART;
  }

  /** The id, or one of its own where another file has it. What was handed in gives way to a file. */
  #freeId(id: string, origin: string): string {
    const taken = this.#documents.find((document) => document.id === id)?.origin ?? this.#store.document(id)?.origin;
    return taken === undefined || taken === origin || taken === HANDED_IN ? id : `${id}~${hashOf(origin).slice(0, 6)}`;
  }

  async #flush(): Promise<void> {
    this.#signal.throwIfAborted();
    const applied = await this.#store.apply({
      documents: this.#documents,
      removedDocuments: this.#removedDocuments,
      files: this.#files,
      removedFiles: this.#removedFiles,
    });
    this.#documents = [];
    this.#passages = 0;
    this.#bytes = 0;
    this.#files = [];
    this.#removedDocuments = [];
    this.#removedFiles = [];
    this.#counts.added += applied.added;
    this.#counts.changed += applied.changed;
    this.#counts.removed += applied.removed;
    this.#tell();
  }

  #tell(): void {
    const { files, bytes } = this.#counts;
    this.#onProgress({
      files,
      bytes: bytes + this.#partOfFile,
      totalFiles: this.#totalFiles,
      totalBytes: this.#totalBytes,
    });
  }
}

async function isGone(path: string): Promise<boolean> {
  const code = await stat(path).then(
    () => undefined,
    (error: NodeJS.ErrnoException) => error.code,
  );
  return code === 'ENOENT' || code === 'ENOTDIR';
}

/** Errors of the collection end an ingestion; those of a file do not. */
function isOurs(error: unknown): boolean {
  return WarmpathError.isInstance(error) && error.code.startsWith('WARMPATH_COLLECTION');
}

function isNoText(error: unknown): boolean {
  return WarmpathError.isInstance(error) && error.code === 'WARMPATH_UNREADABLE_FILE';
}

function reasonOf(error: unknown): string {
  if (WarmpathError.isInstance(error)) return error.message;
  const { code } = error as NodeJS.ErrnoException;
  return code === undefined ? (error as Error).message : `cannot read: ${fileErrorReason(error)}`;
}
