import { describe, expect, it } from 'vitest';
import { OPERATIONS } from '../src/routes/openapi.js';
import { chat, errorOf, memoryOf, OPERATOR_KEY, type StandConfig, send, stand } from './harness.js';

const CHAT = '/v1/chat/completions';
const ACME = { authorization: 'Bearer the-key-of-tenant-acme' };
const OPERATOR = { authorization: `Bearer ${OPERATOR_KEY}` };
const KEYS = {
  server: {
    keys: [{ name: 'acme', key: 'the-key-of-tenant-acme' }],
    operatorKey: { key: OPERATOR_KEY },
  },
} as const satisfies StandConfig;

type Headers = Record<string, string>;

const asked = (text: string) => chat(undefined, { messages: [{ role: 'user', content: text }] });

async function capturing(config: StandConfig = {}, headers: Headers = {}) {
  const { gateway } = await stand(undefined, config);
  const url = gateway.url.replace('0.0.0.0', '127.0.0.1');
  const state = async (body?: object) => {
    const reply = await send(`${url}/v1/capture`, body, { headers });
    expect(reply.status, reply.text).toBe(200);
    return OPERATIONS['/v1/capture']!['get']!.answers[200]!.parse(JSON.parse(reply.text));
  };
  const ask = async (text: string, of: Headers = {}) =>
    String((await send(url + CHAT, asked(text), { headers: of })).headers['x-request-id']);
  const captured = (id: string, of: Headers = headers) => send(`${url}/v1/capture/${id}`, undefined, { headers: of });
  return { url, gateway, state, ask, captured };
}

describe('the capture of bodies', () => {
  it('keeps the next prompts as their clients wrote them, and is off afterwards', async () => {
    const { ask, captured, gateway, state } = await capturing();
    const before = await ask('Before?');
    expect((await captured(before)).status).toBe(404);
    const empty = (await memoryOf(gateway))['requests']!;
    expect(await state({ requests: 2 })).toEqual({ object: 'capture', remaining: 2, captured: [], tooLarge: 0 });
    const ids = [await ask('First, ünïcode?'), await ask('Second?'), await ask('Third?')];
    const [first, second] = [asked('First, ünïcode?'), asked('Second?')].map((body) => JSON.stringify(body));
    expect(await state()).toEqual({
      object: 'capture',
      remaining: 0,
      captured: [
        { id: ids[0], bytes: Buffer.byteLength(first!) },
        { id: ids[1], bytes: Buffer.byteLength(second!) },
      ],
      tooLarge: 0,
    });
    const reply = await captured(ids[0]!);
    expect(reply.headers['cache-control']).toBe('no-store');
    const answer = OPERATIONS['/v1/capture/{id}']!['get']!.answers[200]!.parse(JSON.parse(reply.text));
    expect(answer).toEqual({ object: 'captured_request', id: ids[0], path: CHAT, body: first });
    expect(errorOf(await captured(ids[2]!)).message).toContain('POST /v1/capture');
    expect((await memoryOf(gateway))['requests']).toBeGreaterThan(empty + first!.length + second!.length);
  });

  it('is forgotten when it is asked for again, or for none', async () => {
    const { ask, captured, state } = await capturing();
    await state({ requests: 5 });
    const id = await ask('First?');
    expect((await captured(id)).status).toBe(200);
    expect(await state({ requests: 0 })).toMatchObject({ remaining: 0, captured: [] });
    expect((await captured(id)).status).toBe(404);
    expect((await captured(await ask('Second?'))).status).toBe(404);
  });

  it('stays within its memory: the oldest bodies go, and one that is too large is only counted', async () => {
    const { ask, captured, gateway, state } = await capturing({ limits: { memoryBytes: 16_777_216 } });
    await state({ requests: 100 });
    const large = await ask('x'.repeat(100_000));
    expect((await captured(large)).status).toBe(404);
    const ids: string[] = [];
    for (let i = 0; i < 20; i++) ids.push(await ask(`${i} ${'y'.repeat(10_000)}`));
    expect(await state()).toMatchObject({ remaining: 79, tooLarge: 1 });
    expect((await captured(ids[0]!)).status).toBe(404);
    expect((await captured(ids.at(-1)!)).status).toBe(200);
    expect((await memoryOf(gateway))['requests']).toBeLessThanOrEqual(16_777_216 / 64);
  });

  it('is for the operator alone', async () => {
    const { ask, captured, state, url } = await capturing(KEYS, OPERATOR);
    await state({ requests: 3 });
    const id = await ask('Of acme?', ACME);
    expect((await captured(id)).status).toBe(200);
    for (const headers of [ACME, {}]) {
      const status = headers === ACME ? 403 : 401;
      expect((await captured(id, headers)).status).toBe(status);
      expect((await send(`${url}/v1/capture`, undefined, { headers })).status).toBe(status);
      expect((await send(`${url}/v1/capture`, { requests: 1 }, { headers })).status).toBe(status);
    }
    // Bodies of an open gateway are nobody's to read without the operator's key.
    const open = await capturing({ server: { open: true, host: '0.0.0.0' } });
    expect((await send(`${open.url}/v1/capture`, { requests: 1 })).status).toBe(403);
  });

  it('is for no web page but its own', async () => {
    const { url } = await capturing({ server: { cors: ['https://app.example'] } });
    const headers = { origin: 'https://app.example' };
    expect((await send(`${url}/v1/capture`, { requests: 1 }, { headers })).status).toBe(403);
    expect((await send(`${url}/v1/capture`, undefined, { headers })).status).toBe(403);
  });

  it.each([
    { requests: -1 },
    { requests: 1.5 },
    { requests: 1_001 },
    {},
    { requests: '3' },
    { requests: 1, all: true },
  ])('refuses %j', async (body) => {
    const { url } = await capturing();
    const reply = await send(`${url}/v1/capture`, body);
    expect(reply.status).toBe(400);
    expect(errorOf(reply).code).toBe('WARMPATH_INVALID_REQUEST');
  });
});
