import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import { describeJsonError, fileErrorReason } from '../src/internal.js';
import { findJsonError } from '../src/json-error.js';

describe('the place of an error in JSON', () => {
  it.each([
    ['{"a": abc}', 1, 7],
    ['{"a": 1,\n "b" 2}', 2, 6],
    ['[1, 2,\n3,]', 2, 3],
    ['{"a": "x\\q"}', 1, 10],
    ['{"a": "one\ntwo"}', 1, 11],
    ['{} {}', 1, 4],
    ["{'a': 1}", 1, 2],
    ['{"a": 01}', 1, 8],
    ['nul', 1, 1],
  ])('%j: line %i, column %i', (text, line, column) => {
    expect(findJsonError(text)).toMatchObject({ line, column, isCutShort: false });
    expect(describeJsonError(text)).toBe(`Not valid JSON at line ${line}, column ${column}.`);
  });

  it.each(['{"a": "b', '[1, {"a"', '{"a":', '["\\u00'])('%j ends too soon', (text) => {
    expect(findJsonError(text)?.isCutShort).toBe(true);
    expect(describeJsonError(text)).toContain('ends too soon');
  });

  it('is none in any JSON, and one wherever the parser finds one', () => {
    const texts = fc.oneof(
      fc.json(),
      fc
        .tuple(fc.json(), fc.nat(60), fc.constantFrom('', '"', '\\', '{', ']', ',', '0', '\n', 'x'))
        .map(([json, at, put]) => json.slice(0, at) + put + json.slice(at + 1)),
    );
    let errors = 0;
    fc.assert(
      fc.property(texts, (text) => {
        const isJson = parses(text);
        if (!isJson) errors += 1;
        const place = findJsonError(text);
        expect(place === undefined).toBe(isJson);
        // Whatever stands before the place is the beginning of some JSON: that error is the first.
        if (place !== undefined)
          expect(findJsonError(text.slice(0, place.offset))?.offset ?? place.offset).toBe(place.offset);
      }),
      { seed: 20_261_123, numRuns: runs(3_000) },
    );
    expect(errors).toBeGreaterThan(runs(500));
  });

  it('says nothing of the text, reads any depth, and does not mind a long string', () => {
    expect(describeJsonError('{"password": hunter2}')).not.toContain('hunter2');
    expect(findJsonError('['.repeat(100_000))).toMatchObject({ offset: 100_000, isCutShort: true });
    expect(findJsonError(`"${'a'.repeat(3_000_000)}" x`)).toMatchObject({ offset: 3_000_003 });
    expect(describeJsonError(' \n')).toContain('empty');
  });
});

describe('why a file cannot be read', () => {
  it.each([
    ['ENOENT', 'no such file'],
    ['EISDIR', 'folder'],
    ['EACCES', 'permission'],
    ['EUNKNOWN', 'EUNKNOWN'],
  ])('%s', (code, words) => {
    expect(fileErrorReason(Object.assign(new Error('x'), { code }))).toContain(words);
  });
});

function parses(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
