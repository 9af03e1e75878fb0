import { type Document, prepareDocuments, type TemplateName } from '@warmpath/core';
import { renderDocuments } from '@warmpath/core/internal';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { heldBytes } from '../../../test/held-bytes.js';
import { isFull } from '../../../test/suite.js';
import { JsonScanner } from '../src/json/json-scanner.js';
import { DocumentCache } from '../src/memory/document-cache.js';
import { chat, DOCUMENTS, send, stand } from './harness.js';

const ROOMY = 1_048_576;
const CHAT = '/v1/chat/completions';
const LIMITS = { documents: 1_000, documentLength: 1_000_000 };

function cacheOf(maxBytes = ROOMY, template: TemplateName = 'xml'): DocumentCache {
  return new DocumentCache({ maxBytes, template, limits: LIMITS });
}

/** The documents of a request, prepared with the help of that cache. */
function prepared(cache: DocumentCache, input: readonly object[], tenant = 't') {
  const bytes = Buffer.from(JSON.stringify(input));
  const steps = cache.prepare(tenant, new JsonScanner(bytes), { start: 0, end: bytes.length }, {}, {});
  let step = steps.next();
  while (step.done !== true) step = steps.next();
  return step.value;
}

/** What stands in a prompt for documents. */
function written(cache: DocumentCache, documents: readonly Document[]): string {
  const json = Buffer.concat(documents.map((document) => cache.rendered(document))).toString();
  return JSON.parse(`"${json}"`) as string;
}

/** Few ids, titles and texts, so that requests repeat, contradict and duplicate each other. */
const document = fc.record(
  {
    id: fc.constantFrom('a', 'b', 'c d', 'aaaaaaaaaaaa'),
    title: fc.constantFrom('', 'T', 'T\n"<&> 𝒯', '\ud800'),
    content: fc.constantFrom('x', 'y "quoted" \\ \u0001\n', '</document>', 'lone \udc00', 'é漢😀 ', 'x'.repeat(300)),
    metadata: fc.constantFrom({ page: 1 }, { page: 2 }),
    tokens: fc.constantFrom(1, 7),
  },
  { requiredKeys: ['content'] },
);

describe('a cache of documents', () => {
  test('changes nothing about what is prepared and rendered', () => {
    const run = (requests: readonly (readonly object[])[], template: TemplateName, maxBytes: number): void => {
      const cache = cacheOf(maxBytes, template);
      for (const [turn, request] of requests.entries()) {
        const { documents, warnings } = prepared(cache, request, `tenant-${turn % 2}`);
        const plain = prepareDocuments(JSON.parse(JSON.stringify(request)), { template });
        // Metadata is checked, and not kept.
        const bare = plain.documents.map((each) => ({ ...each, metadata: undefined }));
        expect({ documents, warnings }).toEqual({ documents: bare, warnings: plain.warnings });
        expect(written(cache, documents)).toBe(renderDocuments(documents, template));
      }
    };
    const requests = fc.array(fc.array(document, { maxLength: 6 }), { minLength: 1, maxLength: 12 });
    const template = fc.constantFrom<TemplateName>('xml', 'brackets', 'plain');
    fc.assert(fc.property(requests, template, fc.constantFrom(ROOMY, 20_000, 1), run), { numRuns: 300 });
  });

  test('knows a document from its second request on, by the very same object', () => {
    const cache = cacheOf();
    const requests = [1, 2, 3, 4].map(() => prepared(cache, [{ content: 'a passage' }]).documents);
    expect(cache.size).toBe(1);
    expect(requests[1]![0]).not.toBe(requests[0]![0]);
    expect(requests[3]![0]).toBe(requests[2]![0]);
  });

  test('keeps nothing of documents that come once', () => {
    const cache = cacheOf();
    for (let i = 0; i < 5_000; i++) prepared(cache, [{ content: `passage number ${i}` }]);
    expect(cache.size).toBe(0);
  });

  test.runIf(isFull)('keeps no memory of others alive: what it takes is what it says', async () => {
    const cache = cacheOf(8 * ROOMY);
    const before = await heldBytes();
    for (let i = 0; i < 2_000; i++) {
      // Requests of one document and much else, as a body of other small buffers.
      for (let seen = 0; seen < 3; seen++) {
        const { documents } = prepared(cache, [{ content: `passage ${i} `.repeat(20) }]);
        for (const each of documents) cache.rendered(each);
        for (let other = 0; other < 8; other++) Buffer.from('x'.repeat(900));
      }
    }
    expect(cache.size).toBe(2_000);
    expect((await heldBytes()) - before).toBeLessThan(1.5 * cache.bytes);
  });

  test('takes no document for another one that differs where the samples do not look', () => {
    const cache = cacheOf();
    const texts = [500, 501, 502].map((at) => `${'x'.repeat(at)}y${'x'.repeat(1_000 - at)}`);
    for (let round = 0; round < 4; round++) {
      for (const content of texts) {
        const { documents } = prepared(cache, [{ id: 'same', content }]);
        expect(documents).toEqual(prepareDocuments([{ id: 'same', content }]).documents);
        expect(written(cache, documents)).toContain(content);
      }
    }
  });

  test('shares nothing between tenants', () => {
    const cache = cacheOf();
    const input = [{ id: 'a', content: 'a passage' }];
    const [known] = [1, 2, 3].map(() => prepared(cache, input, 'one').documents[0]).slice(-1);
    expect(prepared(cache, input, 'one').documents[0]).toBe(known);
    expect(prepared(cache, input, 'two').documents[0]).not.toBe(known);
  });

  test('stays within its bytes, and the least recently used document goes first', () => {
    const maxBytes = 100_000;
    const cache = cacheOf(maxBytes);
    const passage = (i: number) => [{ id: `p${i}`, content: `${i} `.repeat(300) }];
    const kept: (Document | undefined)[] = [];
    for (let i = 0; i < 200; i++) {
      for (const input of [passage(i), passage(i), passage(0)]) kept[i] = prepared(cache, input).documents[0];
      kept[i] = prepared(cache, passage(i)).documents[0];
      expect(cache.bytes).toBeLessThanOrEqual(maxBytes);
    }
    expect(cache.size).toBeGreaterThan(10);
    const knows = (i: number) => prepared(cache, passage(i)).documents[0] === kept[i];
    for (let i = 0; i < 3; i++) prepared(cache, [{ id: 'giant', content: 'g'.repeat(50_000) }]);
    expect([knows(0), knows(199), knows(1)]).toEqual([true, true, false]);
  });
});

test('a request that is sent again and again reaches the engine in the same bytes', async () => {
  const { engine, gateway } = await stand();
  const documents = [
    ...DOCUMENTS,
    { id: 'odd', title: 'a "title"\n', content: 'tab\t, quote ", \\, 漢😀, $& $1 </document>' },
  ];
  for (let i = 0; i < 4; i++) await send(gateway.url + CHAT, chat(documents, { warmpath: { policy: 'retrieval' } }));
  const bodies = engine.received.map(({ body }) => body.toString());
  expect(new Set(bodies).size).toBe(1);
  expect(bodies[0]).toContain('$& $1');
});
