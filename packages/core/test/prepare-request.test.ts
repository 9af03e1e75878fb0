import { describe, expect, test } from 'vitest';
import { type ErrorCode, POLICY_NAMES, prepareRequest, WarmpathError } from '../src/index.js';
import { nearestName, readPolicyName } from '../src/internal.js';

const documents = [...'abc'].map((id) => ({ id, content: `Text of ${id}.` }));

function errorOf(call: () => unknown): WarmpathError {
  try {
    call();
  } catch (error) {
    if (WarmpathError.isInstance(error)) return error;
  }
  throw new Error('No WarmpathError was thrown.');
}

test('fields that are absent or null stay absent, so that the defaults apply', () => {
  const request = prepareRequest({ documents, policy: null, maxShift: null, shiftPrice: null, pin: null, hints: null });
  expect(Object.keys(request).sort()).toEqual(['documents', 'sources', 'warnings']);
});

test('a full request comes through', () => {
  const request = prepareRequest({
    documents,
    policy: 'greedy',
    maxShift: 0,
    shiftPrice: 2.5,
    pin: ['b', 'a', 'b'],
    hints: false,
    session: 'x',
  });
  expect(request).toMatchObject({ policy: 'greedy', maxShift: 0, shiftPrice: 2.5, pin: ['b', 'a'], hints: false });
  expect(request.documents.map((document) => document.id)).toEqual(['a', 'b', 'c']);
});

describe('what bad input gets', () => {
  const cases: readonly [object, ErrorCode, string][] = [
    [{ policy: 'exakt' }, 'WARMPATH_UNKNOWN_POLICY', 'warmpath.policy'],
    [{ policy: 4 }, 'WARMPATH_UNKNOWN_POLICY', 'warmpath.policy'],
    [{ maxShift: -1 }, 'WARMPATH_INVALID_MAX_SHIFT', 'warmpath.maxShift'],
    [{ maxShift: 1.5 }, 'WARMPATH_INVALID_MAX_SHIFT', 'warmpath.maxShift'],
    [{ maxShift: '2' }, 'WARMPATH_INVALID_MAX_SHIFT', 'warmpath.maxShift'],
    [{ shiftPrice: -0.5 }, 'WARMPATH_INVALID_SHIFT_PRICE', 'warmpath.shiftPrice'],
    [{ shiftPrice: '2' }, 'WARMPATH_INVALID_SHIFT_PRICE', 'warmpath.shiftPrice'],
    [{ shiftPrice: 2e9 }, 'WARMPATH_INVALID_SHIFT_PRICE', 'warmpath.shiftPrice'],
    [{ pin: 'a' }, 'WARMPATH_INVALID_PIN', 'warmpath.pin'],
    [{ pin: ['a', 'z'] }, 'WARMPATH_INVALID_PIN', 'warmpath.pin[1]'],
    [{ pin: [0] }, 'WARMPATH_INVALID_PIN', 'warmpath.pin[0]'],
    [{ hints: 'no' }, 'WARMPATH_INVALID_REQUEST', 'warmpath.hints'],
    [{ documents: [{ content: 7 }] }, 'WARMPATH_INVALID_DOCUMENT', 'input[0].content'],
  ];
  test.each(cases)('%j → %s at %s', (fields, code, path) => {
    const options = { path: 'input', switchesPath: 'warmpath' };
    expect(errorOf(() => prepareRequest({ documents, ...fields }, options))).toMatchObject({ code, path });
  });

  test.each([[null], ['x'], [[documents]], [undefined]])('%j is no request', (raw) => {
    expect(errorOf(() => prepareRequest(raw)).code).toBe('WARMPATH_INVALID_REQUEST');
  });
});

test('an unknown policy is answered with the nearest known one', () => {
  for (const name of POLICY_NAMES) {
    expect(readPolicyName(name)).toBe(name);
    expect(errorOf(() => readPolicyName(`${name.slice(0, 1)}_${name.slice(1)}`)).message).toContain(`\`${name}\``);
    expect(errorOf(() => readPolicyName(name.toUpperCase())).message).toContain(`\`${name}\``);
  }
  expect(errorOf(() => readPolicyName('zzzzzzzzzzzz')).message).not.toContain('did you mean');
});

test('nearestName: fewest edits, never a guess out of thin air', () => {
  expect(nearestName('hotnes', ['sorted', 'hotness', 'greedy'])).toBe('hotness');
  expect(nearestName('x', ['hotness'])).toBeUndefined();
  expect(nearestName('x'.repeat(10_000), ['hotness'])).toBeUndefined();
});
