const FLOAT = new Float32Array(1);
const BITS = new Uint32Array(FLOAT.buffer);

/**
 * The bits of the IEEE 754 half-precision number nearest to `value`, ties to even; beyond ±65504 infinity, as hardware
 * and ggml convert. Node 20 has no `Float16Array`. O(1), no allocation.
 */
export function toHalfFloat(value: number): number {
  FLOAT[0] = value;
  const bits = BITS[0]!;
  const sign = (bits >>> 16) & 0x8000;
  const exponent = (bits >>> 23) & 0xff;
  const mantissa = bits & 0x7fffff;
  if (exponent === 0xff) return sign | 0x7c00 | (mantissa === 0 ? 0 : 0x200);
  const halfExponent = exponent - 112;
  if (halfExponent >= 31) return sign | 0x7c00;
  if (halfExponent > 0) {
    const kept = (halfExponent << 10) | (mantissa >>> 13);
    // A carry out of the mantissa lands in the exponent, which is the right next number (up to infinity).
    return sign | (kept + roundUp(mantissa, 13, kept));
  }
  if (halfExponent < -10) return sign;
  const whole = mantissa | 0x800000;
  const shift = 14 - halfExponent;
  const kept = whole >>> shift;
  return sign | (kept + roundUp(whole, shift, kept));
}

/** 1 when the `shift` bits that fall off ask for the next number, else 0. */
function roundUp(value: number, shift: number, kept: number): number {
  const lost = value & ((1 << shift) - 1);
  const half = 1 << (shift - 1);
  return lost > half || (lost === half && (kept & 1) === 1) ? 1 : 0;
}
