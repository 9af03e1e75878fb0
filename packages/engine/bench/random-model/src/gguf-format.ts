/**
 * The GGUF container as llama.cpp reads it (`ggml/src/gguf.cpp`): magic, version, counts, metadata, tensor infos,
 * padding to the alignment, tensor data. Little-endian throughout.
 */

/** The first four bytes of every GGUF file. */
export const GGUF_MAGIC = 'GGUF';

/** Bytes to which tensor data is aligned, and the metadata key that says another number. */
export const DEFAULT_ALIGNMENT = 32;
export const ALIGNMENT_KEY = 'general.alignment';

/**
 * Metadata types in the order of their numbers in the file: bytes of a value, and how it is read. A string begins with
 * its length, an array with its type and length.
 */
export const VALUE_TYPES = {
  uint8: [1, (bytes: Buffer) => bytes.readUInt8()],
  int8: [1, (bytes: Buffer) => bytes.readInt8()],
  uint16: [2, (bytes: Buffer) => bytes.readUInt16LE()],
  int16: [2, (bytes: Buffer) => bytes.readInt16LE()],
  uint32: [4, (bytes: Buffer) => bytes.readUInt32LE()],
  int32: [4, (bytes: Buffer) => bytes.readInt32LE()],
  float32: [4, (bytes: Buffer) => bytes.readFloatLE()],
  bool: [1, (bytes: Buffer) => bytes.readUInt8() !== 0],
  string: [8, undefined],
  array: [12, undefined],
  uint64: [8, (bytes: Buffer) => bytes.readBigUInt64LE()],
  int64: [8, (bytes: Buffer) => bytes.readBigInt64LE()],
  float64: [8, (bytes: Buffer) => bytes.readDoubleLE()],
} as const;

export type GgufValueType = keyof typeof VALUE_TYPES;
/** 64-bit integers are `bigint`, so that none is rounded. */
export type GgufScalar = number | bigint | boolean | string;

/** One metadata value with the type that it has in the file. */
export type GgufValue =
  | { readonly type: Exclude<GgufValueType, 'array'>; readonly value: GgufScalar }
  | {
      readonly type: 'array';
      readonly of: Exclude<GgufValueType, 'array'>;
      readonly value: readonly GgufScalar[];
    };

/** Metadata by key, in the order of the file. */
export type GgufMetadata = ReadonlyMap<string, GgufValue>;

/** How a tensor type is laid out: elements in a block, and bytes of a block. */
export interface TensorType {
  readonly name: string;
  readonly blockElements: number;
  readonly blockBytes: number;
}

const type = (name: string, blockElements: number, blockBytes: number): TensorType => ({
  name,
  blockElements,
  blockBytes,
});

/** By their numbers in the file, from ggml.h and ggml-common.h of the pinned llama.cpp build. */
export const TENSOR_TYPES: Readonly<Record<number, TensorType>> = {
  0: type('f32', 1, 4),
  1: type('f16', 1, 2),
  2: type('q4_0', 32, 18),
  3: type('q4_1', 32, 20),
  6: type('q5_0', 32, 22),
  7: type('q5_1', 32, 24),
  8: type('q8_0', 32, 34),
  9: type('q8_1', 32, 36),
  10: type('q2_K', 256, 84),
  11: type('q3_K', 256, 110),
  12: type('q4_K', 256, 144),
  13: type('q5_K', 256, 176),
  14: type('q6_K', 256, 210),
  15: type('q8_K', 256, 292),
  16: type('iq2_xxs', 256, 66),
  17: type('iq2_xs', 256, 74),
  18: type('iq3_xxs', 256, 98),
  19: type('iq1_s', 256, 50),
  20: type('iq4_nl', 32, 18),
  21: type('iq3_s', 256, 110),
  22: type('iq2_s', 256, 82),
  23: type('iq4_xs', 256, 136),
  24: type('i8', 1, 1),
  25: type('i16', 1, 2),
  26: type('i32', 1, 4),
  27: type('i64', 1, 8),
  28: type('f64', 1, 8),
  29: type('iq1_m', 256, 56),
  30: type('bf16', 1, 2),
  34: type('tq1_0', 256, 54),
  35: type('tq2_0', 256, 66),
  39: type('mxfp4', 32, 17),
  40: type('nvfp4', 64, 36),
  41: type('q1_0', 128, 18),
  42: type('q2_0', 64, 18),
};

/** `value` rounded up to a multiple of `alignment` (both in bytes, below 2^53). */
export function alignUp(value: number, alignment: number): number {
  return Math.ceil(value / alignment) * alignment;
}
