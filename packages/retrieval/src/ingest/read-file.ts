import { createHash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import { WarmpathError } from '@warmpath/core';
import { DOCUMENT_FIELDS, isRecord, readRawDocument, TEXT_PLACES } from '@warmpath/core/internal';
import type { NewDocument } from '../collections/records.js';
import { type ChunkSettings, chunk } from '../parse/chunk.js';
import { decode } from '../parse/decode.js';
import {
  type FilePlace,
  type ParsedDocument,
  type ParseOptions,
  titleHeading,
  unreadable,
  withoutLines,
} from '../parse/document.js';
import {
  type DocumentFormat,
  leftOutReason,
  maxBytesOf,
  parseDocument,
  parseText,
  type TextFormat,
} from '../parse/formats.js';
import { recordsOfRows, rowsOf } from '../parse/parse-csv.js';
import { type FoundFile, openFound } from './find-files.js';

/** UTF-16 units of the text of one document; JSONL is read line by line, however long the file is. */
const LONGEST_TEXT = 64 * 2 ** 20;
const LONGEST_LINE_BYTES = 16 * 2 ** 20;

/** Content as a caller hands it in. */
export interface DocumentText {
  readonly id: string;
  readonly title?: string;
  readonly content: string;
  readonly metadata?: Readonly<Record<string, unknown>>;
  /** Plain text if left out. */
  readonly format?: TextFormat;
}

export type CutDocument = Omit<NewDocument, 'origin'>;

/** A document that was cut, or what is wrong with one line or page of a file. */
type ReadDocument = CutDocument | FilePlace;

/** What a file is read as that is one document. */
export interface DocumentFile {
  readonly id: string;
  /** That of the text if left out. */
  readonly title?: string;
  readonly format: DocumentFormat;
  /** Encoding that the sender of the bytes declared. */
  readonly charset?: string;
}

/** The document of a file. It is a part where pages could not be read. */
export interface FileDocument {
  readonly document: CutDocument;
  readonly unread: readonly FilePlace[];
}

/** A file that is read: its documents, and at the end its hash. */
export interface FileReading {
  documents(): AsyncIterable<ReadDocument>;
  /** Bytes of the file whose documents have been given. */
  readonly bytes: number;
  /** Known when all documents were read. */
  hash(): string;
}

/** Cuts a text into the passages of one document. A title stands before the headings of the text. */
export async function cutDocument(
  { id, title, content, metadata, format = 'text' }: DocumentText,
  settings: ChunkSettings,
): Promise<CutDocument> {
  const parsed = await parseText(content, format);
  // Lines are those of a file.
  const blocks = withoutLines(parsed.blocks);
  return assemble({ id, title, metadata, bytes: Buffer.byteLength(content) }, { ...parsed, blocks }, settings);
}

function assemble(
  given: {
    readonly id: string;
    readonly title: string | undefined;
    readonly metadata?: DocumentText['metadata'];
    readonly bytes: number;
  },
  parsed: ParsedDocument,
  settings: ChunkSettings,
): CutDocument {
  const { id, bytes } = given;
  const top = titleHeading(parsed.blocks);
  const named = given.title ?? parsed.title;
  const root = named === undefined || top?.text === named ? undefined : { level: 1, text: named };
  const blocks =
    root === undefined
      ? parsed.blocks
      : parsed.blocks.map((block) => ({ ...block, headings: [root, ...block.headings] }));
  const title = named ?? top?.text;
  const metadata = { ...(parsed.language && { language: parsed.language }), ...parsed.metadata, ...given.metadata };
  return {
    id,
    ...(title !== undefined && { title }),
    ...((given.metadata !== undefined || Object.keys(metadata).length > 0) && { metadata }),
    bytes,
    passages: chunk(blocks, settings),
  };
}

/**
 * Reads a file that is one document. `longest`: UTF-16 units of its text; of a PDF, of the text that its pages have.
 * Errors: WARMPATH_UNREADABLE_FILE, WARMPATH_DOCUMENT_TOO_LARGE.
 */
export async function readDocument(
  bytes: Buffer,
  { id, title, format, charset }: DocumentFile,
  settings: ChunkSettings,
  options: Pick<ParseOptions, 'signal' | 'longest'>,
): Promise<FileDocument> {
  const parsed = await parseDocument(bytes, { ...options, format, ...(charset !== undefined && { charset }) });
  const { unread } = parsed;
  const length = parsed.blocks.reduce((sum, { text }) => sum + Buffer.byteLength(text), 0);
  const document = assemble({ id, title, bytes: format === 'pdf' ? length : bytes.length }, parsed, settings);
  return { document: unread.every(({ isRead }) => isRead) ? document : { ...document, isPart: true }, unread };
}

/**
 * Reads a file. Errors: WARMPATH_UNREADABLE_FILE for what is no text, WARMPATH_DOCUMENT_TOO_LARGE, and those of the
 * file system.
 */
export async function readDocuments(
  file: FoundFile,
  settings: ChunkSettings,
  signal: AbortSignal,
): Promise<FileReading> {
  const leftOut = leftOutReason(file.path);
  if (leftOut !== undefined) throw unreadable(leftOut);
  const { format = 'text' } = file;
  if (format === 'jsonl') return new LineReading(file, settings, signal);
  const most = maxBytesOf(format);
  if (file.size > most) {
    // Of one that may be no text at all, the beginning says.
    if (file.format === undefined) await decode(await beginningOf(await openFound(file)));
    const detail = `the file has ${megabytes(file.size)} MB, and ${megabytes(most)} are read at most`;
    throw new WarmpathError('WARMPATH_DOCUMENT_TOO_LARGE', { detail });
  }
  const handle = await openFound(file);
  const bytes = await handle.readFile({ signal }).finally(() => handle.close());
  const hash = createHash('sha256').update(bytes).digest('base64url');
  return {
    hash: () => hash,
    // Given at the end.
    bytes: 0,
    documents: async function* () {
      const rows = format === 'csv' || format === 'json' ? await decode(bytes) : undefined;
      const records = rows && recordsOf(rows.text, format as 'csv' | 'json');
      if (records !== undefined) {
        yield* rows!.doubts;
        yield* documentsOf(records, { file, settings, signal });
        return;
      }
      const { document, unread } = await readDocument(bytes, { id: file.name, format }, settings, {
        signal,
        longest: LONGEST_TEXT,
      });
      yield* unread;
      yield document;
    },
  };
}

const BEGINNING_BYTES = 65_536;

async function beginningOf(file: FileHandle): Promise<Buffer> {
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(BEGINNING_BYTES), 0, BEGINNING_BYTES);
    return buffer.subarray(0, bytesRead);
  } finally {
    await file.close();
  }
}

/** JSON Lines, also as BEIR has them: each line a document. */
class LineReading implements FileReading {
  readonly #file: FoundFile;
  readonly #settings: ChunkSettings;
  readonly #signal: AbortSignal;
  readonly #hash = createHash('sha256');
  #bytes = 0;

  constructor(file: FoundFile, settings: ChunkSettings, signal: AbortSignal) {
    this.#file = file;
    this.#settings = settings;
    this.#signal = signal;
  }

  get bytes(): number {
    return this.#bytes;
  }

  hash(): string {
    return this.#hash.digest('base64url');
  }

  async *documents(): AsyncIterable<ReadDocument> {
    let number = 0;
    const used = new Set<string>();
    for await (const { line, bytes } of linesOf(this.#read(), LONGEST_LINE_BYTES)) {
      number++;
      this.#bytes += bytes;
      const position = `line ${number}`;
      if (line === undefined) {
        yield { position, message: tooLong(LONGEST_LINE_BYTES) };
        continue;
      }
      if (line.trim() === '') continue;
      const read = readLine(line, `${this.#file.name}:${number}`);
      if (typeof read === 'string') {
        yield { position, message: read };
        continue;
      }
      yield await cutDocument({ ...read, id: freeId(read.id, number, used) }, this.#settings);
    }
  }

  async *#read(): AsyncIterable<Buffer> {
    const handle = await openFound(this.#file);
    // Closes the file at its end.
    for await (const bytes of handle.createReadStream({ signal: this.#signal, highWaterMark: 1 << 18 })) {
      this.#hash.update(bytes as Buffer);
      yield bytes as Buffer;
    }
  }
}

/**
 * The lines of a text that comes in pieces, with their bytes and those of their ends; no line where it is longer than
 * `most` bytes. O(length).
 */
export async function* linesOf(
  pieces: AsyncIterable<Buffer>,
  most: number,
): AsyncIterable<{ readonly line: string | undefined; readonly bytes: number }> {
  let parts: Buffer[] = [];
  let length = 0;
  const take = () => {
    const taken = { line: length > most ? undefined : Buffer.concat(parts).toString('utf8'), bytes: length + 1 };
    parts = [];
    length = 0;
    return taken;
  };
  for await (const bytes of pieces) {
    let from = 0;
    for (;;) {
      const end = bytes.indexOf(10, from);
      const part = bytes.subarray(from, end < 0 ? undefined : end);
      length += part.length;
      if (length <= most) parts.push(part);
      else parts = [];
      if (end < 0) break;
      yield take();
      from = end + 1;
    }
  }
  if (length > 0) yield take();
}

/** What is wrong with a line that `linesOf` did not read. */
export function tooLong(most: number): string {
  return `the line is longer than ${megabytes(most)} MB`;
}

/** What is a document each in a file: rows of a table with a column of texts, or objects of a list that have texts. */
function recordsOf(text: string, format: 'csv' | 'json'): readonly unknown[] | undefined {
  if (format === 'csv') {
    const rows = rowsOf(text);
    const names = Object.fromEntries((rows[0] ?? []).map((name) => [name.trim(), name]));
    return rows.length > 1 && isDocument(names) ? recordsOfRows(rows) : undefined;
  }
  try {
    const value: unknown = JSON.parse(text.replace(/^\ufeff/, ''));
    return Array.isArray(value) && isDocument(value[0]) ? value : undefined;
  } catch {
    return undefined;
  }
}

function isDocument(value: unknown): boolean {
  return isRecord(value) && typeof readRawDocument(value)?.content.value === 'string';
}

async function* documentsOf(
  records: Iterable<unknown>,
  {
    file,
    settings,
    signal,
  }: { readonly file: FoundFile; readonly settings: ChunkSettings; readonly signal: AbortSignal },
): AsyncIterable<ReadDocument> {
  const used = new Set<string>();
  let number = 0;
  for (const record of records) {
    signal.throwIfAborted();
    number++;
    const read = documentOf(record, `${file.name}:${number}`);
    if (typeof read === 'string') yield { position: `record ${number}`, message: read };
    else yield await cutDocument({ ...read, id: freeId(read.id, number, used) }, settings);
  }
}

function freeId(id: string, number: number, used: Set<string>): string {
  const free = used.has(id) ? `${id}:${number}` : id;
  used.add(free);
  return free;
}

/** A document of a line, or what is wrong with the line. */
function readLine(line: string, place: string): DocumentText | string {
  try {
    return documentOf(JSON.parse(line.charCodeAt(0) === 0xfeff ? line.slice(1) : line), place);
  } catch (error) {
    return `it is not valid JSON (${(error as Error).message.slice(0, 100)})`;
  }
}

/** A document of an object, with its other fields that are no objects as metadata. */
function documentOf(value: unknown, place: string): DocumentText | string {
  const raw = typeof value === 'string' ? undefined : readRawDocument(value);
  if (raw === undefined) return 'it is not a JSON object';
  const { id, title, metadata } = raw;
  const content = raw.content.value ?? '';
  if (raw.content.value === undefined || typeof content !== 'string') return `it has no string ${TEXT_PLACES}`;
  const others = Object.entries(value as object).filter(
    ([name, field]) => !DOCUMENT_FIELDS.has(name) && typeof field !== 'object',
  );
  const fields = { ...Object.fromEntries(others), ...(isRecord(metadata.value) && metadata.value) };
  return {
    id: (/^(?:string|number)$/.test(typeof id.value) && id.value !== '' ? String(id.value) : place).slice(0, 1000),
    ...(typeof title.value === 'string' && title.value !== '' && { title: title.value }),
    content,
    ...(Object.keys(fields).length > 0 && { metadata: fields }),
  };
}

function megabytes(bytes: number): string {
  return Math.round(bytes / 2 ** 20).toLocaleString('en');
}
