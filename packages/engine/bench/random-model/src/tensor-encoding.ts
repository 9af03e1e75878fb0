import { toHalfFloat } from './half-float.js';

/** Tensor types that {@link encodeWeights} and the writer can produce. */
export type WritableTensorType = 'f32' | 'f16' | 'q8_0';

/** Numbers of the writable types in the file. */
export const WRITABLE_TYPE_NUMBERS: Readonly<Record<WritableTensorType, number>> = { f32: 0, f16: 1, q8_0: 8 };

/** Weights that share one scale in q8_0. */
const Q8_BLOCK_ELEMENTS = 32;
const Q8_BLOCK_BYTES = 34;

/**
 * Encodes weights as ggml stores them. For q8_0 (blocks of 32: a half-precision scale, then 32 signed bytes) the number
 * of weights has to be a multiple of 32. Returns fresh bytes; O(n).
 */
export function encodeWeights(type: WritableTensorType, weights: Float32Array): Uint8Array {
  if (type === 'q8_0') return encodeQ8(weights);
  const bytes = new Uint8Array(weights.length * (type === 'f32' ? 4 : 2));
  const view = new DataView(bytes.buffer);
  for (let index = 0; index < weights.length; index++) {
    if (type === 'f32') view.setFloat32(index * 4, weights[index]!, true);
    else view.setUint16(index * 2, toHalfFloat(weights[index]!), true);
  }
  return bytes;
}

function encodeQ8(weights: Float32Array): Uint8Array {
  const blocks = weights.length / Q8_BLOCK_ELEMENTS;
  if (!Number.isInteger(blocks)) throw new RangeError(`q8_0 needs multiples of ${Q8_BLOCK_ELEMENTS} weights`);
  const bytes = new Uint8Array(blocks * Q8_BLOCK_BYTES);
  const view = new DataView(bytes.buffer);
  for (let block = 0; block < blocks; block++) {
    const start = block * Q8_BLOCK_ELEMENTS;
    let largest = 0;
    for (let index = 0; index < Q8_BLOCK_ELEMENTS; index++) {
      largest = Math.max(largest, Math.abs(weights[start + index]!));
    }
    const inverse = largest === 0 ? 0 : 127 / largest;
    const offset = block * Q8_BLOCK_BYTES;
    view.setUint16(offset, toHalfFloat(largest / 127), true);
    for (let index = 0; index < Q8_BLOCK_ELEMENTS; index++) {
      view.setInt8(offset + 2 + index, Math.round(weights[start + index]! * inverse));
    }
  }
  return bytes;
}
