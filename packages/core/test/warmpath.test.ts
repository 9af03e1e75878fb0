import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type ArrangedPrompt, type ChatMessage, type DocumentInput, Warmpath } from '../src/index.js';
import './seed.js';

const passage = (id: string) => ({ id, content: `${id} was found in a year of many rains. `.repeat(8) });
const passages = (ids: string) => [...ids].map(passage);
const SYSTEM = { role: 'system', content: 'Answer from the documents.' };
const MESSAGES = [SYSTEM, { role: 'user', content: 'What was found?' }];
const labelsOf = ({ content }: ChatMessage) =>
  [...String(content).matchAll(/<document id="([^"]*)"/g)].map(([, id]) => id);
const idsOf = ({ labels }: ArrangedPrompt<unknown, object>) => labels.join('');
const ask = (order: Warmpath, ids: string, fields: object = {}) =>
  order.arrange({ documents: passages(ids), messages: MESSAGES, ...fields });

describe('one call', () => {
  test('puts the documents before the question, in an order that was served', () => {
    const order = new Warmpath();
    ask(order, 'ab');
    const documents = passages('bca');
    const { messages, hint, labels, ...prompt } = order.arrange({ documents, messages: MESSAGES });
    expect(prompt.documents.map((document) => documents.indexOf(document))).toEqual([2, 0, 1]);
    expect([labels, prompt.sources]).toEqual([
      ['a', 'b', 'c'],
      [2, 0, 1],
    ]);
    expect(messages[0]).toBe(SYSTEM);
    expect(labelsOf(messages[1]!)).toEqual(labels);
    expect(hint).toBe('In order of relevance: [c] > [a].\n');
    expect(messages[1]!.content).toBe(`${prompt.text}What was found?`);
    expect(prompt.text.endsWith(hint)).toBe(true);
    expect(prompt.arrangement.predictedCachedTokens).toBeGreaterThan(100);
  });

  test('gives documents and hint to callers that write their own prompt', () => {
    const order = new Warmpath();
    const request = { preamble: 'Be brief.' };
    order.arrange({ documents: ['Ada made the clock.', 'The tower is 40 m high.'], ...request });
    const { documents, messages, hint, text } = order.arrange({
      documents: ['The tower is 40 m high.', 'Ada made the clock.'],
      ...request,
    });
    expect(documents).toEqual(['Ada made the clock.', 'The tower is 40 m high.']);
    expect(messages).toEqual([]);
    expect(text.endsWith(hint)).toBe(true);
    // Behind another text, in another scope, nothing can be reused.
    for (const other of [{ preamble: 'Be long.' }, { ...request, scope: 'another model' }, {}]) {
      const { labels } = order.arrange({ documents: passages('ba'), ...other });
      expect(labels).toEqual(['b', 'a']);
    }
  });

  test('leaves the messages alone without documents', () => {
    const { messages, hint, text } = new Warmpath().arrange({ documents: ['', { text: ' ' }], messages: MESSAGES });
    expect(messages).toBe(MESSAGES);
    expect([hint, text]).toEqual(['', '']);
  });

  test.each<[string, object, string, string]>([
    ['documents that are none', { documents: 'a' }, 'WARMPATH_INVALID_DOCUMENTS', 'documents'],
    ['a document that is none', { documents: [7] }, 'WARMPATH_INVALID_DOCUMENT', 'documents[0]'],
    ['messages that are none', { documents: [], messages: 'Q' }, 'WARMPATH_INVALID_REQUEST', 'messages'],
    ['a chat that asks nothing', { documents: ['a'], messages: [SYSTEM] }, 'WARMPATH_INVALID_REQUEST', 'messages'],
    ['a conversation without messages', { documents: [], conversation: 'c' }, 'WARMPATH_INVALID_REQUEST', 'messages'],
    ['an unknown policy', { documents: [], policy: 'best' }, 'WARMPATH_UNKNOWN_POLICY', 'policy'],
  ])('refuses %s', (_, request, code, path) => {
    expect(() => new Warmpath().arrange(request as never)).toThrow(expect.objectContaining({ code, path }));
  });

  test('takes template, layout, switches and token counter; those of a request go first', () => {
    const order = new Warmpath({
      template: 'brackets',
      layout: 'message',
      policy: 'retrieval',
      countTokens: ({ length }) => length,
    });
    const { messages, arrangement } = ask(order, 'ab');
    expect(messages).toHaveLength(3);
    expect(messages[1]!.content).toMatch(/^\[a\]\n/);
    expect(arrangement.documents[0]!.tokens).toBe(String(messages[1]!.content).length / 2);
    expect(idsOf(ask(order, 'ba'))).toBe('ba');
    expect(idsOf(ask(order, 'ba', { policy: 'sorted' }))).toBe('ab');
    expect(idsOf(ask(order, 'ba', { policy: 'sorted', pin: ['b'] }))).toBe('ba');
  });
});

describe('what the engine reports', () => {
  test('is learned from: what it had not cached is not expected again', () => {
    const order = new Warmpath();
    ask(order, 'ab');
    order.report({ prompt_tokens: 500, prompt_tokens_details: { cached_tokens: 0 } });
    const again = ask(order, 'ab');
    expect(again.arrangement.predictedCachedTokens).toBeGreaterThan(100);
    ask(order, 'xy');
    order.report({ prompt_tokens: 500, prompt_tokens_details: { cached_tokens: 0 } });
    order.report({ prompt_tokens: 500, prompt_tokens_details: { cached_tokens: 0 } }, again);
    expect(idsOf(ask(order, 'ba'))).toBe('ab');
    expect(order.history.requests).toBe(4);
  });

  test('belongs to the prompt that is named, else to the latest; only the first report counts', () => {
    const order = new Warmpath();
    const first = ask(order, 'ab');
    ask(order, 'xy');
    order.failed(first);
    expect(idsOf(ask(order, 'ba'))).toBe('ba');
    order.failed();
    expect(idsOf(ask(order, 'ab'))).toBe('ab');
    order.report();
    order.failed();
    expect(idsOf(ask(order, 'ba'))).toBe('ab');
    expect(() => new Warmpath().report({ prompt_tokens: 3 })).not.toThrow();
  });
});

describe('a conversation', () => {
  const next = (content: string) => [...MESSAGES, { role: 'assistant', content: 'Much.' }, { role: 'user', content }];

  test('repeats what was sent, and sends no document twice', () => {
    const order = new Warmpath();
    const first = ask(order, 'ab', { conversation: 'c' });
    const documents = passages('bc');
    const second = order.arrange({ documents, messages: next('And then?'), conversation: 'c' });
    expect(second.messages.slice(0, 2)).toEqual(first.messages);
    expect([second.documents, second.references]).toEqual([[documents[1]], [documents[0]]]);
    expect(second.documents[0]).toBe(documents[1]);
    expect(second.references[0]).toBe(documents[0]);
    expect(second.messages.at(-1)!.content).toMatch(/^<document id="c">[\s\S]*earlier[\s\S]*\[b\][\s\S]*And then\?$/);
    expect([first.isForgotten, second.isForgotten]).toEqual([false, false]);
    // Another conversation has seen nothing, and says so. Documents of a history that was cut off come back.
    for (const name of [{ conversation: 'd' }, { conversation: 'c', user: 'another' }]) {
      const other = order.arrange({ documents, messages: next('And then?'), ...name });
      expect([other.references, other.isForgotten]).toEqual([[], true]);
    }
    const cut = order.arrange({ documents, messages: next('And then?').slice(3), conversation: 'c' });
    expect([cut.references, cut.isForgotten]).toEqual([[], false]);
  });

  test('sends a request that comes again as it was sent, and names its documents in that order', () => {
    const order = new Warmpath();
    const first = ask(order, 'ba', { conversation: 'c' });
    ask(order, 'ab');
    const again = ask(order, 'ba', { conversation: 'c' });
    expect(again.messages).toEqual(first.messages);
    expect(labelsOf(again.messages[1]!)).toEqual(again.labels);
  });

  test('goes on from the answer that the client kept, where the same messages went out with other documents', () => {
    const order = new Warmpath();
    const said = (content: string) => ({ role: 'assistant', content });
    for (const id of ['a', 'b']) order.answered(said(`Of ${id}.`), ask(order, id, { conversation: 'c' }));
    const goOn = (answer: string) =>
      order.arrange({
        messages: [...MESSAGES, said(answer), { role: 'user', content: 'And then?' }],
        documents: [],
        conversation: 'c',
      }).messages[1]!.content;
    expect(goOn('Of a.')).toContain('a was found');
    expect(goOn('Of b.')).toContain('b was found');
  });
});

describe('what is remembered', () => {
  test('stays within its bytes, whatever is asked', () => {
    const maxBytes = 16 * 1024 * 1024;
    const order = new Warmpath({ maxBytes });
    for (let turn = 0; turn < 4_000; turn++) {
      const documents = [1, 2, 3, 4, 5].map((place) => `Passage ${turn} ${place}. ${'x'.repeat(turn % 500)}`);
      order.arrange({ documents, messages: MESSAGES, conversation: `c ${turn}` });
      expect(order.bytes).toBeLessThanOrEqual(maxBytes);
    }
    expect(order.bytes).toBeGreaterThan(maxBytes / 2);
  });

  test('grows old by the clock that is given; without one, it does not', () => {
    let now = 0;
    const options = { maxAgeMs: 1_000, now: () => now };
    for (const [order, expected] of [
      [new Warmpath(options), 'ba'],
      [new Warmpath({ maxAgeMs: 1_000 }), 'ab'],
    ] as const) {
      now = 0;
      ask(order, 'ab');
      now = 5_000;
      ask(order, 'xy');
      expect(idsOf(ask(order, 'ba'))).toBe(expected);
    }
  });
});

/** A text in one of the forms that libraries have. */
const anyDocument: fc.Arbitrary<{ readonly text: string; readonly document: DocumentInput }> = fc
  .record({
    text: fc.constantFrom('', ' ', ...[...'abcdefgh'].map((letter) => `Text of ${letter}. `.repeat(6).trim())),
    form: fc.constantFrom('string', 'content', 'pageContent', 'page_content', 'data', 'node'),
    id: fc.option(fc.constantFrom('1', 2, 'three'), { nil: undefined }),
  })
  .map(({ text, form, id }) => {
    if (form === 'string') return { text, document: text };
    const held = form === 'data' || form === 'node' ? { text } : text;
    return { text, document: { ...(id !== undefined && { id }), [form]: held } };
  });
const anyRequests = fc.array(fc.array(anyDocument, { maxLength: 8 }), { minLength: 1, maxLength: 8 });

test('any mixture of documents: the same objects come back, each text once, in the order of the prompt', () => {
  fc.assert(
    fc.property(anyRequests, (requests) => {
      const order = new Warmpath();
      for (const given of requests) {
        const documents = given.map(({ document }) => document);
        const prompt = order.arrange({ documents, messages: MESSAGES });
        expect(prompt.documents).toHaveLength(new Set(prompt.sources).size);
        for (const [place, source] of prompt.sources.entries()) expect(prompt.documents[place]).toBe(documents[source]);
        const kept = new Set(prompt.sources.map((source) => given[source]!.text));
        for (const { text } of given) expect(text.trim() === '' || kept.has(text)).toBe(true);
        expect(labelsOf(prompt.messages[1]!)).toEqual(prompt.labels);
        const texts = prompt.sources.map((source) => given[source]!.text);
        const inPrompt = [...String(prompt.messages[1]!.content).matchAll(/">\n([^\n]*)\n<\/document>/g)];
        expect(inPrompt.map(([, text]) => text)).toEqual(texts);
      }
    }),
  );
});

test('the same requests give the same prompts in every process', () => {
  fc.assert(
    fc.property(anyRequests, (requests) => {
      const [one, other] = [new Warmpath(), new Warmpath()].map((order) =>
        requests.map((given, turn) => {
          const documents = given.map(({ document }) => document);
          const { messages } = order.arrange({ documents, messages: MESSAGES });
          if (turn % 2 === 0) order.report({ prompt_tokens: 900, prompt_tokens_details: { cached_tokens: 100 } });
          return messages;
        }),
      );
      expect(one).toEqual(other);
    }),
  );
});

test('a conversation loses no document: each is in the prompt, once', () => {
  fc.assert(
    fc.property(fc.array(fc.shuffledSubarray([...'abcdef']), { minLength: 1, maxLength: 5 }), (turns) => {
      const order = new Warmpath();
      const messages: ChatMessage[] = [];
      let sent: readonly ChatMessage[] = [];
      for (const ids of turns) {
        messages.push({ role: 'user', content: `Question ${messages.length}` });
        const prompt = order.arrange({ documents: ids.map(passage), messages: [...messages], conversation: 'c' });
        expect(prompt.messages.slice(0, sent.length)).toEqual(sent);
        sent = prompt.messages;
        const shown = sent.flatMap(labelsOf);
        expect(new Set(shown).size).toBe(shown.length);
        expect([...prompt.documents, ...prompt.references].map(({ id }) => id).sort()).toEqual(ids.toSorted());
        for (const id of ids) expect(shown).toContain(id);
        messages.push({ role: 'assistant', content: `Answer ${messages.length}` });
      }
    }),
  );
});
