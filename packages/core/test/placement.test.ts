import fc from 'fast-check';
import { expect, test } from 'vitest';
import { runs } from '../../../test/suite.js';
import { ConstraintRule, limitShift, type OrderConstraints } from '../src/ordering/placement.js';
import { constraints } from './arbitraries.js';

function permutations(count: number): number[][] {
  if (count === 0) return [[]];
  return permutations(count - 1).flatMap((shorter) =>
    Array.from({ length: count }, (_, at) => [...shorter.slice(0, at), count - 1, ...shorter.slice(at)]),
  );
}

function isWithin(order: readonly number[], { maxShift, pinned }: OrderConstraints): boolean {
  return (
    order.every((rank, place) => Math.abs(rank - place) <= (maxShift ?? order.length)) &&
    pinned.every((rank) => order[rank] === rank)
  );
}

const ALL = new Map([0, 1, 2, 3, 4, 5, 6].map((count) => [count, permutations(count)]));
const instance = fc
  .nat({ max: 6 })
  .chain((count) =>
    fc.record({ count: fc.constant(count), limits: constraints(count), desired: fc.constantFrom(...ALL.get(count)!) }),
  );

test('`allows` says of every prefix whether some order within the constraints goes on like that', () => {
  fc.assert(
    fc.property(instance, ({ count, limits }) => {
      const rule = new ConstraintRule(count, limits);
      const within = ALL.get(count)!.filter((order) => isWithin(order, limits));
      for (const order of within) {
        for (let place = 0; place < count; place++) {
          const prefix = order.slice(0, place);
          for (let rank = 0; rank < count; rank++) {
            if (prefix.includes(rank)) continue;
            const exists = within.some(
              (other) => other[place] === rank && prefix.every((chosen, at) => other[at] === chosen),
            );
            expect(rule.allows(prefix, rank), `${prefix} + ${rank} of ${count}, ${JSON.stringify(limits)}`).toBe(
              exists,
            );
          }
        }
      }
    }),
    { numRuns: runs(60) },
  );
});

test('`complete` gives the first order, by ranks, within the constraints that goes on like the prefix', () => {
  fc.assert(
    fc.property(instance, fc.nat({ max: 6 }), ({ count, limits, desired }, length) => {
      const within = ALL.get(count)!.filter((order) => isWithin(order, limits));
      const prefix = limitShift(desired, limits).slice(0, length);
      const goingOn = within.filter((order) => prefix.every((rank, place) => order[place] === rank));
      const first = goingOn.toSorted((a, b) => compare(a, b))[0];
      expect(new ConstraintRule(count, limits).complete(prefix)).toEqual(first);
    }),
  );
});

test('`limitShift` follows the desired order as closely as the constraints allow, place by place', () => {
  fc.assert(
    fc.property(instance, ({ count, limits, desired }) => {
      const wish = (order: readonly number[]) => order.map((rank) => desired.indexOf(rank));
      const within = ALL.get(count)!.filter((order) => isWithin(order, limits));
      const closest = within.toSorted((a, b) => compare(wish(a), wish(b)))[0];
      expect(limitShift(desired, limits)).toEqual(closest);
    }),
    { numRuns: runs(300) },
  );
});

test('1,000 documents stay within any constraints', () => {
  const large = fc.tuple(fc.shuffledSubarray([...Array(1_000).keys()], { minLength: 1_000 }), constraints(1_000));
  fc.assert(
    fc.property(large, ([desired, limits]) => {
      const order = limitShift(desired, limits);
      expect(isWithin(order, limits)).toBe(true);
      expect(new Set(order).size).toBe(1_000);
    }),
    { numRuns: runs(20) },
  );
});

function compare(a: readonly number[], b: readonly number[]): number {
  const place = a.findIndex((value, index) => value !== b[index]);
  return place < 0 ? 0 : a[place]! - b[place]!;
}
