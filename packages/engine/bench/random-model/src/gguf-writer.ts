import { randomBytes } from 'node:crypto';
import { type FileHandle, open, rename, rm } from 'node:fs/promises';
import {
  ALIGNMENT_KEY,
  alignUp,
  DEFAULT_ALIGNMENT,
  GGUF_MAGIC,
  type GgufMetadata,
  type GgufValue,
  type GgufValueType,
  TENSOR_TYPES,
  VALUE_TYPES,
} from './gguf-format.js';
import { encodeWeights, WRITABLE_TYPE_NUMBERS, type WritableTensorType } from './tensor-encoding.js';

const VERSION = 3;
/** What llama.cpp allows (`GGML_MAX_DIMS`, and `GGML_MAX_NAME` less the terminating zero). */
const MAX_DIMENSIONS = 4;
const MAX_TENSOR_NAME_BYTES = 63;

/** One tensor to write. */
export interface GgufTensorSource {
  readonly name: string;
  /** Elements in each dimension, fastest-varying first. */
  readonly shape: readonly number[];
  readonly type: WritableTensorType;
  /** The weights in order, in pieces of any length (of whole blocks for q8_0); together as many as the shape says. */
  readonly weights: Iterable<Float32Array>;
}

export interface WriteGgufOptions {
  /** Called with the bytes written so far and the size that the file will have. */
  readonly onProgress?: (bytes: number, totalBytes: number) => void;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Writes a GGUF file of version 3: to a temporary file in the same folder, flushed to the disk, then renamed, so that
 * `path` is absent or complete at every moment and two writers do not mix. A temporary file is removed on any error.
 *
 * Errors: `RangeError` for tensors that contradict their shape; the file system's own; the signal's reason.
 * Cost: O(size of the file); memory stays at one piece of weights.
 */
export async function writeGguf(
  path: string,
  metadata: GgufMetadata,
  tensors: readonly GgufTensorSource[],
  options: WriteGgufOptions = {},
): Promise<void> {
  const alignment = alignmentOf(metadata);
  const { header, totalBytes } = encodeHeader(metadata, tensors, alignment);
  const temporary = `${path}.${process.pid}-${randomBytes(6).toString('hex')}.tmp`;
  try {
    const handle = await open(temporary, 'wx');
    try {
      await handle.writeFile(header);
      let bytes = header.length;
      for (const tensor of tensors) {
        bytes += await writeTensor(handle, tensor, alignment, (within) => {
          options.signal?.throwIfAborted();
          options.onProgress?.(bytes + within, totalBytes);
        });
      }
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

function alignmentOf(metadata: GgufMetadata): number {
  const entry = metadata.get(ALIGNMENT_KEY);
  return entry === undefined ? DEFAULT_ALIGNMENT : Number(entry.value);
}

function encodeHeader(
  metadata: GgufMetadata,
  tensors: readonly GgufTensorSource[],
  alignment: number,
): { header: Uint8Array; totalBytes: number } {
  const parts: Uint8Array[] = [
    Buffer.from(GGUF_MAGIC, 'latin1'),
    uint32(VERSION),
    uint64(tensors.length),
    uint64(metadata.size),
  ];
  for (const [key, value] of metadata) parts.push(string(key), encodeValue(value));
  let offset = 0;
  for (const tensor of tensors) {
    parts.push(encodeTensorInfo(tensor, offset));
    offset += alignUp(tensorBytes(tensor), alignment);
  }
  const unpadded = parts.reduce((sum, part) => sum + part.length, 0);
  const padded = alignUp(unpadded, alignment);
  parts.push(new Uint8Array(padded - unpadded));
  return { header: Buffer.concat(parts), totalBytes: padded + offset };
}

function encodeTensorInfo(tensor: GgufTensorSource, offset: number): Uint8Array {
  const { name, shape, type } = tensor;
  if (shape.length > MAX_DIMENSIONS || Buffer.byteLength(name) > MAX_TENSOR_NAME_BYTES) {
    throw new RangeError(`tensor ${name} has too many dimensions or too long a name`);
  }
  return Buffer.concat([
    string(name),
    uint32(shape.length),
    ...shape.map(uint64),
    uint32(WRITABLE_TYPE_NUMBERS[type]),
    uint64(offset),
  ]);
}

function elementsOf(tensor: GgufTensorSource): number {
  return tensor.shape.reduce((product, length) => product * length, 1);
}

function tensorBytes(tensor: GgufTensorSource): number {
  const { blockElements, blockBytes } = TENSOR_TYPES[WRITABLE_TYPE_NUMBERS[tensor.type]]!;
  if ((tensor.shape[0] ?? 1) % blockElements !== 0) {
    throw new RangeError(`tensor ${tensor.name} (${tensor.type}) has rows that are no multiple of ${blockElements}`);
  }
  return (elementsOf(tensor) / blockElements) * blockBytes;
}

async function writeTensor(
  handle: FileHandle,
  tensor: GgufTensorSource,
  alignment: number,
  wrote: (bytes: number) => void,
): Promise<number> {
  let elements = 0;
  let bytes = 0;
  for (const piece of tensor.weights) {
    const encoded = encodeWeights(tensor.type, piece);
    await handle.writeFile(encoded);
    elements += piece.length;
    bytes += encoded.length;
    wrote(bytes);
  }
  if (elements !== elementsOf(tensor)) {
    throw new RangeError(`tensor ${tensor.name} has ${elements} weights, its shape says ${elementsOf(tensor)}`);
  }
  const padding = new Uint8Array(alignUp(bytes, alignment) - bytes);
  await handle.writeFile(padding);
  return bytes + padding.length;
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function uint64(value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}

function string(text: string): Buffer {
  const bytes = Buffer.from(text, 'utf8');
  return Buffer.concat([uint64(bytes.length), bytes]);
}

function typeNumber(type: GgufValueType): number {
  return Object.keys(VALUE_TYPES).indexOf(type);
}

function encodeValue(value: GgufValue): Buffer {
  if (value.type !== 'array') return Buffer.concat([uint32(typeNumber(value.type)), encodeScalar(value)]);
  const { of, value: entries } = value;
  return Buffer.concat([
    uint32(typeNumber('array')),
    uint32(typeNumber(of)),
    uint64(entries.length),
    ...entries.map((entry) => encodeScalar({ type: of, value: entry })),
  ]);
}

function encodeScalar({ type, value }: Exclude<GgufValue, { type: 'array' }>): Buffer {
  if (typeof value === 'string') return string(value);
  const bytes = Buffer.alloc(8);
  if (typeof value === 'bigint') {
    bytes.writeBigInt64LE(BigInt.asIntN(64, value));
    return bytes;
  }
  const number = Number(value);
  const write: Record<string, () => number> = {
    uint8: () => bytes.writeUInt8(number),
    int8: () => bytes.writeInt8(number),
    uint16: () => bytes.writeUInt16LE(number),
    int16: () => bytes.writeInt16LE(number),
    uint32: () => bytes.writeUInt32LE(number),
    int32: () => bytes.writeInt32LE(number),
    float32: () => bytes.writeFloatLE(number),
    bool: () => bytes.writeUInt8(number),
    float64: () => bytes.writeDoubleLE(number),
  };
  return bytes.subarray(0, write[type]!());
}
