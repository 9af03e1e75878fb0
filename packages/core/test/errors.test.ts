import { expect, test } from 'vitest';
import type { ErrorEntry } from '../src/errors.js';
import { type ErrorCode, WarmpathError } from '../src/index.js';
import { ERROR_TABLE } from '../src/internal.js';

const rows = Object.entries(ERROR_TABLE) as [ErrorCode, ErrorEntry][];

test('every row is sane', () => {
  for (const [code, { status, type, message, remedy }] of rows) {
    expect(code).toMatch(/^WARMPATH_[A-Z_]+$/);
    expect(message, code).toMatch(/^[A-Z`].*\.$/);
    expect(remedy, code).toMatch(/^[A-Z`].*\.$/);
    const isClientError = type === 'invalid_request_error' || type === 'not_found_error';
    if (isClientError) expect(Math.floor(status / 100), code).toBe(4);
    else expect([429, 500, 502, 503, 504, 508], code).toContain(status);
  }
});

test('no two codes say the same', () => {
  expect(new Set(rows.map(([, { message }]) => message)).size).toBe(rows.length);
});

test('an error carries its row, its path and its cause', () => {
  const cause = new Error('why');
  const error = new WarmpathError('WARMPATH_EMPTY_DOCUMENT', { path: 'documents[3].content', cause });
  expect(error).toMatchObject({ status: 400, path: 'documents[3].content', cause });
  expect(error.message).toBe('documents[3].content: A document has no text.');
  expect(error.toOpenAI()).toEqual({
    error: {
      message: 'documents[3].content: A document has no text. Omit documents without text.',
      type: 'invalid_request_error',
      param: 'documents[3].content',
      code: 'WARMPATH_EMPTY_DOCUMENT',
      remedy: 'Omit documents without text.',
    },
  });
});

test('is recognised by its marker, across copies of the package', () => {
  const foreign = Object.assign(new Error('x'), { [Symbol.for('warmpath.error')]: true });
  expect(WarmpathError.isInstance(foreign)).toBe(true);
  expect(WarmpathError.isInstance(new Error('x'))).toBe(false);
  expect(WarmpathError.isInstance(null)).toBe(false);
  expect(WarmpathError.isInstance('WARMPATH_INTERNAL')).toBe(false);
});
