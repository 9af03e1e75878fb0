import fc from 'fast-check';
import { expect, it } from 'vitest';
import { type RecencyLinks, RecencyList } from '../src/intrusive-collections.js';

class Item implements RecencyLinks<Item> {
  older: Item | undefined;
  newer: Item | undefined;
  readonly name: number;

  constructor(name: number) {
    this.name = name;
  }
}

it('keeps the order of use, as an array does', () => {
  const step = fc.record({ name: fc.nat(7), act: fc.constantFrom('use', 'remove', 'clear', 'use', 'use') });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60, size: 'max' }), (steps) => {
      const list = new RecencyList<Item>();
      let naive: Item[] = [];
      for (const { name, act } of steps) {
        const known = naive.find((item) => item.name === name);
        if (act === 'clear') {
          list.clear();
          naive = [];
        } else if (known === undefined) {
          const item = new Item(name);
          list.add(item);
          naive.push(item);
        } else {
          naive = naive.filter((item) => item !== known);
          if (act === 'use') {
            list.use(known);
            naive.push(known);
          } else {
            list.remove(known);
            expect([known.older, known.newer]).toEqual([undefined, undefined]);
          }
        }
        const found: Item[] = [];
        for (let item = list.oldest; item !== undefined; item = item.newer) found.push(item);
        expect(found).toEqual(naive);
        // The other way round as well.
        for (const [place, item] of naive.entries()) expect(item.older).toBe(naive[place - 1]);
      }
    }),
  );
});
