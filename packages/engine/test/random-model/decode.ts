/** The number that half-precision `bits` stand for. */
export function fromHalfFloat(bits: number): number {
  const sign = (bits & 0x8000) === 0 ? 1 : -1;
  const exponent = (bits >>> 10) & 0x1f;
  const mantissa = bits & 0x3ff;
  if (exponent === 0) return sign * mantissa * 2 ** -24;
  if (exponent === 31) return mantissa === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  return sign * (mantissa + 1024) * 2 ** (exponent - 25);
}

/** The weights that the bytes of a tensor stand for. */
export function decodeWeights(type: string, bytes: Uint8Array): number[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (type === 'f32') return Array.from({ length: bytes.length / 4 }, (_, index) => view.getFloat32(index * 4, true));
  if (type === 'f16') {
    return Array.from({ length: bytes.length / 2 }, (_, index) => fromHalfFloat(view.getUint16(index * 2, true)));
  }
  return Array.from({ length: (bytes.length / 34) * 32 }, (_, index) => {
    const block = Math.floor(index / 32) * 34;
    return fromHalfFloat(view.getUint16(block, true)) * view.getInt8(block + 2 + (index % 32));
  });
}
