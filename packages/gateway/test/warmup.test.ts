import { WarmpathError } from '@warmpath/core';
import { describe, expect, it } from 'vitest';
import type { Upstream } from '../src/engines/upstream.js';
import { prefixOf, WarmPrefixes } from '../src/memory/served-histories.js';
import { Warmups } from '../src/warm/warm-preamble.js';
import { answerJson } from './fake-engine.js';
import { chat, closing, errorOf, gatewayAt, send, stand } from './harness.js';

const CHAT = '/v1/chat/completions';
const SYSTEM = { role: 'system', content: 'Answer from the documents.' };
const WARMUP = { model: 'm', messages: [SYSTEM] };

async function warm(url: string, body: object = WARMUP, key = 'k') {
  const reply = await send(`${url}/v1/warmup`, body, { headers: { authorization: key } });
  expect(reply.status).toBe(202);
  return (JSON.parse(reply.text) as { state: string }).state;
}

/** The engine has answered the warm-up when the gateway remembers its prefix. */
async function warmed(url: string, count: number): Promise<void> {
  while (!(await send(`${url}/metrics`)).text.includes(`warmpath_warm_prefixes ${count}\n`));
}

describe('POST /v1/warmup', () => {
  it('prefills what will stand before the documents, once', async () => {
    const { engine, gateway } = await stand();
    const fields = {
      tools: [{ type: 'function' }],
      stream: true,
      stream_options: {},
      max_completion_tokens: 9,
      user: 'u',
    };
    expect(await warm(gateway.url, { ...WARMUP, ...fields })).toBe('warming');
    await warmed(gateway.url, 1);
    expect(engine.last.path).toBe(CHAT);
    expect(engine.last.headers.authorization).toBe('k');
    expect(JSON.parse(engine.last.body)).toEqual({
      model: 'm',
      messages: [SYSTEM, { role: 'user', content: '' }],
      tools: [{ type: 'function' }],
      user: 'u',
      max_tokens: 1,
    });
    expect(await warm(gateway.url, { ...WARMUP, ...fields })).toBe('warm');
    expect(engine.received).toHaveLength(1);
    expect(await warm(gateway.url, WARMUP)).toBe('warming');
  });

  it('is over at once where nothing could be sent: the next ones start', () => {
    const unsendable = {
      start: (_: unknown, { onError }: { onError: (error: WarmpathError) => void }) => {
        onError(new WarmpathError('WARMPATH_UPSTREAM_UNREACHABLE'));
        return { abort: () => {} };
      },
    } as unknown as Upstream;
    const warmups = new Warmups(new WarmPrefixes(1_000_000), () => 0);
    for (let i = 0; i < 9; i++) {
      const started = warmups.start(
        unsendable,
        prefixOf('t', 'm', `key ${i % 5}`),
        () => ({}) as never,
        () => {},
      );
      expect(started.isOwn).toBe(true);
    }
  });

  it('joins one that is under way', async () => {
    let finish = () => {};
    const { engine, gateway } = await stand((response) => {
      finish = () => answerJson(response);
    });
    expect([await warm(gateway.url), await warm(gateway.url), await warm(gateway.url)]).toEqual(
      Array(3).fill('warming'),
    );
    await engine.until('request', 1);
    finish();
    await warmed(gateway.url, 1);
    expect(await warm(gateway.url)).toBe('warm');
    expect(engine.received).toHaveLength(1);
  });

  it('is not needed behind a request with the same beginning, and is after the time to live', async () => {
    let clock = 0;
    const { engine, gateway } = await stand(undefined, {}, { now: () => clock });
    const options = { headers: { authorization: 'k' } };
    await send(gateway.url + CHAT, chat(), options);
    await warmed(gateway.url, 1);
    clock = 300_000;
    expect(await warm(gateway.url)).toBe('warm');
    expect(await warm(gateway.url, WARMUP, 'another tenant')).toBe('warming');
    clock = 300_001;
    expect(await warm(gateway.url)).toBe('warming');
    await engine.until('request', 3);
  });

  it('warms the history of a conversation as far as it is known', async () => {
    const { engine, gateway } = await stand();
    const history = [SYSTEM, { role: 'user', content: 'Hi' }, { role: 'assistant', content: 'Hello' }];
    const question = { role: 'user', content: 'What is the weight of Velka?' };
    expect(await warm(gateway.url, { model: 'm', messages: [...history, question] })).toBe('warming');
    await warmed(gateway.url, 1);
    const { messages } = JSON.parse(engine.last.body) as { messages: object[] };
    expect(messages).toEqual([...history, { role: 'user', content: '' }]);
    await send(gateway.url + CHAT, chat(undefined, { messages: [...history, question] }), {
      headers: { authorization: 'k' },
    });
    await warmed(gateway.url, 1);
  });

  it('warms the system message alone where the documents stand in it', async () => {
    const { engine, gateway } = await stand(undefined, { arrange: { layout: 'system' } });
    await warm(gateway.url, {
      model: 'm',
      messages: [SYSTEM, { role: 'user', content: 'Q' }, { role: 'user', content: 'R' }],
    });
    await warmed(gateway.url, 1);
    expect(JSON.parse(engine.last.body)).toMatchObject({ messages: [SYSTEM, { role: 'user', content: '' }] });
    expect((JSON.parse(engine.last.body) as { messages: object[] }).messages).toHaveLength(2);
    await send(gateway.url + CHAT, chat(), { headers: { authorization: 'k' } });
    await warmed(gateway.url, 1);
  });

  it('that fails leaves the prefix cold', async () => {
    const { engine, gateway } = await stand((response) => response.writeHead(500).end());
    expect(await warm(gateway.url)).toBe('warming');
    await engine.until('request', 1);
    engine.answer = answerJson;
    while ((await warm(gateway.url)) !== 'warm');
    expect(engine.received).toHaveLength(2);
    const gone = closing(await gatewayAt('http://127.0.0.1:1'));
    expect(await warm(gone.url)).toBe('warming');
  });

  it('is bounded in number', async () => {
    const { gateway } = await stand(() => {}, {});
    for (const model of ['a', 'b', 'd', 'e']) expect(await warm(gateway.url, { ...WARMUP, model })).toBe('warming');
    const reply = await send(`${gateway.url}/v1/warmup`, { ...WARMUP, model: 'c' });
    expect(reply.status).toBe(429);
    expect(errorOf(reply).code).toBe('WARMPATH_OVERLOADED');
    expect(reply.headers['retry-after']).toBe('1');
  });

  it('ends when the gateway begins to close, before the answers that may still finish', async () => {
    let finish = () => {};
    const { engine, gateway } = await stand((response, { body }) => {
      if (body.includes('documents.')) finish = () => answerJson(response);
    });
    const answer = send(gateway.url + CHAT, chat(undefined, { model: 'other' }));
    await engine.until('request', 1);
    await warm(gateway.url, { model: 'm', messages: [{ role: 'system', content: 'Another.' }] });
    await engine.until('request', 2);
    const closed = gateway.close();
    await engine.until('abort', 1);
    finish();
    expect((await answer).status).toBe(200);
    await closed;
    expect(engine.aborted).toBe(1);
  });

  it.each([
    ['no JSON', '{', 'WARMPATH_INVALID_JSON', null],
    ['no messages', '{}', 'WARMPATH_INVALID_REQUEST', 'messages'],
  ])('refuses %s', async (_, body, code, param) => {
    const { gateway } = await stand();
    expect(errorOf(await send(`${gateway.url}/v1/warmup`, body))).toMatchObject({ code, param });
  });
});
