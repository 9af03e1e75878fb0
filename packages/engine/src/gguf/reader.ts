import { type FileHandle, open } from 'node:fs/promises';
import { WarmpathError } from '@warmpath/core';
import {
  ALIGNMENT_KEY,
  alignUp,
  DEFAULT_ALIGNMENT,
  GGUF_MAGIC,
  type GgufMetadata,
  type GgufScalar,
  type GgufValue,
  type GgufValueType,
  TENSOR_TYPES,
  type TensorType,
  VALUE_TYPES,
} from './format.js';

/** Bytes read at first, and how many times more where the header is longer. */
const FIRST_BYTES = 1024 * 1024;
const GROWTH = 8;
/** The headers of the largest open models, with vocabularies of 0.5 M entries, have about 20 MB. */
const MAX_HEADER_BYTES = 64 * 1024 * 1024;
/** A key's length, the type of its value, and the value. */
const MIN_ENTRY_BYTES = 13;
/** A name's length, a number of dimensions, a type and an offset. */
const MIN_TENSOR_BYTES = 24;

/** One tensor of the header. */
interface GgufTensorInfo {
  readonly name: string;
  /** Elements in each dimension, fastest-varying first. */
  readonly shape: readonly number[];
  readonly type: TensorType;
  /** Bytes from the start of the tensor data. */
  readonly offset: number;
  /** Bytes without padding. */
  readonly bytes: number;
}

/** The front of a GGUF file. */
export interface GgufHeader {
  readonly metadata: GgufMetadata;
  readonly tensors: readonly GgufTensorInfo[];
  /** Offset of the tensor data in the file, in bytes. */
  readonly dataOffset: number;
  /** Length that the tensors need; the file has at least this many bytes. */
  readonly expectedBytes: number;
}

/** What is wrong with the file. */
class Malformed extends Error {}

/** The header goes on behind the bytes that were read. */
class NeedsMoreBytes extends Error {}

/**
 * Reads the header of a GGUF file, version 2 or 3, and checks that the file is as long as its tensors need. llama.cpp
 * checks the rest when it loads the model.
 *
 * @param name What errors call the file.
 * @throws WARMPATH_MODEL_FILE with what is wrong: no file, a folder, another format, an unsupported version, cut short.
 */
export async function readGgufHeader(path: string, name: string = path): Promise<GgufHeader> {
  try {
    const handle = await open(path, 'r');
    try {
      const status = await handle.stat();
      if (status.isDirectory()) throw Object.assign(new Error(), { code: 'EISDIR' });
      return await readHeader(handle, status.size);
    } finally {
      await handle.close();
    }
  } catch (error) {
    throw new WarmpathError('WARMPATH_MODEL_FILE', { path: name, detail: explain(error), cause: error });
  }
}

function explain(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  if (error instanceof Malformed) return message;
  if (code === 'ENOENT' || code === 'ENOTDIR') return 'there is no such file';
  if (code === 'EISDIR') return 'this is a folder, not a GGUF file';
  if (code === 'EACCES' || code === 'EPERM') return 'this process may not read the file';
  return `cannot be read: ${message}`;
}

async function readHeader(handle: FileHandle, fileBytes: number): Promise<GgufHeader> {
  for (let length = FIRST_BYTES; ; length *= GROWTH) {
    const front = Buffer.allocUnsafe(Math.min(length, fileBytes));
    const { bytesRead } = await handle.read(front, 0, front.length, 0);
    try {
      return parseHeader(new FrontReader(front.subarray(0, bytesRead), fileBytes));
    } catch (error) {
      if (!(error instanceof NeedsMoreBytes)) throw error;
      if (bytesRead >= fileBytes) throw new Malformed(`cut short: the file ends at byte ${bytesRead}, in the header`);
      if (length >= MAX_HEADER_BYTES) throw new Malformed(`the header is longer than ${MAX_HEADER_BYTES} bytes`);
    }
  }
}

function parseHeader(reader: FrontReader): GgufHeader {
  checkFormat(reader);
  const tensorCount = reader.count(MIN_TENSOR_BYTES, 'tensors');
  const keyCount = reader.count(MIN_ENTRY_BYTES, 'metadata keys');
  const metadata = new Map<string, GgufValue>();
  for (let index = 0; index < keyCount; index++) {
    const key = reader.text();
    metadata.set(key, reader.value(key));
  }
  const tensors = list(tensorCount, () => reader.tensor());
  const alignment = Number(metadata.get(ALIGNMENT_KEY)?.value ?? DEFAULT_ALIGNMENT);
  if (!Number.isInteger(Math.log2(alignment))) throw new Malformed(`${ALIGNMENT_KEY} is no power of two`);
  const dataOffset = tensorCount === 0 ? reader.at : alignUp(reader.at, alignment);
  const expectedBytes = tensors.reduce(
    (end, { offset, bytes }) => Math.max(end, dataOffset + offset + bytes),
    dataOffset,
  );
  // No number where a shape is absurd.
  if (!(expectedBytes <= reader.fileBytes)) {
    throw new Malformed(
      `cut short: the file has ${reader.fileBytes} bytes, its ${tensorCount} tensors need ${expectedBytes}`,
    );
  }
  return { metadata, tensors, dataOffset, expectedBytes };
}

function checkFormat(reader: FrontReader): void {
  const { bytes } = reader;
  if (bytes.toString('latin1', 0, 4) !== GGUF_MAGIC) {
    const text = bytes.toString('latin1', 0, 512);
    const [, likeness] = LIKENESSES.find(([pattern]) => pattern.test(text)) ?? [];
    const start = `it starts with the bytes ${bytes.subarray(0, 4).toString('hex')} instead of "GGUF"`;
    throw new Malformed(`not a GGUF file: ${likeness ?? start}`);
  }
  reader.take(4);
  const version = reader.uint32();
  if (version !== 2 && version !== 3) {
    // A big-endian file of version 3 reads as 0x03000000.
    const found = (version & 0xffff) === 0 ? 'a big-endian GGUF file' : `GGUF version ${version}`;
    throw new Malformed(`${found}; this engine reads little-endian files of versions 2 and 3`);
  }
}

/** What a file that is no GGUF begins with, and what it is then. */
const LIKENESSES: readonly (readonly [RegExp, string])[] = [
  [/^$/, 'the file is empty'],
  [/^version https:\/\/git-lfs/, 'it is a git-lfs pointer; the model was not fetched (run `git lfs pull`)'],
  [/^\s*<(?:!doctype html|html|head|\?xml)/i, 'it is a web page (HTML); use the address of the file itself'],
  [/^PK/, 'it looks like a ZIP archive or a PyTorch checkpoint'],
  [/^(?:lmgg|tjgg|fmgg|algg)/, 'it is in a GGML format that came before GGUF; convert it or get a newer file'],
  [/^.{8}\{/s, 'it looks like a safetensors file; convert it with llama.cpp first'],
  [/^\s*[[{]/, 'it looks like JSON, perhaps an error message'],
];

/** Reads values in turn from the front of a file. */
class FrontReader {
  at = 0;

  constructor(
    readonly bytes: Buffer,
    readonly fileBytes: number,
  ) {}

  take(length: number): Buffer {
    if (this.at + length > this.bytes.length) throw new NeedsMoreBytes();
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }

  uint32(): number {
    return this.take(4).readUInt32LE();
  }

  uint64(): bigint {
    return this.take(8).readBigUInt64LE();
  }

  /** A number of things, of which the rest of the file must have room for as many. */
  count(leastBytes: number, what: string): number {
    const count = this.uint64();
    const left = this.fileBytes - this.at;
    if (count * BigInt(leastBytes) > left) {
      throw new Malformed(`cut short, or damaged: ${count} ${what} do not fit into the ${left} bytes that follow`);
    }
    return Number(count);
  }

  text(): string {
    return this.take(this.count(1, 'bytes of a text')).toString('utf8');
  }

  value(key: string): GgufValue {
    const type = this.#type(key);
    if (type !== 'array') return { type, value: this.#scalar(type) };
    const of = this.#type(key);
    if (of === 'array') throw new Malformed(`metadata "${key}" is an array of arrays, which llama.cpp does not read`);
    const length = this.count(VALUE_TYPES[of][0], `entries of "${key}"`);
    return { type, of, value: list(length, () => this.#scalar(of)) };
  }

  tensor(): GgufTensorInfo {
    const name = this.text();
    const shape = list(this.uint32(), () => Number(this.uint64()));
    const number = this.uint32();
    const type = TENSOR_TYPES[number];
    if (type === undefined) {
      throw new Malformed(`tensor "${name}" has the type ${number}, which this engine's llama.cpp does not know`);
    }
    const elements = shape.reduce((product, length) => product * length, 1);
    const bytes = (elements / type.blockElements) * type.blockBytes;
    return { name, shape, type, offset: Number(this.uint64()), bytes };
  }

  #type(key: string): GgufValueType {
    const number = this.uint32();
    const type = (Object.keys(VALUE_TYPES) as GgufValueType[])[number];
    if (type === undefined) throw new Malformed(`metadata "${key}" has the unknown type ${number}`);
    return type;
  }

  #scalar(type: Exclude<GgufValueType, 'array'>): GgufScalar {
    const [bytes, read] = VALUE_TYPES[type];
    return read === undefined ? this.text() : read(this.take(bytes));
  }
}

/** Grows with what is read: a length that lies allocates nothing. */
function list<T>(length: number, read: () => T): T[] {
  const items: T[] = [];
  while (items.length < length) items.push(read());
  return items;
}
