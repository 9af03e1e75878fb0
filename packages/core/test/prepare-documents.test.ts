import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type ErrorCode, prepareDocuments, renderDocument, WarmpathError } from '../src/index.js';
import { anyText } from './arbitraries.js';

function errorOf(call: () => unknown): WarmpathError {
  try {
    call();
  } catch (error) {
    if (WarmpathError.isInstance(error)) return error;
  }
  throw new Error('No WarmpathError was thrown.');
}

const good = { id: 'a', content: 'Alpha.' };

describe('what bad input gets', () => {
  const cases: readonly [unknown, ErrorCode, string][] = [
    [undefined, 'WARMPATH_INVALID_DOCUMENTS', 'documents'],
    [{ 0: good }, 'WARMPATH_INVALID_DOCUMENTS', 'documents'],
    [[good, 7], 'WARMPATH_INVALID_DOCUMENT', 'documents[1]'],
    [[null], 'WARMPATH_INVALID_DOCUMENT', 'documents[0]'],
    [[[good]], 'WARMPATH_INVALID_DOCUMENT', 'documents[0]'],
    [[{ id: 'a' }], 'WARMPATH_INVALID_DOCUMENT', 'documents[0].content'],
    [[{ content: 7 }], 'WARMPATH_INVALID_DOCUMENT', 'documents[0].content'],
    [[{ text: ['x'] }], 'WARMPATH_INVALID_DOCUMENT', 'documents[0].text'],
    [[{ ...good, id: true }], 'WARMPATH_INVALID_DOCUMENT', 'documents[0].id'],
    [[{ ...good, id: '' }], 'WARMPATH_INVALID_DOCUMENT', 'documents[0].id'],
    [[{ ...good, id: 'x'.repeat(513) }], 'WARMPATH_INVALID_DOCUMENT', 'documents[0].id'],
    [[{ ...good, title: {} }], 'WARMPATH_INVALID_DOCUMENT', 'documents[0].title'],
    [[{ ...good, metadata: 'm' }], 'WARMPATH_INVALID_DOCUMENT', 'documents[0].metadata'],
    [[{ ...good, tokens: 0 }], 'WARMPATH_INVALID_DOCUMENT', 'documents[0].tokens'],
    [[{ ...good, tokens: 2 ** 31 }], 'WARMPATH_INVALID_DOCUMENT', 'documents[0].tokens'],
    [[{ ...good, tokens: 1.5 }], 'WARMPATH_INVALID_DOCUMENT', 'documents[0].tokens'],
  ];
  test.each(cases)('%j → %s at %s', (input, code, path) => {
    expect(errorOf(() => prepareDocuments(input))).toMatchObject({ code, path });
  });

  test('the limits', () => {
    const limits = { maxDocuments: 2, maxContentLength: 10 };
    const long = [good, { content: '12345', title: '678901' }];
    expect(errorOf(() => prepareDocuments(long, { limits }))).toMatchObject({
      code: 'WARMPATH_DOCUMENT_TOO_LARGE',
      path: 'documents[1].content',
      status: 413,
    });
    const many = ['a', 'b', 'c'].map((content) => ({ content }));
    expect(errorOf(() => prepareDocuments(many, { limits, path: 'rag.docs' }))).toMatchObject({
      code: 'WARMPATH_TOO_MANY_DOCUMENTS',
      path: 'rag.docs',
    });
    expect(prepareDocuments(many.slice(1), { limits }).documents).toHaveLength(2);
  });

  test('no error message repeats the content', () => {
    const error = errorOf(() => prepareDocuments([{ id: true, content: 'a secret' }]));
    expect(JSON.stringify(error.toOpenAI())).not.toContain('secret');
  });
});

describe('what is mended, with a warning', () => {
  test('the same document twice is kept once', () => {
    const { documents, warnings } = prepareDocuments([
      good,
      { content: 'B' },
      { ...good, metadata: { page: 3 } },
      { content: 'B' },
    ]);
    expect(documents.map((document) => document.content)).toEqual(['Alpha.', 'B']);
    expect(warnings.map(({ code, path }) => [code, path])).toEqual([
      ['WARMPATH_DUPLICATE_DOCUMENT', 'documents[2]'],
      ['WARMPATH_DUPLICATE_DOCUMENT', 'documents[3]'],
    ]);
  });

  test('another text under the same id becomes a document of its own, the same one in every request', () => {
    const other = { id: 'a', content: 'Another alpha.' };
    const { documents, warnings } = prepareDocuments([good, other, { id: 'a', title: 'A', content: 'Alpha.' }, other]);
    expect(documents.map((document) => document.content)).toEqual(['Alpha.', 'Another alpha.', 'Alpha.']);
    expect(new Set(documents.map((document) => document.id)).size).toBe(3);
    expect(new Set(documents.map((document) => document.label)).size).toBe(3);
    expect(documents[1]!.id).toMatch(/^a~[0-9a-f]{8}$/);
    expect(warnings.map(({ code, path }) => [code, path])).toEqual([
      ['WARMPATH_CONFLICTING_DOCUMENT', 'documents[1].id'],
      ['WARMPATH_CONFLICTING_DOCUMENT', 'documents[2].id'],
      ['WARMPATH_DUPLICATE_DOCUMENT', 'documents[3]'],
    ]);
    expect(prepareDocuments([good, other]).documents[1]).toEqual(documents[1]);
  });
});

describe('ids, labels and keys', () => {
  test('a short and safe id is its own label; any other gets a short hash', () => {
    const ids = ['doc-1', 'A.b_c:9', 'x'.repeat(32), 'x'.repeat(33), 'has space', 'quote"', 'ü', '\ud800'];
    const labels = prepareDocuments(ids.map((id) => ({ id, content: id }))).documents.map((document) => document.label);
    expect(labels.slice(0, 3)).toEqual(ids.slice(0, 3));
    for (const label of labels.slice(3)) expect(label).toMatch(/^d[0-9a-f]{8}$/);
  });

  test('a label never depends on the place', () => {
    fc.assert(
      fc.property(fc.uniqueArray(fc.string({ minLength: 1 }), { minLength: 2, maxLength: 8 }), (ids) => {
        const input = ids.map((id) => ({ id, content: `Text of ${id}` }));
        const labels = new Map(prepareDocuments(input).documents.map(({ id, label }) => [id, label]));
        for (const { id, label } of prepareDocuments(input.toReversed()).documents) expect(label).toBe(labels.get(id));
      }),
    );
  });

  test('a label that is taken gives way, and the key says so', () => {
    const hashed = prepareDocuments([{ id: 'has space', content: 'x' }]).documents[0]!.label;
    const alone = prepareDocuments([{ id: hashed, content: 'y' }]).documents[0]!;
    const second = prepareDocuments([
      { id: 'has space', content: 'x' },
      { id: hashed, content: 'y' },
    ]).documents[1]!;
    expect(alone.label).toBe(hashed);
    expect(second.label).not.toBe(hashed);
    expect(second.key).not.toBe(alone.key);
  });

  test('without an id, the id is a hash of title and content', () => {
    const [a, b, c] = prepareDocuments([{ content: 'x' }, { title: 'T', content: 'x' }, { text: 'y' }]).documents;
    expect(new Set([a!.id, b!.id, c!.id]).size).toBe(3);
    expect(a!.id).toMatch(/^[0-9a-f]{12}$/);
    expect(a!.label).toBe(a!.id);
    expect(prepareDocuments([{ id: a!.id, content: 'x' }]).documents[0]).toEqual(a);
  });

  test('the key changes with id, title and content, and with nothing else', () => {
    const key = (document: object) => prepareDocuments([document]).documents[0]!.key;
    const base = { id: 'a', title: 'T', content: 'x' };
    expect(key({ ...base, metadata: { source: 'y' }, tokens: 9 })).toBe(key(base));
    const others = [
      { ...base, id: 'b' },
      { ...base, title: 'U' },
      { ...base, content: 'y' },
      { id: 'a', content: 'x' },
    ];
    expect(new Set([base, ...others].map(key)).size).toBe(5);
  });

  test('null counts as absent, `text` as `content`', () => {
    const plain = prepareDocuments([{ content: 'x' }]).documents;
    expect(
      prepareDocuments([{ id: null, title: null, content: null, text: 'x', metadata: null, tokens: null }]).documents,
    ).toEqual(plain);
  });
});

describe('tokens', () => {
  test('counts what is rendered, tags and title included', () => {
    const counted: string[] = [];
    const countTokens = (text: string) => counted.push(text) * 100;
    const { documents } = prepareDocuments([{ ...good, title: 'T' }], { countTokens, template: 'brackets' });
    expect(counted).toEqual([renderDocument({ label: 'a', title: 'T', content: 'Alpha.' }, 'brackets')]);
    expect(documents[0]!.tokens).toBe(100);
  });

  test("the caller's own count stands, without counting", () => {
    const countTokens = () => expect.unreachable();
    expect(prepareDocuments([{ ...good, tokens: 7 }], { countTokens }).documents[0]!.tokens).toBe(7);
  });

  test('a counter that gives no count is not believed', () => {
    for (const count of [Number.NaN, 0, -3, Number.POSITIVE_INFINITY]) {
      const tokens = prepareDocuments([good], { countTokens: () => count }).documents[0]!.tokens;
      expect(tokens).toBe(prepareDocuments([good]).documents[0]!.tokens);
    }
  });
});

test('any JSON either becomes documents or a WarmpathError with a path; nothing is lost, labels are unique', () => {
  const anyDocument = fc.oneof(
    fc.record(
      {
        id: anyText({ maxLength: 3 }),
        title: anyText({ maxLength: 3 }),
        content: anyText({ maxLength: 5 }),
      },
      { requiredKeys: ['content'] },
    ),
    fc.jsonValue({ maxDepth: 2 }),
  );
  fc.assert(
    fc.property(fc.array(anyDocument, { maxLength: 12 }), (input) => {
      try {
        const { documents, warnings } = prepareDocuments(input);
        const dropped = warnings.filter(({ code }) => code !== 'WARMPATH_CONFLICTING_DOCUMENT').length;
        expect(documents.length + dropped).toBe(input.length);
        for (const field of ['id', 'label', 'key'] as const) {
          expect(new Set(documents.map((document) => document[field])).size).toBe(documents.length);
        }
      } catch (error) {
        if (!WarmpathError.isInstance(error)) throw error;
        expect(error.path).toMatch(/^documents\[\d+\]/);
      }
    }),
    { numRuns: 500 },
  );
});
