import fc from 'fast-check';
import type { OrderConstraints } from '../src/ordering/placement.js';
import './seed.js';

const POOL = [...'abcdefghijklmnop'];

/** An order of distinct ids from a small pool, so that orders overlap. */
export function order(maxLength: number, minLength = 0, pool = POOL.length): fc.Arbitrary<string[]> {
  return fc.shuffledSubarray(POOL.slice(0, pool), { minLength, maxLength: Math.min(maxLength, pool) });
}

/** What was served before: orders that overlap. */
export function servedOrders(maxLength: number, maxOrders = 25, pool = POOL.length): fc.Arbitrary<string[][]> {
  return fc.array(order(maxLength, 1, pool), { maxLength: maxOrders });
}

/** Any constraints for `count` documents, free ones included. */
export function constraints(count: number): fc.Arbitrary<OrderConstraints> {
  return fc.record({
    maxShift: fc.option(fc.nat({ max: Math.max(1, count) }), { nil: undefined }),
    pinned: fc
      .subarray([...Array(count).keys()], { maxLength: Math.min(3, count) })
      .map((ranks) => ranks.sort((a, b) => a - b)),
  });
}

/** Any UTF-16 text, lone surrogates and control characters included. */
export function anyText(constraints: { minLength?: number; maxLength?: number } = {}): fc.Arbitrary<string> {
  const unit = fc.oneof(
    fc.integer({ min: 32, max: 126 }),
    fc.integer({ min: 0, max: 0xffff }),
    fc.integer({ min: 0xd800, max: 0xdfff }),
  );
  return fc.array(unit, { maxLength: 12, ...constraints }).map((units) => String.fromCharCode(...units));
}
