import fc from 'fast-check';
import { expect, it } from 'vitest';
import { OpenTable } from '../src/observe/open-table.js';

interface Value {
  readonly of: number;
}

/** Numbers that meet in a small table, numbers at the ends of 32 bits, and any others. */
const number = fc.oneof(
  fc.integer({ min: 0, max: 40 }),
  fc.constantFrom(2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1),
  fc.integer({ min: 0, max: 2 ** 32 - 1 }),
);

it('does what a Map does, whatever comes and goes', () => {
  const step = fc.record({ kind: fc.constantFrom('add', 'set', 'set', 'delete', 'delete' as const), number });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 300 }), (steps) => {
      const [table, twin] = [new OpenTable<Value>(), new Map<number, Value>()];
      for (const [of, { kind, number: given }] of steps.entries()) {
        if (kind === 'add') {
          const added = table.add({ of });
          expect(twin.has(added)).toBe(false);
          expect(added).toBe(added >>> 0);
          twin.set(added, { of });
        } else if (kind === 'set') {
          table.set(given, { of });
          twin.set(given, { of });
        } else expect(table.delete(given)).toBe(twin.delete(given));
        expect(table.size).toBe(twin.size);
        expect(table.get(given)).toEqual(twin.get(given));
      }
      for (const [each, value] of twin) expect(table.get(each)).toEqual(value);
      const inOrder = (values: Iterable<Value>) => [...values].map(({ of }) => of).sort((a, b) => a - b);
      expect(inOrder(table.values())).toEqual(inOrder(twin.values()));
    }),
    { seed: 17, numRuns: 500 },
  );
});

it('keeps apart those that stay from ten thousand that come and go', () => {
  const table = new OpenTable<Value>();
  const stays = Array.from({ length: 50 }, (_, of) => table.add({ of }));
  const open: number[] = [];
  for (let of = 0; of < 10_000; of++) {
    open.push(table.add({ of }));
    if (open.length > 32) expect(table.delete(open.shift()!)).toBe(true);
  }
  expect(table.size).toBe(82);
  for (const [of, each] of stays.entries()) expect(table.get(each)).toEqual({ of });
});
