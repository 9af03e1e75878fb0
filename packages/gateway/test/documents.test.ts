import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { answerAsAsked, CHAT_RESPONSE } from './fake-engine.js';
import { chat, DOCUMENTS, errorOf, labelsIn, send, stand, told } from './harness.js';

const CHAT = '/v1/chat/completions';
const [VELKA, ORSIN, TAMIR] = DOCUMENTS;

describe('a request with documents', () => {
  it('reaches the engine with the documents in the prompt and without the extra fields', async () => {
    const { engine, gateway } = await stand();
    const reply = await send(gateway.url + CHAT, chat(undefined, { warmpath: { session: 's-1' } }));
    expect(reply.text).toBe(CHAT_RESPONSE);
    const body = JSON.parse(engine.last.body) as { messages: { role: string; content: string }[] };
    expect(Object.keys(body)).toEqual(['model', 'messages']);
    expect(labelsIn(body.messages[1]!.content)).toEqual(['velka', 'orsin', 'tamir']);
    expect(body.messages[1]!.content.endsWith('What is the weight of Velka?')).toBe(true);
    expect(body.messages[0]).toEqual({ role: 'system', content: 'Answer from the documents.' });
  });

  it('starts with what the engine holds: the next request follows the order served before', async () => {
    const { engine, gateway } = await stand(answerAsAsked);
    await send(gateway.url + CHAT, chat([VELKA, ORSIN]));
    const reply = await send(gateway.url + CHAT, chat([TAMIR, ORSIN, VELKA], { stream: true }));
    expect(labelsIn(engine.last.body)).toEqual(['velka', 'orsin', 'tamir']);
    expect(engine.last.body).toContain('In order of relevance: [tamir] > [orsin] > [velka].');
    expect(Number(told(reply).predicted)).toBeGreaterThan(20);
    expect(told(reply).policy).toBe('foresight');
    expect(Number(told(reply).overhead)).toBeGreaterThan(0);
  });

  it('forgets what a failed request promised', async () => {
    const { engine, gateway } = await stand((response) => response.writeHead(500).end('{}'));
    await send(gateway.url + CHAT, chat([VELKA, ORSIN]));
    engine.answer = answerAsAsked;
    const reply = await send(gateway.url + CHAT, chat([ORSIN, VELKA]));
    expect(labelsIn(engine.last.body)).toEqual(['orsin', 'velka']);
    expect(told(reply).predicted).toBe('0');
  });

  it('leaves every other byte of the body as the client wrote it', async () => {
    const { engine, gateway } = await stand();
    const tail =
      '"stream":false, "seed":12345678901234567890,"logit_bias":{"50256":-100,"11":1.0},"x_unknown":{"b":[1e3,null]}';
    const system = '{"content" : "Be brief.","role":"system", "x":1.50}';
    const documents = JSON.stringify(DOCUMENTS);
    const body = `{"user":"u","messages": [${system}, {"role":"user","content":"Q"}],"documents":${documents},"warmpath":{}, ${tail}}`;
    await send(gateway.url + CHAT, body);
    const { body: received } = engine.last;
    expect(received.startsWith(`{"user":"u","messages": [${system}, {"role":"user","content":"<document`)).toBe(true);
    expect(received.endsWith(`Q"}], ${tail}}`)).toBe(true);
  });

  it('without documents passes through byte for byte, also what is not quite JSON', async () => {
    const { engine, gateway } = await stand();
    await fc.assert(
      fc.asyncProperty(fc.jsonValue(), async (value) => {
        const body = ` {"messages": ${JSON.stringify(value, null, 1)}, "seed":1e400, "text": "no \\"documents\\" here" ,}\n`;
        await send(gateway.url + CHAT, body);
        expect(engine.last.body).toBe(body);
      }),
      { seed: 5, numRuns: 30 },
    );
  });

  it('finds its own fields behind however many words that begin alike', async () => {
    const { engine, gateway } = await stand();
    for (const alike of [0, 1, 31, 32, 33, 100]) {
      const words = JSON.stringify(Array.from({ length: alike }, () => 'documentary'));
      const head = `{"words":${words},"messages":[{"role":"user","content":"Q"}]`;
      await send(gateway.url + CHAT, `${head},"documents":[{"id":"a","content":"A passage."}]}`);
      expect(engine.last.body).toContain('A passage.');
      expect(engine.last.body).not.toContain('"documents"');
      await send(gateway.url + CHAT, `${head}}`);
      expect(engine.last.body).toBe(`${head}}`);
    }
  });

  it('empty documents are no documents', async () => {
    const { engine, gateway } = await stand();
    await send(gateway.url + CHAT, '{"documents":[],"messages":[{"role":"user","content":"Q"}],"n":1}');
    expect(engine.last.body).toBe('{"messages":[{"role":"user","content":"Q"}],"n":1}');
    await send(gateway.url + CHAT, '{"documents":null,"messages":3}');
    expect(engine.last.body).toBe('{"messages":3}');
  });

  it('bypass removes `warmpath` and nothing else', async () => {
    const { engine, gateway } = await stand();
    await send(gateway.url + CHAT, '{"documents":[{"x":1}],"warmpath":{"bypass":true,"policy":"none"},"messages":[]}');
    expect(engine.last.body).toBe('{"documents":[{"x":1}],"messages":[]}');
  });

  it('follows the switches of the request over the configuration', async () => {
    const { engine, gateway } = await stand(undefined, { arrange: { policy: 'sorted', hints: false } });
    await send(gateway.url + CHAT, chat([VELKA, ORSIN, TAMIR]));
    expect(labelsIn(engine.last.body)).toEqual(['orsin', 'tamir', 'velka']);
    expect(engine.last.body).not.toContain('order of relevance');
    await send(gateway.url + CHAT, chat([VELKA, ORSIN, TAMIR], { warmpath: { pin: ['velka'], hints: true } }));
    expect(labelsIn(engine.last.body)).toEqual(['velka', 'orsin', 'tamir']);
    await send(gateway.url + CHAT, chat([VELKA, TAMIR, ORSIN], { warmpath: { maxShift: 0 } }));
    expect(labelsIn(engine.last.body)).toEqual(['velka', 'tamir', 'orsin']);
    await send(gateway.url + CHAT, chat([VELKA, ORSIN, TAMIR], { warmpath: { policy: 'retrieval' } }));
    expect(labelsIn(engine.last.body)).toEqual(['velka', 'orsin', 'tamir']);
  });

  it('moves documents only where that saves more than it costs', async () => {
    const { engine, gateway } = await stand(undefined, { arrange: { shiftPrice: 10_000 } });
    const sent = async (documents: readonly object[], warmpath?: object) => {
      await send(gateway.url + CHAT, chat(documents, warmpath && { warmpath }));
      return labelsIn(engine.last.body);
    };
    expect(await sent([VELKA, ORSIN, TAMIR])).toEqual(['velka', 'orsin', 'tamir']);
    expect(await sent([ORSIN, VELKA, TAMIR])).toEqual(['orsin', 'velka', 'tamir']);
    expect(await sent([ORSIN, TAMIR, VELKA], { shiftPrice: 0, hints: false })).not.toEqual(['orsin', 'tamir', 'velka']);
  });

  it('puts documents before the prompt of a plain completion', async () => {
    const { engine, gateway } = await stand();
    const path = `${gateway.url}/v1/completions`;
    await send(path, { model: 'm', prompt: 'Q', documents: [VELKA, ORSIN] });
    await send(path, { model: 'm', prompt: 'R', documents: [ORSIN, VELKA] });
    const { prompt } = JSON.parse(engine.last.body) as { prompt: string };
    expect(labelsIn(prompt)).toEqual(['velka', 'orsin']);
    expect(prompt.endsWith('R')).toBe(true);
    expect(engine.last.path).toBe('/v1/completions');
  });

  it('names in a header what was mended', async () => {
    const { gateway } = await stand();
    const reply = await send(gateway.url + CHAT, chat([VELKA, VELKA, { id: 'velka', content: 'Something else.' }]));
    expect(reply.status).toBe(200);
    expect(told(reply).warnings).toBe(
      'WARMPATH_DUPLICATE_DOCUMENT documents[1], WARMPATH_CONFLICTING_DOCUMENT documents[2].id',
    );
  });

  it('counts of the engine correct the estimate that is shown', async () => {
    const { gateway } = await stand((response) => {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end('{"usage":{"prompt_tokens":240}}');
    });
    const predicted = [];
    for (let i = 0; i < 3; i++) {
      const reply = await send(gateway.url + CHAT, chat([VELKA, ORSIN, TAMIR]));
      predicted.push(Number(told(reply).predicted));
    }
    expect(predicted[0]).toBe(0);
    // The prompt of 240 tokens was nearly all served before; the uncorrected estimate is far below.
    expect(predicted[1]).toBeGreaterThan(200);
    expect(predicted[1]).toBeLessThanOrEqual(240);
    expect(predicted[2]).toBe(predicted[1]);
  });
});

describe('isolation', () => {
  it('keeps tenants and models apart', async () => {
    const { engine, gateway } = await stand();
    const as = (key: string) => ({ headers: { authorization: `Bearer ${key}` } });
    await send(gateway.url + CHAT, chat([VELKA, ORSIN]), as('one'));
    await send(gateway.url + CHAT, chat([ORSIN, VELKA]), as('two'));
    expect(labelsIn(engine.last.body)).toEqual(['orsin', 'velka']);
    await send(gateway.url + CHAT, chat([ORSIN, VELKA], { model: 'other' }), as('one'));
    expect(labelsIn(engine.last.body)).toEqual(['orsin', 'velka']);
    await send(gateway.url + CHAT, chat([ORSIN, VELKA]), as('one'));
    expect(labelsIn(engine.last.body)).toEqual(['velka', 'orsin']);
    expect(engine.last.headers.authorization).toBe('Bearer one');
  });

  it('keeps prompts with another beginning apart', async () => {
    const { engine, gateway } = await stand();
    await send(gateway.url + CHAT, chat([VELKA, ORSIN]));
    await send(gateway.url + CHAT, chat([ORSIN, VELKA], { tools: [{ type: 'function' }] }));
    expect(labelsIn(engine.last.body)).toEqual(['orsin', 'velka']);
  });

  it('keeps what a tenant was served, however many models another one names', async () => {
    const { engine, gateway } = await stand(undefined, { limits: { memoryBytes: 16_777_216 } });
    const as = (key: string) => ({ headers: { authorization: key } });
    await send(gateway.url + CHAT, chat([VELKA, ORSIN]), as('quiet'));
    for (let i = 0; i < 600; i++) await send(gateway.url + CHAT, chat([VELKA, ORSIN], { model: `m${i}` }), as('loud'));
    const histories = Number(/^warmpath_histories (\d+)/m.exec((await send(`${gateway.url}/metrics`)).text)?.[1]);
    expect(histories).toBeGreaterThan(10);
    expect(histories).toBeLessThan(600);
    await send(gateway.url + CHAT, chat([ORSIN, VELKA]), as('quiet'));
    expect(labelsIn(engine.last.body)).toEqual(['velka', 'orsin']);
  });

  it("sends the configured key in place of the client's", async () => {
    const { engine, gateway } = await stand(undefined, { upstream: { apiKey: 'gateway-key' } });
    await send(gateway.url + CHAT, chat(), { headers: { authorization: 'Bearer client-key' } });
    expect(engine.last.headers.authorization).toBe('Bearer gateway-key');
  });
});

describe('documents in the form of other libraries', () => {
  const text = (id: string) => DOCUMENTS.find((document) => document.id === id)!.content;
  const forms: readonly unknown[][] = [
    [{ id: 7, content: text('velka') }, text('orsin')],
    [
      { id: '7', pageContent: text('velka'), metadata: { title: 'x' } },
      { page_content: text('orsin'), type: 'Document' },
    ],
    [{ id: '7', data: { snippet: text('velka') } }, { data: text('orsin') }],
    [
      { node: { id_: '7', text: text('velka') }, score: 1 },
      { document: { text: text('orsin') }, relevance_score: 1 },
    ],
    [{ content: ' ' }, { _id: '7', text: text('velka') }, '', { id: 8, data: { text: null } }, text('orsin')],
  ];

  it('make the same prompt in every form, in chats and in /v1/arrange', async () => {
    const { engine, gateway } = await stand();
    const prompts = new Set<string>();
    for (const documents of forms) {
      await send(gateway.url + CHAT, chat(documents));
      const { text } = JSON.parse((await send(`${gateway.url}/v1/arrange`, { documents })).text) as { text: string };
      expect(engine.last.body).toContain(JSON.stringify(text).slice(1, -1));
      prompts.add(engine.last.body);
    }
    expect(prompts.size).toBe(1);
    expect([...prompts][0]).toContain('<document id=\\"7\\">');
  });

  it('leave empty ones out and name them; positions stay those of the list', async () => {
    const { engine, gateway } = await stand();
    const documents = ['', { id: 'a', text: 'A' }, { id: 'b', content: '\n' }, { id: 'c', text: 'C' }];
    const reply = await send(gateway.url + CHAT, chat(documents, { warmpath: { pin: ['b', 'c'] } }));
    expect(labelsIn(engine.last.body)).toEqual(['a', 'c']);
    expect(told(reply).warnings).toContain('WARMPATH_EMPTY_DOCUMENT');
    const arranged = JSON.parse((await send(`${gateway.url}/v1/arrange`, { documents })).text) as {
      documents: object[];
      trace: { warnings: object[] };
    };
    expect(arranged.documents).toMatchObject([
      { id: 'a', source: 1, rank: 0 },
      { id: 'c', source: 3, rank: 1 },
    ]);
    expect(arranged.trace.warnings).toMatchObject([{ path: 'documents[0]' }, { path: 'documents[2].content' }]);
  });

  it('a request of empty documents alone is answered without documents', async () => {
    const { engine, gateway } = await stand();
    const reply = await send(gateway.url + CHAT, chat(['', { text: null }]));
    expect(reply.status).toBe(200);
    expect(engine.last.body).not.toContain('<document');
    expect(engine.last.body).not.toContain('"documents"');
  });

  it('keep numeric ids apart that JavaScript would round', async () => {
    const { engine, gateway } = await stand();
    const body = JSON.stringify(
      chat([
        { id: 'ID1', text: 'A' },
        { id: 'ID2', text: 'B' },
      ]),
    );
    await send(gateway.url + CHAT, body.replace('"ID1"', '9007199254740993').replace('"ID2"', '9007199254740992'));
    expect(labelsIn(engine.last.body)).toEqual(['9007199254740993', '9007199254740992']);
  });
});

describe('bad input is refused with a code and a path', () => {
  const user = { role: 'user', content: 'Q' };
  const document = { id: 'a', content: 'A' };
  const cases: [name: string, body: unknown, status: number, code: string, param: string | null][] = [
    ['a truncated body', '{"messages": [', 400, 'WARMPATH_INVALID_JSON', null],
    ['an empty body', '', 400, 'WARMPATH_INVALID_JSON', null],
    ['an array', '[{"documents":1}]', 400, 'WARMPATH_INVALID_JSON', null],
    ['broken JSON with documents', '{"documents": [}}', 400, 'WARMPATH_INVALID_JSON', null],
    ['documents of another type', { documents: {}, messages: [user] }, 400, 'WARMPATH_INVALID_DOCUMENTS', 'documents'],
    [
      'content of another type',
      { documents: [{ content: 7 }], messages: [user] },
      400,
      'WARMPATH_INVALID_DOCUMENT',
      'documents[0].content',
    ],
    [
      'a document of another library, with its text of another type',
      { documents: [document, { data: { text: 7 } }], messages: [user] },
      400,
      'WARMPATH_INVALID_DOCUMENT',
      'documents[1].data.text',
    ],
    [
      'a long document',
      { documents: [{ content: 'x'.repeat(1_000_001) }], messages: [user] },
      413,
      'WARMPATH_DOCUMENT_TOO_LARGE',
      'documents[0].content',
    ],
    [
      'many documents',
      { documents: Array(1_001).fill(document), messages: [user] },
      400,
      'WARMPATH_TOO_MANY_DOCUMENTS',
      'documents',
    ],
    ['no messages', { documents: [document] }, 400, 'WARMPATH_INVALID_REQUEST', 'messages'],
    [
      'a message that is none',
      { documents: [document], messages: [user, 3] },
      400,
      'WARMPATH_INVALID_REQUEST',
      'messages[1].role',
    ],
    [
      'content that is none',
      { documents: [document], messages: [{ role: 'user', content: 3 }] },
      400,
      'WARMPATH_INVALID_REQUEST',
      'messages[0].content',
    ],
    ['no question', { documents: [document], messages: [] }, 400, 'WARMPATH_INVALID_REQUEST', 'messages'],
    ['switches of another type', { warmpath: [], messages: [user] }, 400, 'WARMPATH_INVALID_REQUEST', 'warmpath'],
    [
      'an unknown switch',
      { warmpath: { polcy: 'exact' }, messages: [user] },
      400,
      'WARMPATH_INVALID_REQUEST',
      'warmpath.polcy',
    ],
    [
      'an unknown policy',
      { warmpath: { policy: 'exakt' }, messages: [user] },
      400,
      'WARMPATH_UNKNOWN_POLICY',
      'warmpath.policy',
    ],
    [
      'a negative maxShift',
      { warmpath: { maxShift: -1 }, documents: [document], messages: [user] },
      400,
      'WARMPATH_INVALID_MAX_SHIFT',
      'warmpath.maxShift',
    ],
    [
      'a price that is no number',
      { warmpath: { shiftPrice: '3' }, documents: [document], messages: [user] },
      400,
      'WARMPATH_INVALID_SHIFT_PRICE',
      'warmpath.shiftPrice',
    ],
    [
      'a pin of no document',
      { warmpath: { pin: ['b'] }, documents: [document], messages: [user] },
      400,
      'WARMPATH_INVALID_PIN',
      'warmpath.pin[0]',
    ],
    [
      'hints of another type',
      { warmpath: { hints: 1 }, documents: [document], messages: [user] },
      400,
      'WARMPATH_INVALID_REQUEST',
      'warmpath.hints',
    ],
    [
      'a session of another type',
      { warmpath: { session: 5 }, messages: [user] },
      400,
      'WARMPATH_INVALID_REQUEST',
      'warmpath.session',
    ],
    [
      'bypass of another type',
      { warmpath: { bypass: 'yes' }, messages: [user] },
      400,
      'WARMPATH_INVALID_REQUEST',
      'warmpath.bypass',
    ],
  ];

  it.each(cases)('%s', async (_, body, status, code, param) => {
    const { engine, gateway } = await stand();
    const reply = await send(gateway.url + CHAT, body as object);
    expect(reply.status).toBe(status);
    expect(errorOf(reply)).toMatchObject({ code, param });
    expect(told(reply).error).toBe('gateway');
    expect(reply.headers['x-request-id']).toMatch(/^[0-9a-f-]{36}$/);
    expect(engine.received).toHaveLength(0);
  });

  it('token ids and batches of prompts with documents', async () => {
    const { gateway } = await stand();
    for (const prompt of [[1, 2], ['a', 'b'], undefined]) {
      const reply = await send(`${gateway.url}/v1/completions`, { prompt, documents: [document] });
      expect(errorOf(reply)).toMatchObject({ code: 'WARMPATH_INVALID_REQUEST', param: 'prompt' });
    }
  });

  it('a body beyond the limit, announced or not', async () => {
    const { engine, gateway } = await stand(undefined, { server: { bodyLimitBytes: 1_000 } });
    const announced = await send(gateway.url + CHAT, `{"x":"${'x'.repeat(2_000)}"}`);
    expect(announced.status).toBe(413);
    expect(errorOf(announced).code).toBe('WARMPATH_BODY_TOO_LARGE');
    const chunked = await send(gateway.url + CHAT, `{"x":"${'x'.repeat(2_000)}"}`, {
      headers: { 'transfer-encoding': 'chunked' },
    });
    expect(chunked.status).toBe(413);
    expect(engine.received).toHaveLength(0);
  });
});
