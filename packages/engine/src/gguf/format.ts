/**
 * The GGUF container as llama.cpp reads it (`ggml/src/gguf.cpp`): magic, version, counts, key-value metadata, tensor
 * infos, padding to the alignment, tensor data. Little-endian throughout.
 */

/** The first four bytes of every GGUF file. */
export const GGUF_MAGIC = 'GGUF';

/** Bytes to which tensor data is aligned when `general.alignment` does not say otherwise. */
export const DEFAULT_ALIGNMENT = 32;

/** The metadata key that overrides {@link DEFAULT_ALIGNMENT}. */
export const ALIGNMENT_KEY = 'general.alignment';

/** Metadata types in the order of their numbers in the file. */
export const VALUE_TYPES = [
  'uint8',
  'int8',
  'uint16',
  'int16',
  'uint32',
  'int32',
  'float32',
  'bool',
  'string',
  'array',
  'uint64',
  'int64',
  'float64',
] as const;

/** Name of a metadata type. */
export type GgufValueType = (typeof VALUE_TYPES)[number];

type NumberType = 'uint8' | 'int8' | 'uint16' | 'int16' | 'uint32' | 'int32' | 'float32' | 'float64';
type BigIntType = 'uint64' | 'int64';

/** One value that is not an array. 64-bit integers are `bigint`, so that none is rounded. */
export type GgufScalar =
  | { readonly type: NumberType; readonly value: number }
  | { readonly type: BigIntType; readonly value: bigint }
  | { readonly type: 'bool'; readonly value: boolean }
  | { readonly type: 'string'; readonly value: string };

/** An array of values of one type. Arrays of arrays do not occur: llama.cpp refuses them. */
type GgufArray = { readonly type: 'array' } & (
  | { readonly of: NumberType; readonly value: readonly number[] }
  | { readonly of: BigIntType; readonly value: readonly bigint[] }
  | { readonly of: 'bool'; readonly value: readonly boolean[] }
  | { readonly of: 'string'; readonly value: readonly string[] }
);

/** One metadata value with the type that it has in the file. */
export type GgufValue = GgufScalar | GgufArray;

/** Metadata by key, in the order of the file. */
export type GgufMetadata = ReadonlyMap<string, GgufValue>;

/** Bytes of a value of each type; of a string its length field, of an array its type and count. */
export const VALUE_BYTES: Readonly<Record<GgufValueType, number>> = {
  uint8: 1,
  int8: 1,
  uint16: 2,
  int16: 2,
  uint32: 4,
  int32: 4,
  float32: 4,
  bool: 1,
  string: 8,
  array: 12,
  uint64: 8,
  int64: 8,
  float64: 8,
};

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
