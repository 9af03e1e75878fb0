import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { CHAT_RESPONSE, CHAT_STREAM, startStream } from './fake-engine.js';
import { chat, openRequest, send, stand } from './harness.js';

const CHAT = '/v1/chat/completions';
const EVENTS = CHAT_STREAM.split(/(?<=\n\n)/);
const [ROLE, TOKEN] = EVENTS as [string, string];
/** The longest silence before and behind the first token; shorter than that in which a client gets bytes. */
const [TOKEN_MS, IDLE_MS] = [9_000, 3_600];

/** Nothing in the stream is the gateway's own, so that all of it passes as it comes. */
const ASKS_FOR_COUNTS = { stream_options: { include_usage: true } };

/** A stream under way: what the engine writes next, and what its client has got. */
async function streaming(timeoutMs: number, path = CHAT) {
  const body = { model: 'm', max_tokens: 1, messages: [], input: 'Q', stream: true };
  let engine: ServerResponse | undefined;
  const { gateway } = await stand(
    (response) => {
      engine = startStream(response);
    },
    { upstream: { timeoutMs } },
    { apiRoute: 'native' },
  );
  const [reply] = (await once(openRequest(gateway.url + path, { ...body, ...ASKS_FOR_COUNTS }), 'response')) as [
    IncomingMessage,
  ];
  let text = '';
  reply.setEncoding('utf8').on('data', (part: string) => {
    text += part;
  });
  const ended = new Promise<void>((resolve) => reply.on('close', resolve).on('error', () => {}));
  return {
    /** Resolves when the client has got something that ends so. */
    async got(end: string): Promise<string> {
      while (!text.endsWith(end)) await once(reply, 'data');
      return text;
    },
    write: (data: string) => engine!.write(data),
    end: (data: string) => engine!.end(data),
    ended: () => ended.then(() => text),
  };
}

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
});

afterEach(() => {
  vi.useRealTimers();
});

describe('an engine that computes a long prompt', () => {
  it.each([
    ['has sent its head', ''],
    ['sends comments', ': waiting\n\n'],
    ['has sent the role', ROLE],
  ])('gets the time for a first token, though it %s', async (_, before) => {
    const stream = await streaming(TOKEN_MS);
    if (before !== '') await Promise.all([stream.write(before), stream.got(before)]);
    vi.advanceTimersByTime(TOKEN_MS - 1);
    stream.write(TOKEN);
    await stream.got(TOKEN);
    // From now on, it may be silent for a shorter time.
    vi.advanceTimersByTime(IDLE_MS - 1);
    stream.write(': still here\n\n');
    await stream.got(': still here\n\n');
    vi.advanceTimersByTime(IDLE_MS - 1);
    const rest = EVENTS.slice(2).join('');
    stream.end(rest);
    expect(await stream.ended()).toContain(rest);
  });

  it.each([
    ['comments', ': waiting\n\n', 'no token in time'],
    ['a first token', TOKEN, 'the response stalled'],
  ])('does not get more: after %s', async (_, before, message) => {
    const stream = await streaming(TOKEN_MS);
    stream.write(before);
    await stream.got(before);
    vi.advanceTimersByTime(before === TOKEN ? IDLE_MS : TOKEN_MS);
    expect(await stream.ended()).toContain(message);
  });
});

describe('a client of a silent stream', () => {
  it.each([
    [CHAT, ': keep-alive\n\n', TOKEN],
    [
      '/v1/messages',
      'event: ping\ndata: {"type":"ping"}\n\n',
      'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"x"}}\n\n',
    ],
    ['/v1/responses', ': keep-alive\n\n', 'data: {"type":"response.output_text.delta","delta":"x"}\n\n'],
  ])('gets bytes that keep its connection, at %s', async (path, keepAlive, event) => {
    const stream = await streaming(1_000_000, path);
    vi.advanceTimersByTime(10_000);
    expect(await stream.got(keepAlive)).toBe(keepAlive);
    vi.advanceTimersByTime(9_999);
    stream.write(event);
    await stream.got(event);
    vi.advanceTimersByTime(9_999);
    stream.write(event);
    expect(await stream.got(event + event)).toBe(keepAlive + event + event);
    vi.advanceTimersByTime(10_000);
    expect(await stream.got(keepAlive)).toBe(keepAlive + event + event + keepAlive);
    stream.end('');
    await stream.ended();
  });

  it('gets none in the middle of an event', async () => {
    const stream = await streaming(1_000_000);
    const [half, rest] = [TOKEN.slice(0, 60), TOKEN.slice(60)];
    stream.write(half);
    await stream.got(half);
    vi.advanceTimersByTime(30_000);
    stream.write(rest);
    expect(await stream.got(rest)).toBe(TOKEN);
    vi.advanceTimersByTime(10_000);
    expect(await stream.got(': keep-alive\n\n')).toBe(`${TOKEN}: keep-alive\n\n`);
    stream.end('');
    await stream.ended();
  });
});

describe('what stands around an answer or a request', () => {
  it('many bytes of headers reach the client; too many are an error that says so', async () => {
    vi.useRealTimers();
    let bytes = 20_000;
    const { gateway } = await stand((response) => {
      response.writeHead(200, { 'content-type': 'application/json', 'x-long': 'x'.repeat(bytes) });
      response.end(CHAT_RESPONSE);
    });
    const reply = await send(gateway.url + CHAT, chat(), { maxHeaderSize: 100_000 });
    expect([reply.status, reply.headers['x-long']?.length]).toEqual([200, bytes]);
    bytes = 80_000;
    const refused = await send(gateway.url + CHAT, chat());
    expect(refused.status).toBe(502);
    expect(JSON.parse(refused.text)).toMatchObject({
      error: { code: 'WARMPATH_UPSTREAM_ERROR', message: expect.stringContaining('65536 bytes') as string },
    });
  });

  it.each(['accept-encoding', 'Origin, Accept', 'origin'])(
    "the engine's `Vary: %s` stays beside the gateway's",
    async (vary) => {
      vi.useRealTimers();
      const { gateway } = await stand(
        (response) => response.writeHead(200, { 'content-type': 'application/json', vary }).end(CHAT_RESPONSE),
        { server: { cors: ['https://app.example'] } },
      );
      const { headers } = await send(gateway.url + CHAT, chat(), { headers: { origin: 'https://app.example' } });
      const names = String(headers['vary']).toLowerCase().split(', ');
      expect([...new Set(names)].sort()).toEqual([...new Set([...vary.toLowerCase().split(', '), 'origin'])].sort());
      expect(names).toHaveLength(new Set(names).size);
    },
  );

  it.each([CHAT, '/v1/messages', '/v1/responses', '/v1/completions'])(
    'a byte order mark before the body of %s is no part of it',
    async (path) => {
      vi.useRealTimers();
      const { engine, gateway } = await stand(undefined, {}, { apiRoute: 'native' });
      const body = JSON.stringify({ model: 'm', max_tokens: 1, messages: [], input: 'Q', prompt: 'Q' });
      const reply = await send(gateway.url + path, `\uFEFF${body}`);
      expect([reply.status, engine.last.body]).toEqual([200, body]);
    },
  );

  it.each(['/v1/messages', '/v1/responses'])(
    'an error in the place of an answer reaches the client of %s whole',
    async (path) => {
      vi.useRealTimers();
      const error = { message: 'Slow down.', type: 'rate_limit_error', code: 429 };
      const { gateway } = await stand(
        (response) => response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ error })),
        {},
        { apiRoute: 'translate' },
      );
      const reply = await send(gateway.url + path, { model: 'm', max_tokens: 1, messages: [], input: 'Q' });
      expect(reply.status).toBe(429);
      expect(JSON.parse(reply.text)).toMatchObject({ error });
      const metrics = (await send(`${gateway.url}/metrics`)).text;
      expect(metrics).toMatch(/warmpath_errors_total\{code="WARMPATH_UPSTREAM_ERROR"[^}]*\} 1/);
    },
  );

  it('a stream that ends without its end is counted as cut, and its bytes stay', async () => {
    vi.useRealTimers();
    const { gateway } = await stand((response) => startStream(response).end(ROLE + TOKEN));
    const reply = await send(gateway.url + CHAT, chat(undefined, { stream: true }));
    expect(reply).toMatchObject({ text: ROLE + TOKEN, broken: false });
    const metrics = (await send(`${gateway.url}/metrics`)).text;
    expect(metrics).toMatch(/warmpath_errors_total\{code="WARMPATH_UPSTREAM_CUT"[^}]*\} 1/);
  });
});
