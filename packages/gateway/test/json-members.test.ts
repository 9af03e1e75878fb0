import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { arrayElements, objectMembers, rewriteObject } from '../src/intake/json-members.js';

const SEED = { seed: 20261121, numRuns: 400 };

/** JSON text with white space and escapes that a writer may choose. */
const anyObjectText = fc
  .tuple(
    fc.dictionary(fc.string({ unit: 'binary', maxLength: 6 }), fc.jsonValue({ maxDepth: 3 })),
    fc.constantFrom(undefined, 1, '\t'),
  )
  .map(([value, indent]) => ({
    value: JSON.parse(JSON.stringify(value)) as Record<string, unknown>,
    text: JSON.stringify(value, null, indent),
  }));

describe('objectMembers', () => {
  it('finds the members that JSON.parse finds, each with its own text', () => {
    fc.assert(
      fc.property(anyObjectText, ({ value, text }) => {
        const members = objectMembers(text);
        const found = members.map(({ key, valueStart, end }) => [
          key,
          JSON.parse(text.slice(valueStart, end)) as unknown,
        ]);
        expect(found).toEqual(Object.entries(value));
      }),
      SEED,
    );
  });

  it('decodes escaped keys and sees through quotes and brackets in strings', () => {
    const text = String.raw`{ "a\u0062" : "}]\\\"," , "c":[{"d":"]"},"\\"] , "e":-1.5e3}`;
    expect(objectMembers(text).map(({ key, valueStart, end }) => [key, text.slice(valueStart, end)])).toEqual([
      ['ab', String.raw`"}]\\\","`],
      ['c', String.raw`[{"d":"]"},"\\"]`],
      ['e', '-1.5e3'],
    ]);
  });

  it('takes a body of many quotes in linear time', () => {
    const text = JSON.stringify({ a: '\\'.repeat(200_000), b: '"'.repeat(200_000) });
    expect(objectMembers(text)).toHaveLength(2);
  });
});

describe('arrayElements', () => {
  it('finds the elements that JSON.parse finds', () => {
    fc.assert(
      fc.property(fc.array(fc.jsonValue({ maxDepth: 2 })), fc.constantFrom(undefined, 2), (value, indent) => {
        const text = JSON.stringify(value, null, indent);
        const elements = arrayElements(text, 0).map(({ start, end }) => JSON.parse(text.slice(start, end)) as unknown);
        expect(elements).toEqual(JSON.parse(text));
      }),
      SEED,
    );
  });
});

describe('rewriteObject', () => {
  it('leaves out and replaces as an object would, and keeps the text of all else', () => {
    fc.assert(
      fc.property(anyObjectText, fc.infiniteStream(fc.integer({ min: 0, max: 2 })), ({ value, text }, choices) => {
        const expected: Record<string, unknown> = {};
        const changes = new Map<string, string | undefined>();
        for (const [key, old] of Object.entries(value)) {
          const choice = choices.next().value as number;
          if (choice === 0) changes.set(key, undefined);
          else if (choice === 1) changes.set(key, '"new"');
          if (choice !== 0)
            Object.defineProperty(expected, key, { value: choice === 1 ? 'new' : old, enumerable: true });
        }
        const rewritten = rewriteObject(text, objectMembers(text), changes);
        expect(Object.entries(JSON.parse(rewritten) as object)).toEqual(Object.entries(expected));
      }),
      SEED,
    );
  });

  it('keeps numbers, order and repeated keys as the client wrote them', () => {
    const text =
      '{"seed":12345678901234567890,"logit_bias":{"50256":-100,"11":1.0},"documents":[],"n":1e2,"n":2,"documents":[1]}';
    expect(rewriteObject(text, objectMembers(text), new Map([['documents', undefined]]))).toBe(
      '{"seed":12345678901234567890,"logit_bias":{"50256":-100,"11":1.0},"n":1e2,"n":2}',
    );
    expect(rewriteObject(text, objectMembers(text), new Map([['n', '3']]))).toContain('"n":1e2,"n":3');
  });
});
