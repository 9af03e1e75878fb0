import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { toHalfFloat } from '../../bench/random-model/src/half-float.js';
import { fromHalfFloat } from './decode.js';

describe('half-precision conversion', () => {
  it('gives every half-precision number its own bits', () => {
    const wrong: number[] = [];
    for (let bits = 0; bits < 0x10000; bits++) {
      const value = fromHalfFloat(bits);
      if (!Number.isNaN(value) && toHalfFloat(value) !== bits) wrong.push(bits);
    }
    expect(wrong).toStrictEqual([]);
  });

  it('takes the nearer neighbour, and the even one of two equally near', () => {
    const wrong: number[] = [];
    for (let bits = 0; bits < 0x7bff; bits++) {
      const low = fromHalfFloat(bits);
      const high = fromHalfFloat(bits + 1);
      const middle = (low + high) / 2;
      const right =
        toHalfFloat(middle) === bits + (bits & 1) &&
        toHalfFloat(middle + (high - low) / 8) === bits + 1 &&
        toHalfFloat(middle - (high - low) / 8) === bits;
      if (!right) wrong.push(bits);
    }
    expect(wrong).toStrictEqual([]);
  });

  it('keeps NaN, and turns what is too large into infinity', () => {
    expect(fromHalfFloat(toHalfFloat(Number.NaN))).toBeNaN();
    expect(fromHalfFloat(toHalfFloat(65_520))).toBe(Number.POSITIVE_INFINITY);
    expect(fromHalfFloat(toHalfFloat(-1e30))).toBe(Number.NEGATIVE_INFINITY);
  });

  it('is never further off than half a step', () => {
    fc.assert(
      fc.property(fc.float({ min: -65_504, max: 65_504, noNaN: true }), (value) => {
        const step = Math.max(2 ** -24, 2 ** (Math.floor(Math.log2(Math.max(Math.abs(value), 2 ** -14))) - 10));
        expect(Math.abs(fromHalfFloat(toHalfFloat(value)) - value)).toBeLessThanOrEqual(step / 2);
      }),
      { seed: 7 },
    );
  });
});
