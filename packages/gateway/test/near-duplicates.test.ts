import { describe, expect, it } from 'vitest';
import { errorOf, labelsIn, type Reply, send, stand, told } from './harness.js';

const CHAT = '/v1/chat/completions';
const REFERENCE = /Given earlier in this conversation: \[(?:(\w+): )?«([^»]*)»\]\./;

interface Message {
  readonly role: string;
  readonly content: unknown;
}

const sentence = (i: number) =>
  `In the year ${1_700 + 7 * i} the keeper of house ${i} wrote down what the sea had brought in the night to door ${3 * i}. `;
const pages = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => sentence(from + i)).join('');

const FIRST = { id: 'first', content: pages(0, 40) };
/** Most of it stands in the first one. */
const NEXT = { id: 'next', content: pages(10, 44) };
const SYSTEM = { role: 'system', content: 'Answer from the documents.' };
const OPENING: readonly Message[] = [SYSTEM, { role: 'user', content: 'What came of it?' }];
const ANSWER = { role: 'assistant', content: 'Nothing.' };
const FOLLOWING: readonly Message[] = [...OPENING, ANSWER, { role: 'user', content: 'And then?' }];

function request(messages: readonly Message[], documents: readonly object[], warmpath: object = {}) {
  return { model: 'm', messages, documents, warmpath: { session: 's', ...warmpath } };
}

function messagesOf(body: string): readonly Message[] {
  return (JSON.parse(body) as { messages: Message[] }).messages;
}

const lastText = (body: string) => String(messagesOf(body).at(-1)!.content);

/** Two turns of a conversation, and what the engine got for the second. */
async function twoTurns(warmpath: object) {
  const { engine, gateway } = await stand();
  await send(gateway.url + CHAT, request(OPENING, [FIRST], warmpath));
  const sent = messagesOf(engine.last.body);
  const reply = await send(gateway.url + CHAT, request(FOLLOWING, [NEXT], warmpath));
  return { engine, gateway, sent, reply, body: engine.last.body };
}

const isShortened = (reply: Reply) => told(reply).shortened === '1';

describe('parts that the conversation shows already', () => {
  it('are referred to where the request asks for it, and what was sent stays', async () => {
    const { engine, gateway, sent, reply, body } = await twoTurns({ blocks: true });
    expect(messagesOf(body).slice(0, 2)).toEqual(sent);
    const text = lastText(body);
    const [reference, name, words] = REFERENCE.exec(text)!;
    expect(name).toBe('first');
    const [begin, end] = words!.split(' … ') as [string, string];
    const held = FIRST.content.slice(FIRST.content.indexOf(begin), FIRST.content.indexOf(end) + end.length);
    const [, shown] = /<document id="next">\n([\s\S]*)\n<\/document>/.exec(text)!;
    expect(shown!.replace(reference, () => held)).toBe(NEXT.content.trimEnd());
    expect(labelsIn(body)).toEqual(['first', 'next']);
    expect(isShortened(reply)).toBe(true);
    expect(told(reply).references).toBeUndefined();
    expect(Number(told(reply).saved)).toBeGreaterThan(150);
    const record = await send(`${gateway.url}/v1/requests/${reply.headers['x-request-id']}`);
    expect(JSON.parse(record.text)).toMatchObject({
      references: 0,
      shortened: 1,
      blocks: [{ format: 'documents', documents: 1, references: [], shortened: [0] }],
    });
    expect((await send(`${gateway.url}/metrics`)).text).toContain('warmpath_documents_shortened_total 1');

    // Once more, and as history of a third turn that brings the same document whole.
    await send(gateway.url + CHAT, request(FOLLOWING, [NEXT], { blocks: true }));
    expect(engine.last.body).toBe(body);
    const third = [...FOLLOWING, ANSWER, { role: 'user', content: 'Why?' }];
    await send(gateway.url + CHAT, request(third, [NEXT], { blocks: true }));
    expect(messagesOf(engine.last.body).slice(0, 4)).toEqual(messagesOf(body));
    expect(lastText(engine.last.body)).toBe('Given earlier in this conversation: [next].\nWhy?');
  });

  it('are repeated unless the request says otherwise', async () => {
    expect(isShortened((await twoTurns({})).reply)).toBe(false);
    expect(isShortened((await twoTurns({ blocks: true })).reply)).toBe(true);
    for (const warmpath of [{ blocks: false }, { blocks: true, deduplicate: false }, { blocks: true, hints: false }]) {
      const { reply, body } = await twoTurns(warmpath);
      expect(isShortened(reply)).toBe(false);
      expect(lastText(body)).toContain(NEXT.content.trimEnd());
    }
    const { gateway } = await stand();
    const refused = await send(gateway.url + CHAT, request(OPENING, [FIRST], { blocks: 'yes' }));
    expect(refused.status).toBe(400);
    expect(errorOf(refused).param).toBe('warmpath.blocks');
  });

  it('come back when what showed them was cut, edited or compacted', async () => {
    const { engine, gateway } = await twoTurns({ blocks: true });
    for (const messages of [
      [SYSTEM, FOLLOWING[3]!],
      [SYSTEM, { role: 'user', content: 'Edited' }, ...FOLLOWING.slice(2)],
      [{ role: 'system', content: 'A summary.' }, FOLLOWING[3]!],
    ]) {
      const reply = await send(gateway.url + CHAT, request(messages, [NEXT], { blocks: true, forgotten: 'mark' }));
      expect(reply.status).toBe(200);
      expect(lastText(engine.last.body)).toContain(NEXT.content.trimEnd());
    }
  });

  it('may stand in a system prompt, a question or a result, but not in what the model said', async () => {
    const { engine, gateway } = await stand();
    const quoting = (role: string): readonly Message[] => [
      SYSTEM,
      { role: 'user', content: 'Well?' },
      {
        role,
        content: [{ type: 'text', text: pages(0, 40) }, { type: 'image_url', image_url: { url: 'data:,' } }, null],
      },
      { role: 'user', content: 'And now?' },
    ];
    for (const [role, isCounted] of [
      ['system', true],
      ['user', true],
      ['tool', true],
      ['assistant', false],
    ] as const) {
      const reply = await send(
        gateway.url + CHAT,
        request(quoting(role), [NEXT], { blocks: true, session: role, forgotten: 'mark' }),
      );
      expect(reply.status).toBe(200);
      expect([role, isShortened(reply), told(reply).fallback]).toEqual([role, isCounted, undefined]);
      expect(REFERENCE.exec(lastText(engine.last.body))?.[1]).toBeUndefined();
    }
  });

  it('may stand in a result on /v1/messages and /v1/responses', async () => {
    const { gateway } = await stand();
    // Turns that the gateway has not served.
    const named = (session: string) => ({ blocks: true, session, forgotten: 'mark' });
    const result = { type: 'tool_result', tool_use_id: 't', content: [{ type: 'text', text: pages(0, 40) }] };
    const anthropic = await send(`${gateway.url}/v1/messages`, {
      model: 'm',
      max_tokens: 9,
      messages: [
        { role: 'user', content: 'Search.' },
        { role: 'assistant', content: [{ type: 'tool_use', id: 't', name: 'search', input: {} }] },
        { role: 'user', content: [result, { type: 'text', text: 'And now?' }] },
      ],
      documents: [NEXT],
      warmpath: named('messages'),
    });
    expect(isShortened(anthropic)).toBe(true);
    const responses = await send(`${gateway.url}/v1/responses`, {
      model: 'm',
      input: [
        { role: 'user', content: 'Search.' },
        { type: 'function_call', call_id: 't', name: 'search', arguments: '{}' },
        { type: 'function_call_output', call_id: 't', output: pages(0, 40) },
        { role: 'user', content: 'And now?' },
      ],
      documents: [NEXT],
      warmpath: named('responses'),
    });
    expect(isShortened(responses)).toBe(true);
  });
});
