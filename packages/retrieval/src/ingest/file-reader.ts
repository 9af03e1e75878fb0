import { WarmpathError } from '@warmpath/core';
import type { NewPassage } from '../collections/records.js';
import type { ChunkSettings } from '../parse/chunk.js';
import type { FilePlace } from '../parse/document.js';
import { FileTurns } from './file-turns.js';
import type { FoundFile } from './find-files.js';
import {
  type CutDocument,
  cutDocument,
  type DocumentFile,
  type DocumentText,
  type FileDocument,
  readDocument,
} from './read-file.js';
import type { ReadTask } from './read-process.js';
import { type ReadBounds, ReaderProcess, readBounds } from './reader-process.js';

/** A plain text up to this size is cut at once: nothing in it is parsed. */
const SHORT_TEXT_BYTES = 65_536;
/** How long a process without a file is kept. */
const IDLE_MS = 10_000;

export interface ReadOptions {
  /** Whose file it is: tenants take turns, and no process reads files of two. */
  readonly tenant: string;
  /** Ends the reading, or the waiting for it, with its reason. */
  readonly signal: AbortSignal;
  /** UTF-16 units of the text at most. */
  readonly longest: number;
}

/** What a file holds: documents, what of it cannot be read, and at the end its hash. */
export type FilePart =
  | { readonly document: CutDocument; readonly bytes: number }
  | { readonly unread: FilePlace }
  | { readonly hash: string; readonly isKnown: boolean };

/**
 * Reads files, one after the other (`FileTurns`), in a process with bounds on memory and time. A file that breaks a
 * bound ends the process; the next file gets a new one.
 */
export class FileReader {
  readonly #bounds: ReadBounds;
  readonly #turns = new FileTurns();
  #process: { readonly reader: ReaderProcess; readonly tenant: string } | undefined;
  #idle: NodeJS.Timeout | undefined;

  constructor(bounds: ReadBounds = readBounds()) {
    this.#bounds = bounds;
  }

  /**
   * Reads a file that is one document.
   * Errors: those of `readDocument`; WARMPATH_UNREADABLE_FILE for one that takes too long or too much memory;
   * WARMPATH_EMPTY_DOCUMENT; WARMPATH_OVERLOADED where too many wait.
   */
  async read(bytes: Buffer, file: DocumentFile, settings: ChunkSettings, options: ReadOptions): Promise<FileDocument> {
    const isShort = file.format === 'text' && bytes.length <= SHORT_TEXT_BYTES;
    const read = isShort
      ? await readDocument(bytes, file, settings, options)
      : await this.#readBytes(bytes, { file, settings, longest: options.longest, isText: false }, options);
    if (read.document.passages.length === 0) throw new WarmpathError('WARMPATH_EMPTY_DOCUMENT');
    return read;
  }

  /** Cuts a text that is handed in, as `cutDocument` does. Errors: those of `read`, but for an empty document. */
  async cut(
    text: DocumentText,
    settings: ChunkSettings,
    options: Pick<ReadOptions, 'tenant' | 'signal'>,
  ): Promise<CutDocument> {
    const { id, title, content, metadata, format = 'text' } = text;
    if (format === 'text' && content.length <= SHORT_TEXT_BYTES) return cutDocument(text, settings);
    const file = { id, format, ...(title !== undefined && { title }) };
    const task = { file, settings, longest: Number.POSITIVE_INFINITY, isText: true };
    const { document } = await this.#readBytes(Buffer.from(content), task, options);
    return metadata === undefined ? document : { ...document, metadata };
  }

  /** Reads a file on the disk; one whose hash is known is not parsed. Errors: those of `readDocuments` and `read`. */
  async *documents(
    found: FoundFile,
    settings: ChunkSettings,
    { tenant, signal, knownHash }: Pick<ReadOptions, 'tenant' | 'signal'> & { readonly knownHash: string | undefined },
  ): AsyncGenerator<FilePart, void> {
    yield* this.#readInTurn({ found, settings, knownHash }, undefined, { tenant, signal });
  }

  /** Ends the process. */
  async close(): Promise<void> {
    clearTimeout(this.#idle);
    this.#process?.reader.end();
    await this.#process?.reader.ended();
  }

  async #readBytes(
    bytes: Buffer,
    task: Omit<Extract<ReadTask, { length: number }>, 'length'>,
    options: Pick<ReadOptions, 'tenant' | 'signal'>,
  ): Promise<FileDocument> {
    let document: CutDocument | undefined;
    const unread: FilePlace[] = [];
    for await (const part of this.#readInTurn({ ...task, length: bytes.length }, bytes, options)) {
      if ('document' in part) document = part.document;
      else if ('unread' in part) unread.push(part.unread);
    }
    return { document: document!, unread };
  }

  async *#readInTurn(
    task: ReadTask,
    bytes: Buffer | undefined,
    { tenant, signal }: Pick<ReadOptions, 'tenant' | 'signal'>,
  ): AsyncGenerator<FilePart, void> {
    await this.#turns.take(tenant, signal);
    try {
      clearTimeout(this.#idle);
      yield* wholeDocuments(this.#processFor(tenant).read(task, bytes, signal));
    } finally {
      const reader = this.#process?.reader;
      this.#idle = setTimeout(() => reader?.end(), IDLE_MS).unref();
      this.#turns.done();
    }
  }

  #processFor(tenant: string): ReaderProcess {
    const known = this.#process;
    if (known !== undefined && known.tenant === tenant && !known.reader.hasEnded) return known.reader;
    known?.reader.end();
    const reader = new ReaderProcess(this.#bounds);
    this.#process = { reader, tenant };
    return reader;
  }
}

/** Documents with all their passages. */
async function* wholeDocuments(parts: ReturnType<ReaderProcess['read']>): AsyncGenerator<FilePart, void> {
  let open:
    | { readonly document: Omit<CutDocument, 'passages'>; readonly count: number; readonly bytes: number }
    | undefined;
  let passages: NewPassage[] = [];
  for await (const part of parts) {
    if ('unread' in part) yield part;
    else if ('document' in part) {
      passages = [];
      open = { document: part.document, count: part.passageCount, bytes: part.bytes };
    } else if ('passages' in part) passages.push(...part.passages);
    else if ('end' in part && part.end.hash !== undefined) yield { hash: part.end.hash, isKnown: part.end.isKnown };
    if (open !== undefined && passages.length === open.count) {
      yield { document: { ...open.document, passages }, bytes: open.bytes };
      open = undefined;
    }
  }
}
