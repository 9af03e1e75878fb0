import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type DocumentInput, prepareDocuments, prepareRequest } from '../src/index.js';
import './seed.js';

/** Each form in which libraries write a document: its text and id in this form. */
const FORMS: Readonly<Record<string, (text: string, id: string) => DocumentInput>> = {
  Warmpath: (content, id) => ({ id, content }),
  'a plain text': (text) => text,
  'the OpenAI cookbook': (text, id) => ({ id, text }),
  'LangChain for JavaScript': (pageContent, id) => ({ id, pageContent, metadata: { source: 'a.md', title: 'A' } }),
  'LangChain for Python': (page_content, id) => ({ id, page_content, metadata: {}, type: 'Document' }),
  BEIR: (text, _id) => ({ _id, title: '', text }),
  'Cohere, an object': (text, id) => ({ id, data: { text } }),
  'Cohere, a snippet': (snippet, id) => ({ id, data: { snippet } }),
  'Cohere, a text': (data, id) => ({ id, data }),
  'LlamaIndex, a node': (text, id_) => ({ id_, text, metadata: {}, relationships: {} }),
  'LlamaIndex, a node with its score': (text, id_) => ({ node: { id_, text, metadata: {} }, score: 0.9 }),
  'a reranker, an object': (text, id) => ({ index: 3, relevance_score: 0.9, document: { id, text } }),
  'a reranker, a text': (document, id) => ({ id, index: 3, relevance_score: 0.9, document }),
};
/** Forms that hold no id. */
const WITHOUT_ID = new Set(['a plain text']);

describe.each(Object.entries(FORMS))('the form of %s', (name, form) => {
  test('is the same document as in every other form', () => {
    const [document] = prepareDocuments([form('The text.', 'a-1')]).documents;
    const id = WITHOUT_ID.has(name) ? {} : { id: 'a-1' };
    const [plain] = prepareDocuments([{ ...id, content: 'The text.' }]).documents;
    const { metadata: _, ...fields } = document!;
    const { metadata: __, ...plainFields } = plain!;
    expect(fields).toEqual(plainFields);
  });

  test.each(['', ' \n\t\u00a0'])('with the text %j is left out, with a warning', (text) => {
    const prepared = prepareDocuments([form(text, 'a-1'), 'The other text.']);
    expect(prepared.documents.map(({ content }) => content)).toEqual(['The other text.']);
    expect(prepared.sources).toEqual([1]);
    expect(prepared.warnings).toMatchObject([{ code: 'WARMPATH_EMPTY_DOCUMENT' }]);
    expect(prepared.warnings[0]!.path).toMatch(/^documents\[0\]/);
  });
});

describe('what stands in a document', () => {
  test('a numeric id is its digits', () => {
    const ids = [7, 0, -3, 1.5, 12345678901234567890n].map((id) => ({ id, content: `Text of ${id}.` }));
    const expected = ['7', '0', '-3', '1.5', '12345678901234567890'];
    expect(prepareDocuments(ids).documents.map(({ id }) => id)).toEqual(expected);
  });

  test.each([Number.NaN, Number.POSITIVE_INFINITY, true, {}, []])('the id %j is refused', (id) => {
    expect(() => prepareDocuments([{ id, content: 'x' }])).toThrow(/documents\[0\]\.id/);
  });

  test.each<[object, string]>([
    [{ page_content: 7 }, 'documents[0].page_content'],
    [{ data: { text: 7 } }, 'documents[0].data.text'],
    [{ node: { text: ['x'] } }, 'documents[0].node.text'],
    [{ document: { id: {}, text: 'x' } }, 'documents[0].document.id'],
    [{ _id: true, text: 'x' }, 'documents[0]._id'],
    [{ data: { text: 'x', title: 7 } }, 'documents[0].data.title'],
    [{ data: {} }, 'documents[0].content'],
    [{ node: { node: { text: 'x' } } }, 'documents[0].content'],
    [{ score: 1, metadata: { text: 'x' } }, 'documents[0].content'],
  ])('%j is refused with its path', (document, path) => {
    expect(() => prepareDocuments([document])).toThrow(expect.objectContaining({ path }));
  });

  test('the outer fields hold before those of a nested document', () => {
    const document = { id: 'outer', title: 'T', data: { id: 'inner', title: 'U', text: 'x' } };
    expect(prepareDocuments([document]).documents).toMatchObject([{ id: 'outer', title: 'T', content: 'x' }]);
    expect(prepareDocuments([{ content: 'x', data: { text: 'y' } }]).documents).toMatchObject([{ content: 'x' }]);
  });

  test('no text is lost where another name holds none', () => {
    for (const document of [
      { content: '', text: 'x' },
      { content: null, page_content: 'x' },
      { text: ' ', data: { text: 'x' } },
      { data: {}, node: { text: 'x' } },
    ]) {
      expect(prepareDocuments([document]).documents, JSON.stringify(document)).toMatchObject([{ content: 'x' }]);
    }
  });

  test('a field for the text that holds nothing makes an empty document', () => {
    for (const document of [{ content: null }, { pageContent: undefined }, { node: { text: null } }]) {
      expect(prepareDocuments([document]).warnings).toMatchObject([{ code: 'WARMPATH_EMPTY_DOCUMENT' }]);
    }
  });

  test('metadata is never written, whatever it holds', () => {
    const document = { pageContent: 'x', metadata: { title: 'secret', text: 'secret' } };
    expect(prepareDocuments([document]).documents).toMatchObject([{ title: undefined, content: 'x' }]);
  });
});

test('a pin of an empty document is left out, as the document is; numbers pin too', () => {
  const documents = [
    { id: 'a', content: '' },
    { id: 7, text: 'x' },
    { id_: 'b', text: 'y' },
  ];
  expect(prepareRequest({ documents, pin: ['a', 7, 'b'] }).pin).toEqual(['7', 'b']);
  expect(() => prepareRequest({ documents, pin: ['c'] })).toThrow(expect.objectContaining({ path: 'pin[0]' }));
});

test('any mixture of forms: each text is there once, at its source, or warned of', () => {
  const one = fc.record({
    form: fc.constantFrom(...Object.keys(FORMS)),
    text: fc.constantFrom('', ' ', 'alpha', 'beta', 'gamma', 'delta'),
    id: fc.constantFrom('a', 'b', 'c'),
  });
  fc.assert(
    fc.property(fc.array(one, { maxLength: 12 }), (given) => {
      const { documents, sources, warnings } = prepareDocuments(
        given.map(({ form, text, id }) => FORMS[form]!(text, id)),
      );
      expect(documents.map(({ content }) => content)).toEqual(sources.map((source) => given[source]!.text));
      expect(sources).toEqual(sources.toSorted((a, b) => a - b));
      const kept = new Set(documents.map(({ content }) => content));
      for (const { text } of given) expect(text.trim() === '' || kept.has(text)).toBe(true);
      const left = warnings.filter(({ code }) => code !== 'WARMPATH_CONFLICTING_DOCUMENT').length;
      expect(documents.length + left).toBe(given.length);
    }),
  );
});
