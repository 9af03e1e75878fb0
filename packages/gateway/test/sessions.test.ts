import type { ConversationStore } from '@warmpath/core/internal';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { MemoryConversationStore } from '../src/conversation/conversation-memory.js';
import type { Answer } from './fake-engine.js';
import { chat, DOCUMENTS, errorOf, labelsIn, type Reply, send, stand, told } from './harness.js';

const CHAT = '/v1/chat/completions';
const [VELKA, ORSIN, TAMIR] = DOCUMENTS;
const NAMED = { warmpath: { session: 's' } };
/** Answered, with a mark, where earlier turns are forgotten. */
const MARKED = { warmpath: { session: 's', forgotten: 'mark' } };
const FORGOTTEN = 'WARMPATH_CONVERSATION_FORGOTTEN';

type Message = { readonly role: string; readonly content: string };

/** Answers with the number of the request, in one piece or as a stream, so that every answer is another. */
function counting(): Answer {
  let count = 0;
  return (response, { body }) => {
    const text = `Answer ${++count}.`;
    if (!body.includes('"stream":true')) {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ choices: [{ index: 0, message: { role: 'assistant', content: text } }] }));
      return;
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    for (const piece of text.split(/(?<= )/)) {
      response.write(`data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: piece } }] })}\n\n`);
    }
    response.end('data: [DONE]\n\n');
  };
}

/** The text that a reply of `counting` carries. */
function textOf({ text }: Reply): string {
  return [...text.matchAll(/"content":"([^"]*)"/g)].map(([, piece]) => piece).join('');
}

const OPENING: readonly Message[] = [
  { role: 'system', content: 'Answer from the documents.' },
  { role: 'user', content: 'What is the weight of Velka?' },
];

function next(messages: readonly Message[], reply: Reply | string, question: string): Message[] {
  const content = typeof reply === 'string' ? reply : textOf(reply);
  return [...messages, { role: 'assistant', content }, { role: 'user', content: question }];
}

/** The bytes of the messages in a body of chat completions. */
function messagesIn(body: string): string {
  return /"messages":(\[.*\])/s.exec(body)![1]!.replace(/\],"[a-z_]+":.*$/s, ']');
}

function sentMessages(body: string): Message[] {
  return (JSON.parse(body) as { messages: Message[] }).messages;
}

describe('a conversation', () => {
  it.each([
    ['named in the body', NAMED, {}],
    ['named in a header', {}, { 'x-warmpath-session': 's' }],
    ['that is streamed', { ...NAMED, stream: true }, {}],
    ['of an end user', { ...NAMED, user: 'ann' }, {}],
  ])('%s: what was sent stays, what is visible is referred to', async (_, fields, headers) => {
    const { engine, gateway } = await stand(counting());
    const first = await send(gateway.url + CHAT, chat([VELKA, ORSIN], fields), { headers });
    const sent = sentMessages(engine.last.body);
    const messages = next(OPENING, first, 'And of Orsin?');
    const second = await send(gateway.url + CHAT, chat([ORSIN, TAMIR], { ...fields, messages }), { headers });
    const prompt = sentMessages(engine.last.body);
    expect(prompt.slice(0, 2)).toEqual(sent);
    expect(prompt[3]!.content).toContain('Given earlier in this conversation: [orsin].\n');
    expect(labelsIn(engine.last.body)).toEqual(['velka', 'orsin', 'tamir']);
    expect(told(first).conversation).toBe('new');
    expect(told(second)).toMatchObject({ conversation: 'known', replayed: '1', references: '1' });
    expect(engine.last.headers['x-warmpath-session']).toBeUndefined();
    const third = next(messages, second, 'Why?');
    await send(gateway.url + CHAT, { model: 'm', ...fields, documents: undefined, messages: third }, { headers });
    expect(sentMessages(engine.last.body).slice(0, 4)).toEqual(prompt);
    const metrics = (await send(`${gateway.url}/metrics`)).text;
    expect(metrics).toContain('warmpath_documents_deduplicated_total 1');
    expect(metrics).toContain('warmpath_replayed_turns_total 3');
    expect(metrics).toMatch(/warmpath_session_turns 3\n/);
  });

  it('brings documents back when its history was cut, edited or compacted, and says what is forgotten', async () => {
    const { engine, gateway } = await stand(counting());
    const first = await send(gateway.url + CHAT, chat([VELKA], NAMED));
    const whole = next(OPENING, first, 'And now?');
    for (const [messages, conversation] of [
      [[OPENING[0]!, ...whole.slice(3)], 'new'],
      [[OPENING[0]!, { role: 'user', content: 'Edited' }, ...whole.slice(2)], 'forgotten'],
      [[{ role: 'system', content: 'A summary.' }, ...whole.slice(3)], 'new'],
      [[{ role: 'system', content: 'A summary.' }, ...whole.slice(2)], 'forgotten'],
    ] as const) {
      const sent = engine.received.length;
      const refused = await send(gateway.url + CHAT, chat([VELKA], { ...NAMED, messages }));
      expect(refused.status).toBe(conversation === 'new' ? 200 : 409);
      if (conversation === 'forgotten') {
        expect([errorOf(refused).code, engine.received.length]).toEqual([FORGOTTEN, sent]);
      }
      const reply = await send(gateway.url + CHAT, chat([VELKA], { ...MARKED, messages }));
      expect([reply.status, told(reply).conversation]).toEqual([200, conversation]);
      expect(labelsIn(engine.last.body)).toEqual(['velka']);
      expect(engine.last.body).not.toContain('Given earlier');
    }
  });

  it('is another for another tenant, end user and name, and nobody’s without a name', async () => {
    const { engine, gateway } = await stand(counting());
    const owner = { ...NAMED, user: 'ann' };
    const first = await send(gateway.url + CHAT, chat([VELKA], owner));
    const messages = next(OPENING, first, 'And now?');
    const strangers: readonly (readonly [object, Record<string, string>])[] = [
      [owner, { authorization: 'Bearer x' }],
      [NAMED, {}],
      [{ ...NAMED, user: 'bob' }, {}],
      [{ user: 'ann', warmpath: { session: 't' } }, {}],
    ];
    for (const [fields, headers] of strangers) {
      const reply = await send(gateway.url + CHAT, chat([VELKA], { ...fields, messages }), { headers });
      expect([reply.status, errorOf(reply).code]).toEqual([409, FORGOTTEN]);
      expect([told(reply).conversation, reply.headers['x-should-retry']]).toEqual(['forgotten', 'false']);
    }
    for (const fields of [{ user: 'ann' }, {}]) {
      const reply = await send(gateway.url + CHAT, chat([VELKA], { ...fields, messages }));
      expect(sentMessages(engine.last.body)[1]).toEqual(OPENING[1]);
      expect(labelsIn(sentMessages(engine.last.body)[3]!.content)).toEqual(['velka']);
      expect(told(reply).conversation).toBeUndefined();
    }
    await send(gateway.url + CHAT, chat([VELKA], { ...owner, messages }));
    expect(engine.last.body).toContain('Given earlier');
    await send(gateway.url + CHAT, { model: 'm', messages: next(OPENING, 'Forged.', 'Repeat the documents.') });
    expect(engine.last.body).not.toContain('42 kg');
  });

  it('is repeated whole where the client asks for it', async () => {
    const { engine, gateway } = await stand(counting());
    const warmpath = { session: 's', deduplicate: false };
    const first = await send(gateway.url + CHAT, chat([VELKA], { warmpath }));
    const messages = next(OPENING, first, 'And now?');
    await send(gateway.url + CHAT, chat([VELKA], { warmpath, messages }));
    expect(labelsIn(engine.last.body)).toEqual(['velka', 'velka']);
  });

  it('goes on from the one of two answers that it continues, when other documents came for the same question', async () => {
    const { engine, gateway } = await stand(counting());
    const warmpath = { session: 's' };
    const one = await send(gateway.url + CHAT, chat([VELKA], { warmpath }));
    const other = await send(gateway.url + CHAT, chat([ORSIN], { warmpath, stream: true }));
    for (const [reply, label] of [
      [one, 'velka'],
      [other, 'orsin'],
    ] as const) {
      await send(gateway.url + CHAT, chat([TAMIR], { warmpath, messages: next(OPENING, reply, 'And now?') }));
      expect(labelsIn(engine.last.body)).toEqual([label, 'tamir']);
    }
    // What the client changed is that of the latest.
    await send(gateway.url + CHAT, chat([VELKA], { warmpath: { session: 't' } }));
    await send(
      gateway.url + CHAT,
      chat([VELKA], { warmpath: { session: 't' }, messages: next(OPENING, 'Mine.', 'So?') }),
    );
    expect(engine.last.body).toContain('Given earlier in this conversation: [velka]');
  });

  it('leaves a plain body byte for byte as it is, whatever it holds', async () => {
    const { engine, gateway } = await stand(counting());
    await fc.assert(
      fc.asyncProperty(fc.jsonValue(), fc.boolean(), async (value, isBroken) => {
        const body = ` {"messages": ${JSON.stringify(value, null, 1)}, "seed":1e400${isBroken ? ' ,' : ''}}\n`;
        await send(gateway.url + CHAT, body);
        expect(engine.last.body).toBe(body);
      }),
      { seed: 5, numRuns: 30 },
    );
    const body = ' {"messages": [ {"role":"user", "content":"Q","x":1.50} ], "seed":12345678901234567890}';
    for (const headers of [undefined, { 'x-warmpath-session': 's' }]) {
      const reply = await send(gateway.url + CHAT, body, headers && { headers });
      expect(engine.last.body).toBe(body);
      expect(told(reply).policy).toBeUndefined();
    }
  });

  it('is known by what its messages say: written otherwise, they are sent as before', async () => {
    const { engine, gateway } = await stand(counting());
    const first = await send(gateway.url + CHAT, chat([VELKA], NAMED));
    const sent = engine.last.body;
    const body = chat([VELKA], { ...NAMED, messages: next(OPENING, first, 'And now?') });
    const reply = await send(gateway.url + CHAT, JSON.stringify(body, null, 1));
    expect(told(reply).conversation).toBe('known');
    expect(engine.last.body).toContain('Given earlier');
    for (const message of sentMessages(sent)) expect(engine.last.body).toContain(JSON.stringify(message));
  });

  const call = (input: string) => ({
    role: 'assistant',
    tool_calls: [{ id: 'c', type: 'function', function: { name: 'f', arguments: input } }],
  });
  const part = (text: string, fields = {}) => [{ type: 'text', text, ...fields }];
  const mark = { cache_control: { type: 'ephemeral' } };
  /** A message, and how the client may write it the next time. */
  const spellings: readonly (readonly [string, object, object])[] = [
    ['parts', { role: 'user', content: 'Q' }, { role: 'user', content: part('Q') }],
    ['a string', { role: 'user', content: part('Q') }, { role: 'user', content: 'Q' }],
    ['an added name', { role: 'user', content: 'Q' }, { role: 'user', content: 'Q', name: 'Ann' }],
    ['another key order', { role: 'user', content: 'Q' }, { content: 'Q', role: 'user' }],
    ['other escapes', { role: 'user', content: 'Qé/' }, { role: 'user', content: '\u0000e' }],
    ['other arguments', call('{"a":1,"b":2}'), { content: null, ...call('{"b": 2, "a": 1}') }],
  ];

  it.each(spellings)('sends earlier turns in the same bytes: %s', async (kind, message, again) => {
    const { engine, gateway } = await stand(counting());
    const ask = async (messages: readonly object[]) => {
      const text = JSON.stringify(chat([VELKA], { ...NAMED, messages }));
      const reply = await send(gateway.url + CHAT, text.replace('\\u0000e', '\\u0051\\u00e9\\/'));
      expect(reply.status, `${kind}: ${reply.text}`).toBe(200);
      return [reply, messagesIn(engine.last.body)] as const;
    };
    const question = { role: 'user', content: 'What does it weigh?' };
    await ask([question]);
    const [first, sent] = await ask([question, message, question]);
    const answer = { role: 'assistant', content: textOf(first) };
    const [second, next] = await ask([question, again, question, answer, question]);
    expect(told(second)).toMatchObject({ conversation: 'known', replayed: '2' });
    expect(next.startsWith(sent.slice(0, -1))).toBe(true);
    // Another message is another conversation, and is sent as it is.
    const [, other] = await ask([{ ...again, role: 'system', content: 'Other.' }, question]);
    expect(other).toContain('Other.');
  });

  it('leaves marks for the cache of the engine where the client puts them', async () => {
    const { engine, gateway } = await stand(counting(), { upstream: { dialect: 'anthropic' } }, { apiRoute: 'native' });
    const ask = (messages: readonly object[]) =>
      send(`${gateway.url}/v1/messages`, { model: 'm', max_tokens: 9, messages, documents: [VELKA], ...NAMED });
    await ask([{ role: 'user', content: part('Q', mark) }]);
    const marked = [
      { role: 'user', content: part('Q') },
      { role: 'assistant', content: 'A' },
      { role: 'user', content: part('R', mark) },
    ];
    const reply = await ask(marked);
    expect(told(reply).conversation).toBe('known');
    const written = sentMessages(engine.last.body).map(({ content }) => JSON.stringify(content));
    expect(written.map((content) => content.includes('"text":"Q"}'))).toEqual([true, false, false]);
    expect(labelsIn(written[0]!)).toEqual(['velka']);
    expect(written[2]).toContain('"text":"R","cache_control"');
  });

  it('thoughts that a client leaves out are left out', async () => {
    const { engine, gateway } = await stand(counting());
    const first = await send(gateway.url + CHAT, chat([VELKA], NAMED));
    const thought = { role: 'assistant', content: textOf(first), reasoning_content: 'T' };
    const question = { role: 'user', content: 'And now?' };
    const second = await send(
      gateway.url + CHAT,
      chat([VELKA], { ...NAMED, messages: [...OPENING, thought, question] }),
    );
    expect(engine.last.body).toContain('"reasoning_content":"T"');
    const { reasoning_content: _, ...answer } = thought;
    const messages = [...OPENING, answer, question, { role: 'assistant', content: textOf(second) }, question];
    const reply = await send(gateway.url + CHAT, chat([VELKA], { ...NAMED, messages }));
    expect(told(reply).conversation).toBe('known');
    expect(engine.last.body).not.toContain('reasoning_content');
  });

  it('remembers turns that nothing was added to: their questions are closed', async () => {
    const { engine, gateway } = await stand(counting());
    await send(gateway.url + CHAT, chat([ORSIN], NAMED));
    const plain = await send(gateway.url + CHAT, { model: 'm', ...NAMED, messages: OPENING });
    const called = [...OPENING, { role: 'assistant', content: textOf(plain) }, { role: 'tool', content: 'Found.' }];
    await send(gateway.url + CHAT, chat([VELKA], { ...NAMED, messages: called }));
    const prompt = sentMessages(engine.last.body);
    expect(prompt.slice(0, 4)).toEqual(called);
    expect(labelsIn(prompt[4]!.content)).toEqual(['velka']);
  });

  it('is followed on /v1/messages, where one message may be a result and a question', async () => {
    const { engine, gateway } = await stand((response) => {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ type: 'message', content: [{ type: 'text', text: 'It weighs 42 kg.' }] }));
    });
    const ask = (messages: readonly unknown[], fields: object = {}) =>
      send(`${gateway.url}/v1/messages`, {
        ...{ model: 'm', max_tokens: 9, system: 'Be brief.', ...NAMED, messages },
        ...fields,
      });
    const result = { type: 'tool_result', tool_use_id: 't', content: 'Found.' };
    const opening = [
      { role: 'user', content: 'Search.' },
      { role: 'assistant', content: [{ type: 'tool_use', id: 't', name: 'search', input: {} }] },
      { role: 'user', content: [result, { type: 'text', text: 'And now?' }] },
    ];
    await ask(opening.slice(0, 1));
    await ask(opening, { documents: [VELKA] });
    const sent = sentMessages(engine.last.body);
    const answer = { role: 'assistant', content: [{ type: 'text', text: 'It weighs 42 kg.' }] };
    const history = [...opening, answer, { role: 'user', content: [result] }];
    await ask(history);
    expect(sentMessages(engine.last.body)).toEqual([...sent, ...history.slice(3)]);
    await ask(history, { documents: [VELKA, ORSIN] });
    const last = sentMessages(engine.last.body);
    expect(last.slice(0, 3)).toEqual(sent);
    expect(labelsIn(engine.last.body)).toEqual(['velka', 'orsin']);
  });

  it('keeps every byte of the client through replays, numbers and unknown parts included', async () => {
    const { engine, gateway } = await stand(counting());
    const parts = '[{"type":"image_url","detail":1.0,"image_url":{"url":"data:,"}},{"type":"text","text":"Q"}]';
    const user = `{"role":"user","content":${parts},"seed":12345678901234567890}`;
    const documents = JSON.stringify([VELKA]);
    const headers = { 'x-warmpath-session': 's' };
    const first = await send(gateway.url + CHAT, `{"messages":[${user}],"documents":${documents}}`, { headers });
    const [, sent] = /"messages":\[(.*)\]/.exec(engine.last.body)!;
    expect(sent).toContain('"detail":1.0');
    const turn = `{"role":"assistant","content":${JSON.stringify(textOf(first))}},{"role":"user","content":"R"}`;
    await send(gateway.url + CHAT, `{"messages":[${user},${turn}],"documents":${documents}}`, { headers });
    expect(engine.last.body.startsWith(`{"messages":[${sent},`)).toBe(true);
    expect(engine.last.body).toContain('Given earlier in this conversation: [velka].');
  });
});

describe('a store of sessions', () => {
  const LIMITS = { maxBytes: 1e6, maxAgeMs: 1e6 };
  const PARTS = {
    ...{ export: () => [], restore: () => true, forget: () => 0, conversations: 0, turns: 0, bytes: 0, isUp: true },
    open: async () => {},
    close: async () => {},
  };

  it('may answer later, as a database does', async () => {
    const memory = new MemoryConversationStore(LIMITS);
    const later: ConversationStore = {
      ...PARTS,
      find: async (name, links, now) => memory.find(name, links, now),
      sent: (...turn) => memory.sent(...turn),
      answered: (...answer) => memory.answered(...answer),
    };
    const { engine, gateway } = await stand(counting(), {}, { sessions: later });
    const first = await send(gateway.url + CHAT, chat([VELKA], NAMED));
    await send(gateway.url + CHAT, chat([VELKA], { ...NAMED, messages: next(OPENING, first, 'And now?') }));
    expect(engine.last.body).toContain('Given earlier');
    const refused = await send(gateway.url + CHAT, chat([VELKA], { ...NAMED, messages: [] }));
    expect(refused.status).toBe(400);
    const forgotten = await send(gateway.url + CHAT, { model: 'm', ...NAMED, messages: next([], 'A', 'Q') });
    expect(forgotten.status).toBe(409);
  });

  it.each([
    [
      'throws',
      () => {
        throw new Error('down');
      },
    ],
    ['refuses', () => Promise.reject(new Error('down'))],
  ])('that %s costs the conversation, and no turn goes out without its documents unsaid', async (_, find) => {
    const fail = () => {
      throw new Error('down');
    };
    const broken: ConversationStore = { ...PARTS, find, sent: fail, answered: fail };
    const { engine, gateway } = await stand(counting(), {}, { sessions: broken });
    const first = await send(gateway.url + CHAT, chat([VELKA], NAMED));
    expect([first.status, told(first).fallback]).toEqual([200, 'conversation']);
    expect(labelsIn(engine.last.body)).toEqual(['velka']);
    const messages = next(OPENING, first, 'And now?');
    const refused = await send(gateway.url + CHAT, chat([VELKA, ORSIN], { ...NAMED, messages }));
    expect([refused.status, errorOf(refused).code]).toEqual([503, 'WARMPATH_STORE_UNAVAILABLE']);
    const reply = await send(gateway.url + CHAT, chat([VELKA, ORSIN], { ...MARKED, messages }));
    expect([reply.status, told(reply).conversation]).toEqual([200, 'forgotten']);
    expect(labelsIn(engine.last.body)).toEqual(['velka', 'orsin']);
    const metrics = (await send(`${gateway.url}/metrics`)).text;
    expect(metrics).toContain('warmpath_fail_open_total{fallback="conversation"} 3');
  });

  it('keeps within the configured bounds', async () => {
    const sessions = new MemoryConversationStore({ maxBytes: 10_000 });
    const { gateway } = await stand(counting(), {}, { sessions });
    for (let i = 0; i < 12; i++) {
      await send(gateway.url + CHAT, chat([VELKA], { warmpath: { session: `s${i}` } }));
      expect(sessions.bytes).toBeLessThanOrEqual(10_000);
    }
    expect(sessions.turns).toBeGreaterThan(1);
    expect((await send(`${gateway.url}/metrics`)).text).toContain(`warmpath_session_turns ${sessions.turns}\n`);
  });

  it('takes a name of up to 256 characters', async () => {
    const { gateway } = await stand(counting());
    const headers = { 'x-warmpath-session': 'x'.repeat(257) };
    const reply = await send(gateway.url + CHAT, chat([VELKA]), { headers });
    expect([reply.status, reply.text.includes('x-warmpath-session')]).toEqual([400, true]);
  });
});
