import OpenAI from 'openai';
import { describe, expect, it } from 'vitest';
import { chatOnlyEngine } from './chat-only-engine.js';
import { errorOf, type Reply, send, stand } from './harness.js';

const RESPONSES = '/v1/responses';

interface Stored {
  readonly id: string;
  readonly store: boolean;
  readonly previous_response_id: string | null;
  readonly output: readonly { readonly id: string; readonly type: string; readonly call_id?: string }[];
}

function responseOf({ status, text }: Reply): Stored {
  expect(status, text).toBe(200);
  const streamed = /"type":"response\.completed".*?"response":(\{.*\})\}$/m.exec(text)?.[1];
  return JSON.parse(streamed ?? text) as Stored;
}

function sentRoles(body: string): readonly string[] {
  return (JSON.parse(body) as { messages: readonly { role: string }[] }).messages.map(({ role }) => role);
}

const ask = (fields: object) => ({ model: 'm', input: 'What do they weigh?', ...fields });
const TOOLS = [{ type: 'function', name: 'weigh', parameters: {} }];

async function first(config: object = {}) {
  const { engine, gateway } = await stand(chatOnlyEngine(), config);
  const url = gateway.url + RESPONSES;
  return { engine, gateway, url };
}

describe('a stored response', () => {
  it.each([false, true])('is continued by its id: streamed %s', async (stream) => {
    const { engine, url } = await first();
    const one = responseOf(await send(url, ask({ tools: TOOLS, stream })));
    expect(one.store).toBe(true);
    const results = one.output
      .filter(({ type }) => type === 'function_call')
      .map(({ call_id }) => ({ type: 'function_call_output', call_id, output: '42' }));
    expect(results.length).toBeGreaterThan(0);
    const two = responseOf(await send(url, ask({ input: results, previous_response_id: one.id, stream })));
    expect(two.previous_response_id).toBe(one.id);
    expect(sentRoles(engine.last.body)).toEqual(['user', 'assistant', ...results.map(() => 'tool')]);
    const prefix = engine.last.body;
    await send(url, ask({ input: 'Thanks.', previous_response_id: two.id }));
    expect(sentRoles(engine.last.body).slice(-2)).toEqual(['assistant', 'user']);
    const shared = JSON.stringify((JSON.parse(prefix) as { messages: object[] }).messages).slice(0, -1);
    expect(engine.last.body).toContain(shared);
    expect(engine.last.body).not.toContain('previous_response_id');
  });

  it('gives the items that are referred to', async () => {
    const { engine, url } = await first();
    const one = responseOf(await send(url, ask({})));
    const [item] = one.output;
    const input = [
      { role: 'user', content: 'Q' },
      { type: 'item_reference', id: item!.id },
      { role: 'user', content: 'R' },
    ];
    expect((await send(url, ask({ input }))).status).toBe(200);
    expect(sentRoles(engine.last.body)).toEqual(['user', 'assistant', 'user']);
  });

  it('makes no request longer than one may be, however often it is referred to', async () => {
    const { url } = await first({ server: { bodyLimitBytes: 100_000 } });
    const long = { input: [{ role: 'user', content: 'x'.repeat(60_000) }] };
    const one = responseOf(await send(url, ask(long)));
    const [item] = one.output;
    const many = Array.from({ length: 1_500 }, () => ({ type: 'item_reference', id: item!.id }));
    const replies = [await send(url, ask({ input: many }))];
    const two = responseOf(await send(url, ask({ ...long, previous_response_id: one.id })));
    replies.push(await send(url, ask({ previous_response_id: two.id })));
    expect(replies.map((reply) => [reply.status, errorOf(reply).code])).toEqual(
      replies.map(() => [413, 'WARMPATH_BODY_TOO_LARGE']),
    );
  });

  it.each<[string, object]>([
    ['a response that is unknown', { previous_response_id: 'resp_0' }],
    ['an item that is unknown', { input: [{ type: 'item_reference', id: 'msg_0_0' }] }],
  ])('is not %s: the request is refused with its place', async (_, fields) => {
    const { url } = await first();
    const reply = await send(url, ask(fields));
    expect([reply.status, errorOf(reply).code]).toEqual([400, 'WARMPATH_NOT_TRANSLATABLE']);
    expect(reply.text).toContain('Send its items whole');
  });

  it('is none where the client, or a hosted API, wants none stored', async () => {
    const { url } = await first();
    const one = responseOf(await send(url, ask({ store: false })));
    expect(one.store).toBe(false);
    expect((await send(url, ask({ previous_response_id: one.id }))).status).toBe(400);
    const hosted = await first({ upstream: { dialect: 'openai' } });
    expect(responseOf(await send(hosted.url, ask({}))).store).toBe(false);
  });

  it('is of its tenant and its end user alone', async () => {
    const keys = ['ann', 'bob'].map((name) => ({ name, tenant: name, key: `key-of-${name}-0123456789` }));
    const { url, gateway } = await first({ server: { keys } });
    const as = (name: string) => ({ headers: { authorization: `Bearer key-of-${name}-0123456789` } });
    const one = responseOf(await send(url, ask({ user: 'u' }), as('ann')));
    const continued = async (name: string, user: string) =>
      (await send(url, ask({ user, previous_response_id: one.id }), as(name))).status;
    expect(await continued('ann', 'u')).toBe(200);
    expect(await continued('ann', 'v')).toBe(400);
    expect(await continued('bob', 'u')).toBe(400);
    const read = await fetch(`${url}/${one.id}`, as('ann'));
    expect(await read.json()).toMatchObject({ id: one.id, object: 'response' });
    expect((await fetch(`${url}/${one.id}`, as('bob'))).status).toBe(403);
    expect((await fetch(`${url}/${one.id}`, { method: 'DELETE', ...as('bob') })).status).toBe(403);
    expect(await (await fetch(`${url}/${one.id}`, { method: 'DELETE', ...as('ann') })).json()).toEqual({
      id: one.id,
      object: 'response',
      deleted: true,
    });
    expect(await continued('ann', 'u')).toBe(400);
    expect((await fetch(`${gateway.url}/metrics`)).status).not.toBe(200);
  });

  it("OpenAI's client goes on with it", async () => {
    const { gateway } = await stand(chatOnlyEngine());
    const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: 'secret', maxRetries: 0 });
    const one = await client.responses.create({ model: 'm', input: 'Q' });
    const two = await client.responses.create({ model: 'm', input: 'R', previous_response_id: one.id });
    expect(two.previous_response_id).toBe(one.id);
    expect((await client.responses.retrieve(two.id)).output).toEqual(two.output);
    await client.responses.delete(one.id);
    await expect(
      client.responses.create({ model: 'm', input: 'S', previous_response_id: two.id }),
    ).rejects.toMatchObject({
      status: 400,
      param: 'previous_response_id',
    });
  });
});
