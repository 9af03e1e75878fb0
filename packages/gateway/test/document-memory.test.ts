import { type Document, prepareDocuments, renderDocuments, type TemplateName } from '@warmpath/core';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { DocumentMemory } from '../src/arrange/document-memory.js';
import { chat, DOCUMENTS, send, stand } from './harness.js';

const ROOMY = 1_048_576;
const CHAT = '/v1/chat/completions';

/** The documents of a request, prepared with that memory's help. */
function prepared(memory: DocumentMemory, input: unknown, tenant = 't'): readonly Document[] {
  return prepareDocuments(input, { memo: memory.of(tenant) }).documents;
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

describe('a memory of documents', () => {
  test('changes nothing about what is prepared and rendered', () => {
    const run = (requests: readonly (readonly object[])[], template: TemplateName, maxBytes: number): void => {
      const memory = new DocumentMemory(maxBytes, template);
      for (const [turn, request] of requests.entries()) {
        const tenant = memory.of(`tenant-${turn % 2}`);
        const withMemory = prepareDocuments(request, { template, memo: tenant });
        expect(withMemory).toEqual(prepareDocuments(request, { template }));
        const rendered = renderDocuments(withMemory.documents, template);
        expect(JSON.parse(`"${tenant.renderedJson(withMemory.documents)}"`)).toBe(rendered);
      }
    };
    const requests = fc.array(fc.array(document, { maxLength: 6 }), { minLength: 1, maxLength: 12 });
    const template = fc.constantFrom<TemplateName>('xml', 'brackets', 'plain');
    fc.assert(fc.property(requests, template, fc.constantFrom(ROOMY, 20_000, 1), run), { numRuns: 300 });
  });

  test('knows a passage from its second request on, by the very same object', () => {
    const memory = new DocumentMemory(ROOMY, 'xml');
    const requests = [1, 2, 3, 4].map(() => prepared(memory, [{ content: 'a passage' }]));
    expect(memory.size).toBe(1);
    expect(requests[1]![0]).not.toBe(requests[0]![0]);
    expect(requests[3]![0]).toBe(requests[2]![0]);
  });

  test('keeps nothing of passages that come once', () => {
    const memory = new DocumentMemory(ROOMY, 'xml');
    for (let i = 0; i < 5_000; i++) prepared(memory, [{ content: `passage number ${i}` }]);
    expect(memory.size).toBe(0);
  });

  test('takes no passage for another one that differs where the samples do not look', () => {
    const memory = new DocumentMemory(ROOMY, 'xml');
    const texts = [500, 501, 502].map((at) => `${'x'.repeat(at)}y${'x'.repeat(1_000 - at)}`);
    for (let round = 0; round < 4; round++) {
      for (const content of texts) {
        const [found] = prepared(memory, [{ id: 'same', content }]);
        expect(found).toEqual(prepareDocuments([{ id: 'same', content }]).documents[0]);
        expect(memory.of('t').renderedJson([found!])).toContain(content);
      }
    }
  });

  test('shares nothing between tenants', () => {
    const memory = new DocumentMemory(ROOMY, 'xml');
    const input = [{ id: 'a', content: 'a passage' }];
    for (let i = 0; i < 3; i++) prepared(memory, input, 'one');
    expect(memory.of('one').recall('a', undefined, 'a passage')).toBeDefined();
    expect(memory.of('two').recall('a', undefined, 'a passage')).toBeUndefined();
  });

  test('stays within its bytes, and the least recently used passage goes first', () => {
    const maxBytes = 100_000;
    const memory = new DocumentMemory(maxBytes, 'xml');
    const passage = (i: number) => [{ id: `p${i}`, content: `${i} `.repeat(300) }];
    for (let i = 0; i < 200; i++) {
      for (const input of [passage(i), passage(i), passage(0)]) prepared(memory, input);
      expect(memory.bytes).toBeLessThanOrEqual(maxBytes);
    }
    expect(memory.size).toBeGreaterThan(10);
    const knows = (i: number) => memory.of('t').recall(`p${i}`, undefined, passage(i)[0]!.content) !== undefined;
    expect([knows(0), knows(1), knows(199)]).toEqual([true, false, true]);
    for (let i = 0; i < 3; i++) prepared(memory, [{ id: 'giant', content: 'g'.repeat(50_000) }]);
    expect(knows(199)).toBe(true);
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
