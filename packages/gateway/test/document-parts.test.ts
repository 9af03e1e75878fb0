import { arrange, ServedHistory } from '@warmpath/core';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { allowPrompts } from '../../../test/real-gateway.js';
import { isFull, runs } from '../../../test/suite.js';
import { messagesApi, responsesApi } from '../src/apis/prompt-apis.js';
import type { PromptApi } from '../src/apis/prompt-view.js';
import { ConversationMemory, MemoryConversationStore } from '../src/conversation/conversation-memory.js';
import { arrangeInPlace, permuted } from '../src/prompt/arrange-in-place.js';
import { formedBlocks, markedBlocks, recogniseRequest } from '../src/prompt/find-documents.js';
import { answerAsAsked } from './fake-engine.js';
import { send, stand, told } from './harness.js';

const SEED = 20_261_121;
const ICE = 'Between two surveys the Aster glacier lost eleven metres of thickness along its western margin.';
const LAMP =
  'Lanterns from the Tiber workshop burn colza oil; a full reservoir lasts nine hours, at half height of the wick.';
const PORT = 'The harbour of Velmora was dredged in 1931 so that grain ships could moor at the inner quay.';

/** A request as it goes out when documents are sorted by their names, and what was decided about each block. */
function sorted(body: string, { api = messagesApi, isMarked = false }: { api?: PromptApi; isMarked?: boolean } = {}) {
  const recognised = recogniseRequest(Buffer.from(body), api, {
    find: (texts) => (isMarked ? markedBlocks(texts) : formedBlocks(texts, { refersToParts: false })),
  });
  if (recognised === undefined) return { body, decided: [], references: 0 };
  const history = new ServedHistory();
  const placed = arrangeInPlace(recognised, {
    tenant: 't',
    memory: new ConversationMemory(new MemoryConversationStore({}), 1_000_000),
    arrange: (block) => arrange({ ...block, policy: 'sorted', hints: false }, history, 0),
    deduplicate: true,
    blocks: false,
  });
  const references = placed.blocks.reduce((sum, block) => sum + block.references.length, 0);
  return {
    body: permuted(recognised, placed.changes).toString(),
    decided: placed.blocks.map(({ decided }) => decided),
    references,
  };
}

const result = (source: string, text: string, more = '') =>
  `{"type":"search_result", "source":"${source}","title":"T ${source}","content":[{"type":"text","text":${JSON.stringify(text)}}]${more}}`;
const document = (title: string, text: string, more = '') =>
  `{"type":"document","source":{"type":"text","media_type":"text/plain","data":${JSON.stringify(text)}},"title":"${title}","context":"of ${title}"${more}}`;
const asked = '{"type":"text","text":"What burns?"}';
const user = (...parts: string[]) =>
  `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[ ${parts.join(' ,\n')} ]}],"n":1.0}`;
const returned = (...parts: string[]) =>
  `{"model":"m","max_tokens":9,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"s","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[${parts.join(' , ')}]}]}]}`;
const CITED = ',"citations":{"enabled":true}';

describe('parts that Anthropic calls documents', () => {
  it.each([
    ['in a message of the user', user],
    ['in the result of a tool', returned],
  ])('search results %s: whole, with every byte of theirs, and what stands between them stays', (_, around) => {
    const own = ',"x":1.0,"big":12345678901234567890,"citations":{"enabled":false}';
    const given = around(result('c.md', PORT, own), result('a.md', ICE), result('b.md', LAMP), asked);
    const moved = around(result('a.md', ICE), result('b.md', LAMP), result('c.md', PORT, own), asked);
    expect(sorted(given)).toMatchObject({ body: moved, decided: ['arranged'] });
    expect(sorted(moved).body).toBe(moved);
  });

  it('documents with text or with content, and their titles and contexts', () => {
    const parts = `{"type":"document","title":"a","source":{"type":"content","content":[{"type":"text","text":"${ICE}"},{"type":"text","text":"More."}]}}`;
    const moved = sorted(user(document('b', LAMP), parts, asked)).body;
    expect([user(parts, document('b', LAMP), asked), user(document('b', LAMP), parts, asked)]).toContain(moved);
    const three = sorted(user(document('c', PORT), document('a', ICE), document('b', LAMP), asked));
    expect(three.decided).toEqual(['arranged']);
  });

  it('stay byte for byte where answers cite them: by number, and by places in their texts', () => {
    const inside = `<documents><document id="b">${LAMP}</document><document id="a">${ICE}</document></documents>`;
    for (const body of [
      user(result('c.md', PORT, CITED), result('a.md', ICE, CITED), asked),
      user(document('c', PORT, CITED), document('a', ICE, CITED), asked),
      user(document('c', inside, CITED), asked),
      returned(result('c.md', PORT, CITED), result('a.md', ICE, CITED)),
    ]) {
      expect(sorted(body)).toEqual({ body, decided: [], references: 0 });
    }
    expect(sorted(user(document('c', inside), asked)).decided).toEqual(['arranged']);
  });

  it('a part that marks a breakpoint of the cache keeps its place, and parts the others', () => {
    const mark = ',"cache_control":{"type":"ephemeral"}';
    const given = user(result('c.md', PORT), result('a.md', ICE), result('b.md', LAMP, mark), asked);
    expect(sorted(given).body).toBe(user(result('a.md', ICE), result('c.md', PORT), result('b.md', LAMP, mark), asked));
  });

  it('files that are no text keep theirs, too', () => {
    const pdf = '{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBE"}}';
    const body = user(document('c', PORT), pdf, document('a', ICE), asked);
    expect(sorted(body)).toEqual({ body, decided: [], references: 0 });
  });

  it('of two kinds side by side are two lists', () => {
    const body = user(result('c.md', PORT), document('a', ICE), asked);
    expect(sorted(body)).toEqual({ body, decided: [], references: 0 });
  });

  it('stay where documents are looked for by marks only', () => {
    const marked = user(result('c.md', PORT), result('a.md', ICE), asked);
    expect(sorted(marked, { isMarked: true }).body).toBe(marked);
  });

  const marks = (...names: string[]) =>
    `<warmpath-documents>${names.map((name) => `<document id="${name}">${name} ${ICE}</document>`).join('')}</warmpath-documents>`;
  it.each([
    ['in a message of the user', user],
    ['in the result of a tool', returned],
  ])('are read for the documents that one marks in its text, %s: in both modes, and the part stays', (_, around) => {
    for (const make of [result, document]) {
      const before = [make('d', PORT), make('c', LAMP)];
      const kept = around(...before, make('b', marks('z', 'y')), make('a', ICE), asked);
      const placed = around(...before, make('b', marks('y', 'z')), make('a', ICE), asked);
      expect(sorted(kept, { isMarked: true })).toMatchObject({ body: placed, decided: ['arranged'] });
      const apart = around(...before.toReversed(), make('b', marks('y', 'z')), make('a', ICE), asked);
      expect(sorted(kept)).toMatchObject({ body: apart, decided: ['arranged', 'arranged'] });
    }
    // What is named in passing marks nothing.
    const named = [result('b', `${PORT} Use <warmpath-documents>.`), result('a', ICE)];
    expect(sorted(around(...named)).body).toBe(around(...named.toReversed()));
  });

  // What grew with the square of the lists would take minutes.
  it.runIf(isFull)('in very many lists are read once', () => {
    const parts = [document('a', 'x'), result('b', 'y')].map((part) => JSON.parse(part) as object);
    const content = Array.from({ length: 600_000 }, (_, place) => parts[(place >> 1) & 1]!);
    const [message] = messagesApi.messages({ messages: [{ role: 'user', content }] });
    expect(message!.texts).toHaveLength(300_000);
  });

  it('that come again are referred to, and keep all but their words', () => {
    const first = returned(result('a.md', ICE), result('b.md', LAMP));
    const { messages } = JSON.parse(first) as { messages: unknown[] };
    const again = JSON.parse(returned(result('c.md', PORT), result('d.md', LAMP))) as { messages: unknown[] };
    const sent = sorted(JSON.stringify({ model: 'm', messages: [...messages, ...again.messages] }));
    expect(sent.references).toBe(1);
    const { messages: out } = JSON.parse(sent.body) as { messages: { content: { content: object[] }[] }[] };
    expect(out.at(-1)!.content[0]!.content[1]).toEqual({
      type: 'search_result',
      source: 'd.md',
      title: 'T d.md',
      content: [{ type: 'text', text: 'Given earlier in this conversation: [b.md].' }],
    });
  });

  it('any parts: the same ones come out, and in their order the very same body', () => {
    const part = fc.oneof(
      fc
        .tuple(
          fc.constantFrom('a', 'b', 'c', 'd'),
          fc.string({ unit: 'binary', maxLength: 60 }),
          fc.constantFrom('', CITED),
        )
        .map(([name, text, more]) => result(name, text, more)),
      fc
        .tuple(fc.constantFrom('a', 'b', 'c'), fc.string({ maxLength: 60 }))
        .map(([name, text]) => document(name, text)),
      fc.constantFrom(
        asked,
        '{"type":"image"}',
        'null',
        '7',
        '{"type":"search_result"}',
        '{"type":"document","source":3}',
      ),
    );
    let changed = 0;
    fc.assert(
      fc.property(fc.array(part, { minLength: 1, maxLength: 8 }), fc.boolean(), (parts, inResult) => {
        const body = (inResult ? returned : user)(...parts);
        const recognised = recogniseRequest(Buffer.from(body), messagesApi, {
          find: (texts) => formedBlocks(texts, { refersToParts: false }),
        });
        if (recognised === undefined) return;
        const placed = sorted(body).body;
        changed += placed === body ? 0 : 1;
        if (sorted(body).references === 0) expect([...placed].sort().join('')).toBe([...body].sort().join(''));
        expect(JSON.parse(placed)).toBeTypeOf('object');
      }),
      { seed: SEED, numRuns: runs(500) },
    );
    expect(changed).toBeGreaterThan(runs(20));
  });

  it('stay until somebody allows it, and then reach the engine so, told of in the headers', async () => {
    const { gateway, engine } = await stand(answerAsAsked);
    const first = user(result('c.md', PORT), result('a.md', ICE), asked);
    const second = user(result('b.md', LAMP), result('c.md', PORT), asked);
    for (const body of [first, second]) {
      await send(`${gateway.url}/v1/messages`, body);
      expect(engine.last.body).toBe(body);
    }
    await allowPrompts(gateway.url, 1);
    const reply = await send(`${gateway.url}/v1/messages`, first);
    expect(told(reply).recognised).toBe('json 2 arranged');
    await send(`${gateway.url}/v1/messages`, second);
    expect(engine.last.body).toBe(user(result('c.md', PORT), result('b.md', LAMP), asked));
  });
});

describe('items of OpenAI that hold documents', () => {
  const found = (id: string, ...results: [string, string][]) => ({
    type: 'file_search_call',
    id,
    status: 'completed',
    queries: ['q'],
    results: results.map(([file, text]) => ({
      file_id: file,
      filename: `${file}.pdf`,
      score: 0.5,
      attributes: {},
      text,
    })),
  });
  const ask = (content: string) => ({ role: 'user', content });

  it('results of a search of files', () => {
    const body = JSON.stringify({
      model: 'm',
      input: [ask('What burns?'), found('1', ['c', PORT], ['a', ICE]), ask('Well?')],
    });
    const sent = sorted(body, { api: responsesApi });
    expect(sent).toMatchObject({ decided: ['arranged'] });
    expect(JSON.parse(sent.body)).toEqual({
      model: 'm',
      input: [ask('What burns?'), found('1', ['a', ICE], ['c', PORT]), ask('Well?')],
    });
  });

  it('results that the model has answered keep their order, and those that come again are referred to', () => {
    const answer = { role: 'assistant', content: 'Oil.' };
    const input = [
      ask('?'),
      found('1', ['c', PORT], ['a', ICE]),
      answer,
      ask('?'),
      found('2', ['b', LAMP], ['c', PORT]),
      answer,
    ];
    const sent = sorted(JSON.stringify({ model: 'm', input }), { api: responsesApi });
    expect(sent).toMatchObject({ decided: ['history', 'history'], references: 1 });
    const { input: out } = JSON.parse(sent.body) as { input: { results: { text: string }[] }[] };
    expect(out[1]).toEqual(input[1]);
    expect(out[4]!.results.map(({ text }) => text)).toEqual([LAMP, 'Given earlier in this conversation: [c].']);
  });

  it('texts in a list that a function returned', () => {
    const list = (...ids: string[]) =>
      JSON.stringify({ results: ids.map((id) => ({ id, content: id === 'a' ? ICE : PORT })) });
    const output = (text: string) => [
      { type: 'function_call', call_id: 'x', name: 's', arguments: '{}' },
      {
        type: 'function_call_output',
        call_id: 'x',
        output: [
          { type: 'input_text', text },
          { type: 'input_image', image_url: 'data:,' },
        ],
      },
    ];
    const sent = sorted(JSON.stringify({ model: 'm', input: output(list('c', 'a')) }), { api: responsesApi });
    expect(JSON.parse(sent.body)).toEqual({ model: 'm', input: output(list('a', 'c')) });
  });

  it('whatever stands in the place of results', () => {
    for (const results of [null, [], [null, 1], [{}], [{ text: 'a' }, 'b'], {}, 'x']) {
      const body = JSON.stringify({ model: 'm', input: [{ type: 'file_search_call', id: '1', results }, ask('?')] });
      expect(sorted(body, { api: responsesApi }).body).toBe(body);
    }
  });
});
