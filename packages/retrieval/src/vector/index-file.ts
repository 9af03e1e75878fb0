import { type FileHandle, open, readdir, rename, rm } from 'node:fs/promises';
import { endianness } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { crc32 } from 'node:zlib';
import { WarmpathError } from '@warmpath/core';
import { fileErrorReason } from '@warmpath/core/internal';
import { StoredRows } from './stored-rows.js';
import {
  checkVectorIndexOptions,
  VectorIndex,
  type VectorIndexKind,
  type VectorIndexOptions,
  type VectorIndexState,
} from './vector-index.js';
import { VectorTable } from './vector-table.js';

/**
 * Layout of a file: eight bytes that name it, the header's length and checksum, the header as JSON, then the sections
 * that the header lists, each followed by its checksum.
 */
const MAGIC = Buffer.from('WARMVEC1');
const PREFIX_BYTES = MAGIC.length + 8;
const MAX_HEADER_BYTES = 65_536;
/** Bytes that are read or written in one step; everything else has its turn in between. */
const STEP_BYTES = 4 * 1024 * 1024;
/** The same for ids, which take longer to read. */
const ID_STEP_BYTES = 128 * 1024;
/** Ids of one line in the section of ids. */
const IDS_PER_LINE = 1024;

interface Header {
  readonly endianness: string;
  readonly options: VectorIndexOptions;
  readonly kind: VectorIndexKind;
  readonly count: number;
  /** What its owner calls it. */
  readonly name?: string;
  /** Numbers of the index that are no arrays. */
  readonly numbers: Readonly<Record<string, number>>;
  readonly sections: readonly { readonly name: string; readonly bytes: number }[];
}

type Section = { readonly name: string; readonly bytes: number; readonly parts: () => Iterable<Uint8Array> };

/**
 * Writes an index to a file, whole or not at all: a file of the same name stays as it is until the new one is on the
 * disk. The index must not change meanwhile. Of several processes that write, the last one's is there.
 * @param name What its owner calls it, for whoever reads it.
 * @throws WARMPATH_INDEX_FILE with the reason.
 */
export async function writeVectorIndex(index: VectorIndex, path: string, name?: string): Promise<void> {
  const { rows, state } = index.contents;
  const { table, ids, deletedBytes: deleted } = rows;
  const idLines = [...linesOfIds(ids)];
  const graph = (state.hnsw ?? state.ivf ?? {}) as Readonly<Record<string, unknown>>;
  const arrays = Object.entries(graph).filter((entry): entry is [string, Uint8Array] => ArrayBuffer.isView(entry[1]));
  const sections: Section[] = [
    { name: 'rows', bytes: 4 * table.rowFloats * table.count, parts: () => partsOfRows(table) },
    { name: 'deleted', bytes: deleted.length, parts: () => steps(deleted) },
    { name: 'ids', bytes: idLines.reduce((sum, line) => sum + line.length, 0), parts: () => idLines },
    ...arrays.map(([name, array]) => ({ name, bytes: array.byteLength, parts: () => steps(bytesOf(array)) })),
  ];
  const header: Header = {
    endianness: endianness(),
    options: index.options,
    kind: index.kind,
    count: table.count,
    ...(name !== undefined && { name }),
    numbers: Object.fromEntries(
      Object.entries(graph).filter((entry): entry is [string, number] => typeof entry[1] === 'number'),
    ),
    sections: sections.map(({ name, bytes }) => ({ name, bytes })),
  };
  const partial = `${path}.${process.pid}${PARTIAL}`;
  try {
    await removePartial(path);
    const file = await open(partial, 'w');
    try {
      const json = Buffer.from(JSON.stringify(header));
      const prefix = Buffer.alloc(PREFIX_BYTES);
      MAGIC.copy(prefix);
      prefix.writeUInt32LE(json.length, MAGIC.length);
      prefix.writeUInt32LE(crc32(json), MAGIC.length + 4);
      await file.write(prefix);
      await file.write(json);
      for (const { parts } of sections) {
        let checksum = 0;
        for (const part of parts()) {
          checksum = crc32(part, checksum);
          await file.write(part);
        }
        const end = Buffer.alloc(4);
        end.writeUInt32LE(checksum);
        await file.write(end);
      }
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(partial, path);
    const folder = await open(dirname(path));
    await folder.sync().finally(() => folder.close());
  } catch (error) {
    await rm(partial, { force: true });
    throw fileError(path, `it cannot be written: ${fileErrorReason(error)}.`, error);
  }
}

/**
 * Reads an index from a file that `writeVectorIndex` wrote.
 * @throws WARMPATH_INDEX_FILE where the file cannot be read, is no index, is damaged or cut off, or was written on a
 *   machine with another byte order.
 */
export async function readVectorIndex(path: string, signal?: AbortSignal): Promise<VectorIndex> {
  return (await readNamedIndex(path, signal)).index;
}

/** The same with the name that it was written with. */
export async function readNamedIndex(path: string, signal?: AbortSignal): Promise<NamedIndex> {
  let file: FileHandle;
  try {
    file = await open(path, 'r');
  } catch (error) {
    throw fileError(path, `it cannot be read: ${fileErrorReason(error)}.`, error);
  }
  try {
    return await readFrom(file, path, signal);
  } catch (error) {
    const isOwn = WarmpathError.isInstance(error) && error.code === 'WARMPATH_INDEX_FILE';
    if (isOwn || (signal?.aborted && error === signal.reason)) throw error;
    throw fileError(path, `it cannot be read: ${fileErrorReason(error)}.`, error);
  } finally {
    await file.close();
  }
}

interface NamedIndex {
  readonly index: VectorIndex;
  readonly name: string | undefined;
}

async function readFrom(file: FileHandle, path: string, signal: AbortSignal | undefined): Promise<NamedIndex> {
  const { size } = await file.stat();
  const source = new CheckedSource(file, path, signal);
  const prefix = await source.read(Math.min(size, PREFIX_BYTES));
  if (prefix.length < PREFIX_BYTES || !prefix.subarray(0, MAGIC.length).equals(MAGIC)) {
    throw fileError(path, 'it is no vector index, or one of another version.');
  }
  const headerBytes = prefix.readUInt32LE(MAGIC.length);
  if (headerBytes > MAX_HEADER_BYTES || PREFIX_BYTES + headerBytes > size) throw fileError(path, DAMAGED);
  const json = await source.read(headerBytes);
  if (crc32(json) !== prefix.readUInt32LE(MAGIC.length + 4)) throw fileError(path, DAMAGED);
  const header = JSON.parse(json.toString()) as Header;
  if (header.endianness !== endianness()) {
    throw fileError(path, 'it was written on a machine with another byte order.');
  }
  const sectionBytes = header.sections.reduce((sum, { bytes }) => sum + bytes + 4, 0);
  if (PREFIX_BYTES + headerBytes + sectionBytes !== size) {
    throw fileError(path, 'it was cut off, or something was added to it.');
  }
  const { options, kind, count } = header;
  checkVectorIndexOptions(options);
  const table = new VectorTable(options.dimension, options.metric ?? 'cosine');
  table.reserve(count);
  const rows = new StoredRows(table);
  let deleted = new Uint8Array(0);
  const arrays: Record<string, unknown> = {};
  for (const { name, bytes } of header.sections) {
    if (name === 'rows') {
      const rowBytes = 4 * table.rowFloats;
      const stepBytes = Math.max(1, Math.floor(STEP_BYTES / rowBytes)) * rowBytes;
      await source.section(bytes, stepBytes, (part) => table.append(floatsOf(part)));
    } else if (name === 'ids') {
      let rest = '';
      await source.section(bytes, ID_STEP_BYTES, (part) => {
        const lines = (rest + part.toString('latin1')).split('\n');
        rest = lines.pop() ?? '';
        for (const line of lines) {
          for (const id of JSON.parse(Buffer.from(line, 'latin1').toString()) as string[]) {
            rows.name(id, deleted[rows.ids.length] === 1);
          }
        }
      });
    } else {
      const whole = new Uint8Array(bytes);
      let at = 0;
      await source.section(bytes, STEP_BYTES, (part) => {
        whole.set(part, at);
        at += part.length;
      });
      if (name === 'deleted') deleted = whole;
      else if (name === 'levels') arrays[name] = whole;
      else if (name === 'centroids') arrays[name] = new Float32Array(whole.buffer);
      else arrays[name] = new Int32Array(whole.buffer);
    }
  }
  if (table.count !== count || rows.ids.length !== count) throw fileError(path, DAMAGED);
  const state = { kind, [kind]: { ...header.numbers, ...arrays } } as VectorIndexState;
  return { index: new VectorIndex(options, rows, state), name: header.name };
}

const PARTIAL = '.partial';

/** Takes away what processes left that were killed while they wrote. */
async function removePartial(path: string): Promise<void> {
  const [folder, name] = [dirname(path), basename(path)];
  for (const entry of await readdir(folder)) {
    if (!entry.startsWith(`${name}.`) || !entry.endsWith(PARTIAL)) continue;
    const writer = Number(entry.slice(name.length + 1, -PARTIAL.length));
    if (!isRunning(writer)) await rm(join(folder, entry), { force: true });
  }
}

function isRunning(id: number): boolean {
  if (!Number.isSafeInteger(id) || id < 1) return false;
  try {
    process.kill(id, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

const DAMAGED = 'it is damaged: its checksum is not that of its contents.';

/** A file that is read from front to back, with the checksums of its sections. */
class CheckedSource {
  readonly #file: FileHandle;
  readonly #path: string;
  readonly #signal: AbortSignal | undefined;

  constructor(file: FileHandle, path: string, signal: AbortSignal | undefined) {
    this.#file = file;
    this.#path = path;
    this.#signal = signal;
  }

  async read(bytes: number, into: Buffer = Buffer.alloc(bytes)): Promise<Buffer> {
    let length = 0;
    while (length < bytes) {
      this.#signal?.throwIfAborted();
      const { bytesRead } = await this.#file.read(into, length, bytes - length);
      if (bytesRead === 0) throw fileError(this.#path, 'it was cut off while it was read.');
      length += bytesRead;
    }
    return into.subarray(0, bytes);
  }

  async section(bytes: number, stepBytes: number, take: (part: Buffer) => void): Promise<void> {
    const buffer = Buffer.alloc(Math.min(bytes, stepBytes));
    let checksum = 0;
    for (let left = bytes; left > 0; left -= stepBytes) {
      const part = await this.read(Math.min(left, stepBytes), buffer);
      checksum = crc32(part, checksum);
      take(part);
    }
    if ((await this.read(4)).readUInt32LE() !== checksum) throw fileError(this.#path, DAMAGED);
  }
}

function* partsOfRows(table: VectorTable): Generator<Uint8Array> {
  const rows = Math.max(1, Math.floor(STEP_BYTES / (4 * table.rowFloats)));
  const part = new Float32Array(rows * table.rowFloats);
  for (let from = 0; from < table.count; from += rows) {
    const count = Math.min(rows, table.count - from);
    for (let i = 0; i < count; i++) part.set(table.row(from + i), i * table.rowFloats);
    yield bytesOf(part.subarray(0, count * table.rowFloats));
  }
}

function* linesOfIds(ids: readonly string[]): Generator<Buffer> {
  for (let from = 0; from < ids.length; from += IDS_PER_LINE) {
    yield Buffer.from(`${JSON.stringify(ids.slice(from, from + IDS_PER_LINE))}\n`);
  }
}

function* steps(bytes: Uint8Array): Generator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += STEP_BYTES) yield bytes.subarray(at, at + STEP_BYTES);
}

function bytesOf(array: ArrayBufferView): Uint8Array {
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}

function floatsOf(part: Buffer): Float32Array {
  return new Float32Array(part.buffer, part.byteOffset, part.length / 4);
}

function fileError(path: string, reason: string, cause?: unknown): WarmpathError {
  return new WarmpathError('WARMPATH_INDEX_FILE', { path, detail: reason, cause });
}
