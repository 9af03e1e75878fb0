import fc from 'fast-check';
import { expect, test } from 'vitest';
import { KeyInterner } from '../src/tree/interner.js';
import { PairTable } from '../src/tree/pair-table.js';
import './seed.js';
import { runs } from '../../../test/runs.js';

test('PairTable behaves like a Map, however keys collide and come and go', () => {
  const CAPACITY = 24;
  // Few distinct halves in a small table: long runs that wrap around, holes in the middle of runs.
  const half = fc.constantFrom(-2_147_483_648, -1, 0, 1, 2, 3, 5, 8, 2_147_483_647);
  const step = fc.record({ first: half, second: half, value: fc.integer({ min: 1, max: 1000 }) });
  fc.assert(
    fc.property(fc.array(step, { minLength: 20, maxLength: 300 }), fc.boolean(), (steps, grows) => {
      const table = new PairTable(CAPACITY);
      const model = new Map<string, readonly [number, number, number]>();
      for (const { first, second, value } of steps) {
        const key = `${first},${second}`;
        if (model.has(key)) {
          table.remove(first, second);
          model.delete(key);
        } else if (model.size < CAPACITY) {
          table.add(first, second, value);
          model.set(key, [first, second, value]);
        }
        expect(table.get(first, second)).toBe(model.get(key)?.[2] ?? 0);
      }
      if (grows) table.grow(4 * CAPACITY);
      for (const [first, second, value] of model.values()) expect(table.get(first, second)).toBe(value);
    }),
    { numRuns: runs(300) },
  );
});

test('KeyInterner numbers the keys in use, gives freed numbers to others, and knows its bytes', () => {
  const step = fc.record({ key: fc.constantFrom(...'abcdefghijkl'), hold: fc.boolean() });
  fc.assert(
    fc.property(fc.array(step, { minLength: 150, maxLength: 250 }), (steps) => {
      const interner = new KeyInterner();
      const empty = interner.bytes;
      const holds = new Map<string, number>();
      for (const { key, hold } of steps) {
        const held = holds.get(key) ?? 0;
        if (hold) {
          const cost = interner.costOf(key);
          const before = interner.bytes;
          interner.hold(key);
          expect(interner.bytes - before).toBe(cost);
          holds.set(key, held + 1);
        } else if (held > 0) {
          interner.release(interner.numberOf(key));
          holds.set(key, held - 1);
        }
        const inUse = [...holds].filter(([, count]) => count > 0).map(([name]) => name);
        const numbers = inUse.map((name) => interner.numberOf(name));
        expect(new Set(numbers).size).toBe(inUse.length);
        expect(numbers.map((number) => interner.keyOf(number))).toEqual(inUse);
        expect(interner.size).toBe(inUse.length);
        for (const name of 'abcdefghijkl') if (!inUse.includes(name)) expect(interner.numberOf(name)).toBe(-1);
      }
      expect(interner.limit).toBeLessThanOrEqual(13);
      if (interner.size === 0) expect(interner.bytes).toBe(empty);
    }),
    { numRuns: runs(20) },
  );
});

test('KeyInterner grows beyond its first table', () => {
  const interner = new KeyInterner();
  const numbers = Array.from({ length: 5_000 }, (_, i) => interner.hold(`key ${i}`));
  expect(new Set(numbers).size).toBe(5_000);
  for (let i = 0; i < 5_000; i++) expect(interner.numberOf(`key ${i}`)).toBe(numbers[i]);
});
