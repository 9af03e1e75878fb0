import { readFile } from 'node:fs/promises';
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
} from './gguf-format.js';

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
interface GgufHeader {
  readonly metadata: GgufMetadata;
  readonly tensors: readonly GgufTensorInfo[];
  /** Offset of the tensor data in the file, in bytes. */
  readonly dataOffset: number;
}

/**
 * Reads the header of a GGUF file that `writeGguf` or llama.cpp's tools have written.
 *
 * @throws Error for another file, and for one that is cut short.
 */
export async function readGgufHeader(path: string): Promise<GgufHeader> {
  const bytes = await readFile(path);
  let at = 0;
  const take = (length: number): Buffer => {
    if (at + length > bytes.length) throw new Error('cut short');
    at += length;
    return bytes.subarray(at - length, at);
  };
  const number = (): number => Number(take(8).readBigUInt64LE());
  const text = (): string => take(number()).toString('utf8');
  const list = <T>(length: number, read: () => T): T[] => Array.from({ length }, read);
  const typeName = (): GgufValueType => (Object.keys(VALUE_TYPES) as GgufValueType[])[take(4).readUInt32LE()]!;
  const scalar = (type: Exclude<GgufValueType, 'array'>): GgufScalar => {
    const [length, read] = VALUE_TYPES[type];
    return read === undefined ? text() : read(take(length));
  };
  const value = (): GgufValue => {
    const type = typeName();
    if (type !== 'array') return { type, value: scalar(type) };
    const of = typeName() as Exclude<GgufValueType, 'array'>;
    return { type, of, value: list(number(), () => scalar(of)) };
  };
  const tensor = (): GgufTensorInfo => {
    const name = text();
    const shape = list(take(4).readUInt32LE(), number);
    const type = TENSOR_TYPES[take(4).readUInt32LE()]!;
    const elements = shape.reduce((product, length) => product * length, 1);
    return { name, shape, type, offset: number(), bytes: (elements / type.blockElements) * type.blockBytes };
  };
  if (take(4).toString('latin1') !== GGUF_MAGIC) throw new Error('not a GGUF file');
  take(4); // The version.
  const [tensorCount, keyCount] = [number(), number()];
  const metadata = new Map(list(keyCount, () => [text(), value()] as const));
  const tensors = list(tensorCount, tensor);
  const alignment = Number(metadata.get(ALIGNMENT_KEY)?.value ?? DEFAULT_ALIGNMENT);
  const dataOffset = alignUp(at, alignment);
  for (const { offset, bytes: length } of tensors) {
    if (dataOffset + offset + length > bytes.length) throw new Error('cut short');
  }
  return { metadata, tensors, dataOffset };
}
