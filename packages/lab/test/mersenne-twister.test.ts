import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { MersenneTwister } from '../src/index.js';

/** From CPython 3.11, `random.Random(42)`, in this order. */
describe('MersenneTwister', () => {
  it('draws what CPython draws', () => {
    const random = new MersenneTwister(42);
    expect([random.random(), random.random(), random.random()]).toEqual([
      0.6394267984578837, 0.025010755222666936, 0.27502931836911926,
    ]);
    expect(Array.from({ length: 5 }, () => random.randint(0, 99))).toEqual([28, 17, 94, 13, 86]);
    // Few of many, remembered by place; then many of few, from a pool.
    const range = (size: number) => Array.from({ length: size }, (_, i) => i);
    expect(random.sample(range(1_000), 8)).toEqual([758, 913, 558, 89, 604, 432, 32, 30]);
    expect(random.sample(range(300), 200).slice(0, 5)).toEqual([47, 111, 119, 258, 13]);
    const shuffled = range(20);
    random.shuffle(shuffled);
    expect(shuffled).toEqual([4, 5, 9, 8, 15, 2, 6, 12, 13, 3, 14, 19, 11, 1, 18, 16, 7, 17, 0, 10]);
  });

  it('takes seeds of more than 32 bits', () => {
    expect(new MersenneTwister(2 ** 40 + 7).random()).toBe(0.6137037779936511);
  });

  it('samples without repeating', () => {
    fc.assert(
      fc.property(fc.nat(), fc.integer({ min: 1, max: 400 }), fc.nat(), (seed, size, wish) => {
        const count = wish % (size + 1);
        const items = Array.from({ length: size }, (_, i) => i);
        const drawn = new MersenneTwister(seed).sample(items, count);
        expect(new Set(drawn).size).toBe(count);
        expect(drawn.every((item) => item >= 0 && item < size)).toBe(true);
      }),
      { seed: 7, numRuns: 200 },
    );
  });
});
