import { SignJWT } from 'jose';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { chat, type Reply, send, stand, told } from './harness.js';

const PATH = '/v1/chat/completions';
const SECRET = 'a-secret-that-is-long-enough-for-hs256';
const KEY = 'the-key-of-somebody-else';
const DAY_MS = 86_400_000;
/** What `chat` asks, and what the engine answers. */
const TURN = [...(chat() as { messages: object[] }).messages, { role: 'assistant', content: 'The weight is 42 kg.' }];

// The time of day alone: timers and the monotonic clock are the real ones.
beforeEach(() => void vi.useFakeTimers({ toFake: ['Date'], now: Date.now() }));
afterEach(() => void vi.useRealTimers());

it.each([
  ['ahead', 3_650],
  ['back', -3_650],
])('a clock that goes ten years %s changes nothing that is counted or remembered', async (_, days) => {
  const { gateway } = await stand(undefined, {
    server: { keys: [{ name: 'limited', key: KEY, requestsPerMinute: 4 }], jwt: { secret: SECRET } },
    explain: { prompts: 'all' },
  });
  const now = Date.now();
  const token = (from: number) =>
    new SignJWT({ sub: 'alice' })
      .setProtectedHeader({ alg: 'HS256' })
      .setExpirationTime(new Date(from + DAY_MS))
      .sign(new TextEncoder().encode(SECRET));
  const before = await token(now);
  const ask = (bearer: string, fields: object = {}, headers: object = {}): Promise<Reply> =>
    send(gateway.url + PATH, chat(undefined, fields), { headers: { authorization: `Bearer ${bearer}`, ...headers } });
  const conversation = { 'x-warmpath-session': 'one' };
  await ask(before, {}, conversation);
  await ask(KEY);
  const predicted = Number(told(await ask(KEY))['predicted']);
  expect(predicted).toBeGreaterThan(0);

  vi.setSystemTime(now + days * DAY_MS);
  // What the engine is believed to hold is as old as it was.
  expect(Number(told(await ask(KEY))['predicted'])).toBe(predicted);
  // Of the four requests of this minute one is left.
  expect((await ask(KEY)).status).toBe(200);
  expect((await ask(KEY)).status).toBe(429);
  // Tokens are about the time of day.
  expect((await ask(before)).status).toBe(days > 0 ? 401 : 200);
  const after = await token(now + days * DAY_MS);
  const second = { messages: [...TURN, { role: 'user', content: 'And its colour?' }] };
  const turn = await ask(after, second, { ...conversation, 'x-request-id': 'after' });
  expect(turn.status).toBe(200);
  expect(turn.headers['x-warmpath']).toContain('conversation=known');
  const record = await send(`${gateway.url}/v1/requests/after`, undefined, {
    headers: { authorization: `Bearer ${after}` },
  });
  const { durationMs } = JSON.parse(record.text) as { durationMs: number };
  expect(durationMs).toBeGreaterThan(0);
  expect(durationMs).toBeLessThan(DAY_MS);

  vi.setSystemTime(now);
  expect((await ask(before)).status).toBe(200);
});
