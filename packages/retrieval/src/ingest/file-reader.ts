import { Worker } from 'node:worker_threads';
import { WarmpathError } from '@warmpath/core';
import type { NewPassage } from '../collections/records.js';
import type { ChunkSettings } from '../parse/chunk.js';
import { FileTurns } from './file-turns.js';
import {
  type CutDocument,
  cutDocument,
  type DocumentFile,
  type DocumentText,
  type FileDocument,
  readDocument,
  type UnreadPart,
} from './read-file.js';
import type { ReadOutcome, ReadTask } from './read-worker.js';

/** The built file, from the sources as well: a thread cannot be started from TypeScript. */
const WORKER = new URL('../../dist/ingest/read-worker.js', import.meta.url);

/** A text up to this size is read at once: to start a thread takes longer. */
const SHORT_TEXT_BYTES = 65_536;
/** Bytes of a file that are copied before others get their turn: memory is slow where it is touched first. */
const SLICE_BYTES = 2 ** 20;
/** How often it is looked how much memory a file takes. */
const LOOK_MS = 50;

export interface ReadOptions {
  /** Whose file it is: tenants take turns. */
  readonly tenant: string;
  /** Ends the reading, or the waiting for it, with its reason. */
  readonly signal: AbortSignal;
  /** UTF-16 units of the text at most. */
  readonly longest: number;
}

/** Bounds on one file. */
interface FileBounds {
  readonly mostMs: number;
  readonly mostMemoryBytes: number;
}

const BOUNDS: FileBounds = { mostMs: 120_000, mostMemoryBytes: 2 ** 30 };

/**
 * Reads files that others hand in, one after the other (`FileTurns`), each in a thread of its own that ends with it: a
 * file may be made to take long, or much memory, and everything else goes on meanwhile.
 */
export class FileReader {
  readonly #bounds: FileBounds;
  readonly #turns = new FileTurns();

  constructor(bounds: Partial<FileBounds> = {}) {
    this.#bounds = { ...BOUNDS, ...bounds };
  }

  /**
   * Reads a file that is one document.
   * Errors: those of `readDocument`; WARMPATH_UNREADABLE_FILE for one that takes too long or too much memory;
   * WARMPATH_EMPTY_DOCUMENT; WARMPATH_OVERLOADED where too many wait; WARMPATH_INTERNAL where the thread dies.
   */
  async read(bytes: Buffer, file: DocumentFile, settings: ChunkSettings, options: ReadOptions): Promise<FileDocument> {
    const isShort = file.format !== 'pdf' && bytes.length <= SHORT_TEXT_BYTES;
    const read = isShort
      ? await readDocument(bytes, file, settings, options)
      : await this.#readInTurn(bytes, file, settings, options);
    if (read.document.passages.length === 0) throw new WarmpathError('WARMPATH_EMPTY_DOCUMENT');
    return read;
  }

  /**
   * Cuts a text that is handed in, as `cutDocument` does; a long one as a file, for its markup may take long to read.
   * Errors: those of `read`, but for an empty document.
   */
  async cut(
    text: DocumentText,
    settings: ChunkSettings,
    { tenant, signal }: Pick<ReadOptions, 'tenant' | 'signal'>,
  ): Promise<CutDocument> {
    const { id, title, content, metadata, format = 'text' } = text;
    if (content.length <= SHORT_TEXT_BYTES) return cutDocument(text, settings);
    const file = { id, format, ...(title !== undefined && { title }) };
    const options = { tenant, signal, longest: Number.POSITIVE_INFINITY };
    const { document } = await this.#readInTurn(Buffer.from(content), file, settings, options);
    return metadata === undefined ? document : { ...document, metadata };
  }

  async #readInTurn(
    bytes: Buffer,
    file: DocumentFile,
    settings: ChunkSettings,
    { tenant, signal, longest }: ReadOptions,
  ): Promise<FileDocument> {
    await this.#turns.take(tenant, signal);
    try {
      const task = { bytes: await copyOf(bytes), file, settings, longest };
      return await readInThread(task, signal, this.#bounds);
    } finally {
      this.#turns.done();
    }
  }
}

/** For a thread, which gets the memory as its own. */
async function copyOf(bytes: Buffer): Promise<Uint8Array<ArrayBuffer>> {
  const copy = new Uint8Array(bytes.length);
  for (let from = 0; from < bytes.length; from += SLICE_BYTES) {
    copy.set(bytes.subarray(from, from + SLICE_BYTES), from);
    await new Promise(setImmediate);
  }
  return copy;
}

async function readInThread(
  task: ReadTask,
  signal: AbortSignal,
  { mostMs, mostMemoryBytes }: FileBounds,
): Promise<FileDocument> {
  signal.throwIfAborted();
  const mebibytes = Math.ceil(mostMemoryBytes / 2 ** 20);
  const before = process.memoryUsage.rss();
  const worker = new Worker(WORKER, {
    workerData: task,
    transferList: [task.bytes.buffer],
    execArgv: [],
    resourceLimits: { maxOldGenerationSizeMb: mebibytes },
  });
  let timer: NodeJS.Timeout | undefined;
  let look: NodeJS.Timeout | undefined;
  let leave: (() => void) | undefined;
  try {
    return await new Promise<FileDocument>((resolve, reject) => {
      leave = () => reject(signal.reason);
      signal.addEventListener('abort', leave);
      timer = setTimeout(() => reject(tooMuch(`${mostMs / 1_000} seconds`)), mostMs);
      // A page may be packed into a thousandth of its size. What it takes unpacked does not count as the thread's heap.
      look = setInterval(() => {
        if (process.memoryUsage.rss() - before > mostMemoryBytes) reject(tooMuch(`${mebibytes} MiB of memory`));
      }, LOOK_MS);
      let head: { readonly document: Omit<CutDocument, 'passages'>; readonly unread: readonly UnreadPart[] };
      const passages: NewPassage[] = [];
      worker.on('message', (outcome: ReadOutcome) => {
        if ('error' in outcome) return reject(new WarmpathError(outcome.error.code, { detail: outcome.error.message }));
        if ('document' in outcome) head = outcome;
        else passages.push(...outcome.passages);
        if ('isLast' in outcome && outcome.isLast) {
          return resolve({ document: { ...head.document, passages }, unread: head.unread });
        }
        worker.postMessage('more');
      });
      worker.once('error', (cause: NodeJS.ErrnoException) => {
        const isMemory = cause.code === 'ERR_WORKER_OUT_OF_MEMORY';
        reject(isMemory ? tooMuch(`${mebibytes} MiB of memory`) : died(cause.message, cause));
      });
      worker.once('exit', (code) => reject(died(`exit code ${code}`)));
    });
  } finally {
    clearTimeout(timer);
    clearInterval(look);
    signal.removeEventListener('abort', leave!);
    await worker.terminate();
  }
}

function tooMuch(limit: string): WarmpathError {
  return new WarmpathError('WARMPATH_UNREADABLE_FILE', { detail: `reading it takes more than ${limit}` });
}

function died(reason: string, cause?: unknown): WarmpathError {
  const detail = `the thread that reads a file ended: ${reason}`;
  return new WarmpathError('WARMPATH_INTERNAL', { detail, cause });
}
