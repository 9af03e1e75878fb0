import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseJson } from '../../src/http/json-body.js';

const parsed = (text: string, contextTokens = 0): unknown => parseJson(Buffer.from(text), contextTokens);
const codeOf = (text: string, contextTokens = 0): unknown => {
  try {
    parsed(text, contextTokens);
    return undefined;
  } catch (error) {
    return (error as { code: unknown }).code;
  }
};

describe('the body of a request', () => {
  it('is what JSON.parse makes of it, and refused where that refuses it', () => {
    const signs = fc.constantFrom(...'[]{},:"\\ 1tn'.split(''), '\\"', '\\\\', '"a"', 'null', 'é');
    const torn = fc.array(signs, { maxLength: 20 }).map((parts) => parts.join(''));
    fc.assert(
      fc.property(fc.oneof(fc.json(), torn), (text) => {
        let expected: unknown;
        try {
          expected = JSON.parse(text);
        } catch {
          expect(codeOf(text)).toBe('WARMPATH_INVALID_JSON');
          return;
        }
        expect(parsed(text)).toEqual(expected);
      }),
      { seed: 1, numRuns: 3000 },
    );
  });

  it('is not parsed where it is nested too deeply', () => {
    const nested = (levels: number): string => `${'['.repeat(levels)}${']'.repeat(levels)}`;
    expect(codeOf(nested(256))).toBeUndefined();
    expect(codeOf(nested(257))).toBe('WARMPATH_BODY_TOO_COMPLEX');
    expect(codeOf('['.repeat(100_000))).toBe('WARMPATH_BODY_TOO_COMPLEX');
    // One behind the other is not one within the other.
    expect(codeOf(`[${'[],'.repeat(1_000)}1]`)).toBeUndefined();
  });

  it.each([
    ['arrays', (count: number) => `[${'[],'.repeat(count - 1)}1]`, 50_000],
    ['objects', (count: number) => `[${'{},'.repeat(count - 1)}1]`, 50_000],
    ['members', (count: number) => `{${'"a":1,'.repeat(count - 2)}"a":1}`, 50_000],
    ['numbers, beside as many as the context has tokens', (count: number) => `[${'1,'.repeat(count)}1]`, 50_100],
  ])('is not parsed with more than so many %s', (_name, make, most) => {
    expect(codeOf(make(most), 100)).toBeUndefined();
    expect(codeOf(make(most + 1), 100)).toBe('WARMPATH_BODY_TOO_COMPLEX');
  });

  it('may have any signs in its strings', () => {
    const text = '[{,:"\\'.repeat(30_000);
    expect(parsed(JSON.stringify({ text }))).toEqual({ text });
  });
});
