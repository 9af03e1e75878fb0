import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { chatApi, completionsApi, messagesApi, responsesApi } from '../src/apis/prompt-apis.js';
import { type JsonPath, pathName, type TextChange, textEdits } from '../src/apis/request-texts.js';
import { applyEdits, BodyView } from '../src/json/json-body.js';
import type { JsonObject } from '../src/json/json-scanner.js';

/** The body with other texts at these places. */
function rewriteTexts(body: string, changes: readonly TextChange[]): string {
  const view = new BodyView(Buffer.from(body));
  return applyEdits(view.bytes, textEdits(view, changes)).toString();
}

const APIS = [chatApi, completionsApi, messagesApi, responsesApi];

/** One request for each API, with texts in every place that the API has for one. */
const REQUESTS: Readonly<Record<string, JsonObject>> = {
  chat: {
    messages: [
      { role: 'developer', content: 'system 1' },
      {
        role: 'user',
        content: [
          { type: 'text', text: 'user 1' },
          { type: 'image_url', image_url: { url: 'data:…' } },
        ],
      },
      { role: 'assistant', content: null, tool_calls: [{ id: 'c', function: { name: 'f', arguments: '{}' } }] },
      { role: 'tool', tool_call_id: 'c', content: 'tool 1' },
      { role: 'assistant', content: 'assistant 1' },
    ],
  },
  completions: { prompt: ['user 1', [1, 2], 'user 2'] },
  messages: {
    messages: [
      { role: 'user', content: 'user 1' },
      {
        role: 'assistant',
        content: [
          { type: 'thinking', thinking: 'not a text' },
          { type: 'text', text: 'assistant 1' },
          { type: 'tool_use', id: 't', name: 'f', input: {} },
        ],
      },
      {
        role: 'user',
        content: [
          { type: 'tool_result', tool_use_id: 't', content: 'tool 1' },
          {
            type: 'tool_result',
            tool_use_id: 'u',
            content: [
              { type: 'text', text: 'tool 2' },
              { type: 'document', source: { type: 'text', data: 'tool 3' } },
            ],
          },
          { type: 'document', title: 'T', source: { type: 'text', media_type: 'text/plain', data: 'user 2' } },
          { type: 'search_result', source: 'https://x', title: 'T', content: [{ type: 'text', text: 'user 3' }] },
          { type: 'document', source: { type: 'content', content: [{ type: 'text', text: 'user 4' }] } },
          { type: 'text', text: 'user 5' },
        ],
      },
    ],
    system: [{ type: 'text', text: 'system 1', cache_control: { type: 'ephemeral' } }],
  },
  responses: {
    input: [
      { role: 'user', content: 'user 1' },
      { type: 'function_call', call_id: 'c', name: 'f', arguments: '{}' },
      { type: 'function_call_output', call_id: 'c', output: 'tool 1' },
      { type: 'function_call_output', call_id: 'd', output: [{ type: 'input_text', text: 'tool 2' }] },
      { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'assistant 1', annotations: [] }] },
      { type: 'message', role: 'system', content: [{ type: 'input_text', text: 'system 2' }] },
    ],
    instructions: 'system 1',
  },
};

function texts(name: string, body: JsonObject) {
  return APIS.find((api) => api.name === name)!
    .messages(body)
    .flatMap((message) => message.texts);
}

function at(value: unknown, place: JsonPath): unknown {
  return place.reduce((inner, step) => (inner as Record<string | number, unknown>)[step], value);
}

describe.each(APIS)('the texts of $name', ({ name, messages }) => {
  const body = REQUESTS[name]!;

  it('are all there, in the order in which the model reads them, under the one name of their role', () => {
    const counts = new Map<string, number>();
    const read = texts(name, body);
    for (const { role, text } of read) {
      counts.set(role, (counts.get(role) ?? 0) + 1);
      expect(text).toBe(`${role} ${counts.get(role)}`);
    }
    expect(read.length).toBe(JSON.stringify(body).match(/"(system|user|assistant|tool) \d"/g)!.length);
  });

  it('are where their place says', () => {
    const written = JSON.stringify(body, null, 2);
    for (const { text, place } of texts(name, body)) {
      expect(at(body, place as JsonPath)).toBe(text);
      const moved = JSON.parse(rewriteTexts(written, [{ place, text: 'another' }])) as JsonObject;
      expect(at(moved, place as JsonPath)).toBe('another');
    }
    for (const { place, texts: own } of messages(body)) {
      for (const text of own) expect(text.place.slice(0, place.length)).toEqual(place);
    }
  });

  it('can be rewritten, and nothing but them changes', () => {
    const read = texts(name, body);
    const written = JSON.stringify(body, null, 1);
    const length = { minLength: read.length, maxLength: read.length };
    fc.assert(
      fc.property(fc.array(fc.option(fc.string({ unit: 'binary' }), { nil: undefined }), length), (given) => {
        const changes = read.flatMap(({ place }, i) => (given[i] === undefined ? [] : [{ place, text: given[i] }]));
        const rewritten = rewriteTexts(written, changes.toReversed());
        const again = texts(name, JSON.parse(rewritten) as JsonObject);
        expect(again.map(({ text }) => text)).toEqual(read.map(({ text }, i) => given[i] ?? text));
        const back = read.map(({ place, text }) => ({ place, text }));
        expect(rewriteTexts(rewritten, back)).toBe(written);
      }),
      { seed: 7, numRuns: 100 },
    );
  });

  it('are looked for without a throw, whatever the body is', () => {
    fc.assert(
      fc.property(fc.dictionary(fc.constantFrom(...KEYS), fc.jsonValue()), fc.jsonValue(), (members, value) => {
        for (const { place, text } of texts(name, members as JsonObject))
          expect(at(members, place as JsonPath)).toBe(text);
        expect(texts(name, { [KEYS[0]!]: value, input: value, system: value })).toBeDefined();
      }),
      { seed: 8, numRuns: 300 },
    );
  });
});

const KEYS = ['messages', 'prompt', 'input', 'system', 'instructions'];

describe('edits of texts', () => {
  it('keeps white space, escapes and numbers that do not survive a round trip', () => {
    const body = String.raw` { "a\u0062" : [ { "t" : "old\n" }, 12345678901234567890 ] , "x":1.0,"ab" : ["last","one"]}`;
    const changes = [
      { place: ['ab', 0], text: 'new "1"' },
      { place: ['x'], text: 'not a string' },
      { place: ['ab', 7], text: 'nowhere' },
      { place: ['none', 'of', 3], text: 'nowhere' },
    ];
    expect(rewriteTexts(body, changes)).toBe(body.replace('"last"', String.raw`"new \"1\""`));
    expect(rewriteTexts(body, [])).toBe(body);
  });

  it('moves parts of a text as the client wrote them, whatever signs and escapes they hold', () => {
    const sign = fc.oneof(
      fc.constantFrom('a', ' ', '"', '\\', '\n', '/', 'é', '文', '🚀', '\u2028', '\u0000', '\ud800'),
      fc.string({ unit: 'binary', maxLength: 3 }),
    );
    const parts = fc.array(fc.array(sign, { maxLength: 12 }), { minLength: 2, maxLength: 6 });
    fc.assert(
      fc.property(parts, fc.boolean(), fc.infiniteStream(fc.nat(2)), (signs, isPlain, draws) => {
        const written = signs.map((part) => part.map((each) => (isPlain ? plain(each) : each)));
        const text = written.flat().join('');
        const encoded = written.map((part) => part.map((each) => asJson(each, draws.next().value)).join(''));
        // Every part takes the place of the one before, and the first that of the last.
        const ends = written.map(
          (_, i) =>
            written
              .slice(0, i + 1)
              .flat()
              .join('').length,
        );
        const spans = ends.map((end, i) => ({ start: ends[i - 1] ?? 0, end }));
        const from = spans.map((_, i) => (i + 1) % spans.length);
        const moves = spans.map((span, i) => ({ ...span, from: spans[from[i]!]!.start, to: spans[from[i]!]!.end }));
        const body = (literal: string) => `{"x":"é\\n","messages":[ {"content" : "${literal}" }]}`;
        const change = { place: ['messages', 0, 'content'], moves, length: text.length };
        const expected = body(from.map((rank) => encoded[rank]).join(''));
        expect(rewriteTexts(body(encoded.join('')), [change])).toBe(expected);
      }),
      { seed: 31, numRuns: 500 },
    );
  });

  it('moves nothing in another text than the one that was read', () => {
    const change = { place: ['a'], moves: [{ start: 0, end: 1, from: 1, to: 2 }], length: 2 };
    expect(() => rewriteTexts('{"a":"xyz"}', [change])).toThrow(TypeError);
  });

  it('takes many changes of a long body in one walk', () => {
    const count = 20_000;
    const body = JSON.stringify({ messages: Array.from({ length: count }, () => ({ content: 'x'.repeat(100) })) });
    const changes = Array.from({ length: count }, (_, i) => ({ place: ['messages', i, 'content'], text: String(i) }));
    const { messages } = JSON.parse(rewriteTexts(body, changes)) as { messages: { content: string }[] };
    expect(messages.map(({ content }) => content)).toEqual(Array.from({ length: count }, (_, i) => String(i)));
  });
});

/** Only ASCII is left of it. */
function plain(text: string): string {
  return text.replace(/[^\0-\x7f]/g, 'z');
}

/** One of the ways in which a client may write this inside a JSON string. */
function asJson(text: string, way: number): string {
  const units = text.split('').map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
  if (way === 0 || !text.isWellFormed()) return units.join('');
  return way === 1 ? JSON.stringify(text).slice(1, -1) : JSON.stringify(text).slice(1, -1).replaceAll('/', '\\/');
}

describe('pathName', () => {
  it('is how errors name a path', () => {
    expect(pathName(['messages', 2, 'content', 0, 'text'])).toBe('messages[2].content[0].text');
    expect(pathName(['system'])).toBe('system');
  });
});
