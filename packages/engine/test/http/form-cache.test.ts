import { expect, it } from 'vitest';
import { FormCache } from '../../src/http/form-cache.js';

const GRAMMAR = 'x'.repeat(200);

it('a schema is read once, and again when others have been used since and there is no room', () => {
  const cache = new FormCache(3000);
  const reads: string[] = [];
  const use = (name: string): void => {
    const form = cache.form({ name }, () => {
      reads.push(name);
      return { grammar: GRAMMAR + name };
    });
    expect(form.grammar).toBe(GRAMMAR + name);
    expect(cache.bytes).toBeLessThanOrEqual(3000);
  };
  for (const name of ['a', 'b', 'a', 'c', 'd', 'a', 'e', 'b', 'a', 'a']) {
    use(name);
  }
  expect(reads.join('')).toBe('abcdeb');
});

it('what is larger than all the room is not kept, nor what cannot be read', () => {
  const cache = new FormCache(100);
  expect(cache.form({}, () => ({ grammar: GRAMMAR })).grammar).toBe(GRAMMAR);
  expect(() =>
    cache.form([], () => {
      throw new Error('wrong');
    }),
  ).toThrow('wrong');
  expect(cache.bytes).toBe(0);
  const fits = (): boolean => true;
  expect(cache.form([], () => ({ fits }))).toEqual({ fits });
});
