import { open } from 'node:fs/promises';
import { WarmpathError } from '@warmpath/core';
import { ByteReader, EndOfFile } from './byte-reader.js';
import {
  ALIGNMENT_KEY,
  alignUp,
  DEFAULT_ALIGNMENT,
  GGUF_MAGIC,
  type GgufMetadata,
  type GgufScalar,
  type GgufTensorInfo,
  type GgufValue,
  type GgufValueType,
  MAX_DIMENSIONS,
  MAX_TENSOR_NAME_BYTES,
  MINIMUM_VALUE_BYTES,
  type TensorType,
  tensorType,
  VALUE_TYPES,
} from './format.js';

// The largest open models have some 2 000 tensors, 60 keys, and vocabularies and merges of 0.5 M entries (about 20 MB).
const MAX_TENSORS = 65_536;
const MAX_METADATA_KEYS = 65_536;
const MAX_KEY_BYTES = 65_535;
const MAX_STRING_BYTES = 16 * 1024 * 1024;
const MAX_ARRAY_LENGTH = 16 * 1024 * 1024;
const MAX_HEADER_BYTES = 512 * 1024 * 1024;
/** A tensor info has at least a name length, a dimension count, a type and an offset. */
const MINIMUM_TENSOR_INFO_BYTES = 24;

/** The front of a GGUF file, checked. */
export interface GgufHeader {
  readonly version: number;
  readonly metadata: GgufMetadata;
  readonly tensors: readonly GgufTensorInfo[];
  /** Bytes to which tensors are aligned. */
  readonly alignment: number;
  /** Offset of the tensor data in the file, in bytes. */
  readonly dataOffset: number;
  /** Length that the tensor infos ask for; the file has at least this many bytes. */
  readonly expectedBytes: number;
  /** Weights in all tensors together. */
  readonly parameters: number;
}

/** What is wrong with the file; turned into a `WARMPATH_MODEL_FILE` with the path in front. */
class Malformed extends Error {}

/**
 * Reads and checks the header of a GGUF file (version 2 or 3): metadata of every type, tensor infos, and that the file
 * is as long as its tensors need. The same layout rules as llama.cpp's own loader, so that what passes here is not
 * refused there for its container.
 *
 * Errors: `WARMPATH_MODEL_FILE`, with the file's path (or `name`, where the user knows it by another) and what exactly
 * is wrong: missing, a folder, another format (named where it can be recognised: a web page, a git-lfs pointer, …), an
 * unsupported version, cut short, absurd counts.
 *
 * Cost: reads the header alone, in windows of 256 KiB, whatever the size of the weights; time and memory O(header).
 * Every count is compared with the bytes that are left before anything is allocated for it.
 */
export async function readGgufHeader(path: string, name: string = path): Promise<GgufHeader> {
  try {
    const handle = await open(path, 'r');
    try {
      const status = await handle.stat();
      if (status.isDirectory()) throw new Malformed('this is a folder, not a GGUF file');
      return await readHeader(new ByteReader(handle, status.size));
    } finally {
      await handle.close();
    }
  } catch (error) {
    throw new WarmpathError('WARMPATH_MODEL_FILE', { path: name, detail: explain(error), cause: error });
  }
}

function explain(error: unknown): string {
  if (error instanceof Malformed) return error.message;
  if (error instanceof EndOfFile) return `cut short: ${error.message}, inside the header`;
  const code = (error as NodeJS.ErrnoException).code;
  if (code === 'ENOENT' || code === 'ENOTDIR') return 'there is no such file';
  if (code === 'EISDIR') return 'this is a folder, not a GGUF file';
  if (code === 'EACCES' || code === 'EPERM') return 'this process may not read the file';
  return `cannot be read: ${error instanceof Error ? error.message : String(error)}`;
}

async function readHeader(reader: ByteReader): Promise<GgufHeader> {
  const version = await readVersion(reader);
  const tensorCount = bounded(await reader.uint64(), MAX_TENSORS, 'tensors');
  const keyCount = bounded(await reader.uint64(), MAX_METADATA_KEYS, 'metadata keys');
  fits(reader, tensorCount, MINIMUM_TENSOR_INFO_BYTES, 'tensors');
  const metadata = new Map<string, GgufValue>();
  for (let index = 0; index < keyCount; index++) {
    const key = await readString(reader, MAX_KEY_BYTES, () => `metadata key ${index}`);
    if (key === '' || metadata.has(key))
      throw new Malformed(`metadata key ${index} (${quote(key)}) is empty or repeated`);
    metadata.set(key, await readValue(reader, key));
    headerBounded(reader);
  }
  const alignment = readAlignment(metadata);
  const tensors = await readTensorInfos(reader, tensorCount, alignment);
  const dataOffset = tensorCount === 0 ? reader.position : alignUp(reader.position, alignment);
  const last = tensors.at(-1);
  const expectedBytes = last === undefined ? dataOffset : dataOffset + last.offset + last.bytes;
  if (reader.fileBytes < expectedBytes) {
    throw new Malformed(
      `cut short: the file has ${reader.fileBytes} bytes, its ${tensorCount} tensors need ${expectedBytes}`,
    );
  }
  const parameters = tensors.reduce(
    (sum, { shape }) => sum + shape.reduce((product, length) => product * length, 1),
    0,
  );
  return { version, metadata, tensors, alignment, dataOffset, expectedBytes, parameters };
}

async function readVersion(reader: ByteReader): Promise<number> {
  await reader.need(Math.min(reader.fileBytes, 512));
  const front = reader.take(Math.min(reader.fileBytes, 4));
  if (front.toString('latin1') !== GGUF_MAGIC) {
    const rest = reader.take(Math.min(reader.fileBytes, 512) - front.length);
    throw new Malformed(`not a GGUF file: ${describeForeignFile(Buffer.concat([front, rest]))}`);
  }
  const version = await reader.uint32();
  // A big-endian file of version 3 reads as 0x03000000.
  if ((version & 0xffff) === 0) throw new Malformed('a big-endian GGUF file; this engine reads little-endian ones');
  if (version !== 2 && version !== 3)
    throw new Malformed(`GGUF version ${version}; this engine reads versions 2 and 3`);
  return version;
}

function bounded(count: bigint, limit: number, what: string): number {
  if (count > BigInt(limit))
    throw new Malformed(`the header announces ${count} ${what}; more than ${limit} is no model`);
  return Number(count);
}

/** Refuses a count whose smallest possible encoding does not fit into the rest of the file. */
function fits(reader: ByteReader, count: number, minimumBytes: number, what: string): void {
  if (count * minimumBytes > reader.remaining) {
    throw new Malformed(
      `cut short, or not a sane header: ${count} ${what} do not fit into the ${reader.remaining} bytes that follow`,
    );
  }
}

function headerBounded(reader: ByteReader): void {
  if (reader.position > MAX_HEADER_BYTES) throw new Malformed(`the header is longer than ${MAX_HEADER_BYTES} bytes`);
}

function quote(text: string): string {
  return JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text);
}

async function readString(reader: ByteReader, limit: number, what: () => string): Promise<string> {
  const length = await reader.uint64();
  if (length > BigInt(limit)) throw new Malformed(`${what()} is ${length} bytes long; the limit is ${limit}`);
  await reader.need(Number(length));
  return reader.take(Number(length)).toString('utf8');
}

function valueType(number: number, key: string): GgufValueType {
  const type = VALUE_TYPES[number];
  if (type === undefined) throw new Malformed(`metadata ${quote(key)} has the unknown type ${number}`);
  return type;
}

async function readValue(reader: ByteReader, key: string): Promise<GgufValue> {
  const type = valueType(await reader.uint32(), key);
  if (type !== 'array') return { type, value: await readScalar(reader, type, key) } as GgufScalar;
  const of = valueType(await reader.uint32(), key);
  if (of === 'array')
    throw new Malformed(`metadata ${quote(key)} is an array of arrays, which llama.cpp does not read`);
  const length = bounded(await reader.uint64(), MAX_ARRAY_LENGTH, `entries in ${quote(key)}`);
  fits(reader, length, MINIMUM_VALUE_BYTES[of], `entries of ${quote(key)}`);
  const value: GgufScalar['value'][] = [];
  for (let index = 0; index < length; index++) {
    value.push(await readScalar(reader, of, key));
    headerBounded(reader);
  }
  return { type, of, value } as GgufValue;
}

async function readScalar(
  reader: ByteReader,
  type: Exclude<GgufValueType, 'array'>,
  key: string,
): Promise<GgufScalar['value']> {
  if (type === 'string') return readString(reader, MAX_STRING_BYTES, () => `metadata ${quote(key)}`);
  const size = MINIMUM_VALUE_BYTES[type];
  await reader.need(size);
  return DECODE[type](reader.take(size));
}

const DECODE: Readonly<
  Record<Exclude<GgufValueType, 'array' | 'string'>, (bytes: Buffer) => number | bigint | boolean>
> = {
  uint8: (bytes) => bytes.readUInt8(),
  int8: (bytes) => bytes.readInt8(),
  uint16: (bytes) => bytes.readUInt16LE(),
  int16: (bytes) => bytes.readInt16LE(),
  uint32: (bytes) => bytes.readUInt32LE(),
  int32: (bytes) => bytes.readInt32LE(),
  float32: (bytes) => bytes.readFloatLE(),
  bool: (bytes) => bytes.readUInt8() !== 0,
  uint64: (bytes) => bytes.readBigUInt64LE(),
  int64: (bytes) => bytes.readBigInt64LE(),
  float64: (bytes) => bytes.readDoubleLE(),
};

function readAlignment(metadata: GgufMetadata): number {
  const entry = metadata.get(ALIGNMENT_KEY);
  if (entry === undefined) return DEFAULT_ALIGNMENT;
  // log2 is exact for powers of two, and -Infinity for zero.
  if (entry.type !== 'uint32' || !Number.isInteger(Math.log2(entry.value))) {
    throw new Malformed(`metadata ${quote(ALIGNMENT_KEY)} is not a uint32 power of two`);
  }
  return entry.value;
}

async function readTensorInfos(reader: ByteReader, count: number, alignment: number): Promise<GgufTensorInfo[]> {
  fits(reader, count, MINIMUM_TENSOR_INFO_BYTES, 'tensors');
  const tensors: GgufTensorInfo[] = [];
  const names = new Set<string>();
  let expectedOffset = 0;
  for (let index = 0; index < count; index++) {
    const name = await readString(reader, MAX_TENSOR_NAME_BYTES, () => `the name of tensor ${index}`);
    if (names.has(name)) throw new Malformed(`tensor ${quote(name)} appears twice`);
    names.add(name);
    const shape = await readShape(reader, name);
    const type = await readTensorType(reader, name);
    const bytes = tensorBytes(name, shape, type);
    const offset = await reader.uint64();
    // llama.cpp wants the tensors back to back, in the order of their infos.
    if (offset !== BigInt(expectedOffset)) {
      throw new Malformed(`tensor ${quote(name)} starts at ${offset} of the data instead of ${expectedOffset}`);
    }
    tensors.push({ name, shape, type, offset: expectedOffset, bytes });
    expectedOffset += alignUp(bytes, alignment);
    if (!Number.isSafeInteger(expectedOffset)) throw new Malformed(`tensor ${quote(name)} ends beyond 2^53 bytes`);
  }
  return tensors;
}

async function readShape(reader: ByteReader, name: string): Promise<number[]> {
  const dimensions = await reader.uint32();
  if (dimensions > MAX_DIMENSIONS) {
    throw new Malformed(`tensor ${quote(name)} has ${dimensions} dimensions; the limit is ${MAX_DIMENSIONS}`);
  }
  const shape: number[] = [];
  for (let dimension = 0; dimension < dimensions; dimension++) {
    shape.push(bounded(await reader.uint64(), Number.MAX_SAFE_INTEGER, `elements in a row of tensor ${quote(name)}`));
  }
  return shape;
}

async function readTensorType(reader: ByteReader, name: string): Promise<TensorType> {
  const number = await reader.uint32();
  const type = tensorType(number);
  if (type === undefined) {
    throw new Malformed(`tensor ${quote(name)} has the type ${number}, which this engine's llama.cpp does not know`);
  }
  return type;
}

function tensorBytes(name: string, shape: readonly number[], type: TensorType): number {
  if ((shape[0] ?? 1) % type.blockElements !== 0) {
    throw new Malformed(
      `tensor ${quote(name)} (${type.name}) has rows of ${shape[0]}, no multiple of ${type.blockElements}`,
    );
  }
  const elements = shape.reduce((product, length) => product * length, 1);
  const bytes = (elements / type.blockElements) * type.blockBytes;
  if (!Number.isSafeInteger(elements) || !Number.isSafeInteger(bytes)) {
    throw new Malformed(`tensor ${quote(name)} has an absurd shape: ${shape.join(' × ')}`);
  }
  return bytes;
}

interface Signature {
  readonly looksLike: string;
  readonly test: (front: Buffer, text: string) => boolean;
}

const SIGNATURES: readonly Signature[] = [
  { looksLike: 'the file is empty', test: (front) => front.length === 0 },
  {
    looksLike: 'it is a git-lfs pointer; the model itself was not fetched (run `git lfs pull`)',
    test: (_front, text) => text.startsWith('version https://git-lfs'),
  },
  {
    looksLike: 'it looks like a web page (HTML); the address led to a page about the model, not to its file',
    test: (_front, text) => /^\s*<(?:!doctype html|html|head|\?xml)/i.test(text),
  },
  { looksLike: 'it looks like a ZIP archive or a PyTorch checkpoint', test: (front) => startsWith(front, 0x50, 0x4b) },
  { looksLike: 'it is gzip-compressed', test: (front) => startsWith(front, 0x1f, 0x8b) },
  {
    looksLike: 'it is in a GGML format that came before GGUF; convert it or get a newer file',
    test: (_front, text) => ['lmgg', 'tjgg', 'fmgg', 'algg'].includes(text.slice(0, 4)),
  },
  {
    looksLike: 'it looks like a safetensors file; convert it with llama.cpp first',
    test: (front, text) => front.length > 9 && text[8] === '{' && front.readBigUInt64LE() < 100_000_000n,
  },
  { looksLike: 'it looks like JSON, perhaps an error message', test: (_front, text) => /^\s*[[{]/.test(text) },
  {
    looksLike: 'its first bytes are all zero, as in a download that did not finish',
    test: (front) => front.every((byte) => byte === 0),
  },
];

function startsWith(front: Buffer, ...bytes: readonly number[]): boolean {
  return bytes.every((byte, index) => front[index] === byte);
}

/**
 * Says in one clause what a file that is no GGUF looks like, from its first bytes (512 are plenty).
 * Shows no more of the content than its first four bytes, in hexadecimal.
 */
function describeForeignFile(front: Buffer): string {
  const text = front.toString('latin1');
  const match = SIGNATURES.find(({ test }) => test(front, text));
  return match?.looksLike ?? `it starts with the bytes ${front.subarray(0, 4).toString('hex')} instead of "GGUF"`;
}
