import { once } from 'node:events';
import { createServer } from 'node:net';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import { CHAT_RESPONSE, CHAT_STREAM, startStream } from './fake-engine.js';
import { COUNTED_STREAM, chat, closing, errorOf, gatewayAt, openRequest, send, stand, told } from './harness.js';

const PATH = '/v1/chat/completions';

describe('relay', () => {
  it('sends a stream on byte for byte, wherever the engine cuts it, and learns its usage', async () => {
    const bytes = Buffer.from(CHAT_STREAM);
    let places: number[] = [];
    const { gateway } = await stand((response) => {
      startStream(response);
      // Each piece in a packet of its own, so that the gateway sees the cut.
      const next = (piece: number) => {
        const part = bytes.subarray(places[piece], places[piece + 1]);
        if (piece === places.length - 2) response.end(part);
        else response.write(part, () => setImmediate(next, piece + 1));
      };
      next(0);
    });
    await fc.assert(
      fc.asyncProperty(fc.array(fc.nat(bytes.length), { maxLength: 12 }), async (cuts) => {
        places = [0, ...cuts.sort((a, b) => a - b), bytes.length];
        const reply = await send(gateway.url + PATH, chat(undefined, COUNTED_STREAM));
        expect(reply.body.equals(bytes)).toBe(true);
        expect(reply.broken).toBe(false);
      }),
      { seed: 3, numRuns: runs(40) },
    );
    const metrics = (await send(`${gateway.url}/metrics`)).text;
    expect(metrics).toContain(`warmpath_prompt_tokens_total ${runs(40) * 120}`);
    expect(metrics).toContain(`warmpath_cached_tokens_total ${runs(40) * 96}`);
  });

  it('keeps status, headers and body of the engine, hop-by-hop headers apart', async () => {
    const { gateway } = await stand((response) => {
      response.writeHead(207, {
        'content-type': 'application/json',
        'x-engine': 'yes',
        'set-cookie': ['a=1', 'b=2'],
        'keep-alive': 'timeout=3',
        connection: 'keep-alive, x-secret-hop',
        'x-secret-hop': '1',
      });
      response.end(CHAT_RESPONSE);
    });
    const reply = await send(gateway.url + PATH, chat());
    expect(reply.status).toBe(207);
    expect(reply.text).toBe(CHAT_RESPONSE);
    expect(reply.headers).toMatchObject({ 'x-engine': 'yes', 'set-cookie': ['a=1', 'b=2'] });
    expect(reply.headers).not.toHaveProperty('x-secret-hop');
    expect(reply.headers['keep-alive']).not.toBe('timeout=3');
  });

  it.each([400, 404, 429, 500, 503])('keeps an error %i of the engine and says who failed', async (status) => {
    const body = `{"error":{"message":"engine says ${status}","type":"x","param":null,"code":null}}`;
    const { gateway } = await stand((response) => {
      response.writeHead(status, { 'content-type': 'application/json', 'retry-after': '7' });
      response.end(body);
    });
    const reply = await send(gateway.url + PATH, chat());
    expect(reply.status).toBe(status);
    expect(reply.text).toBe(body);
    expect(told(reply).error).toBe('upstream');
    expect(reply.headers['retry-after']).toBe('7');
  });

  it('hands a compressed response on as it is', async () => {
    const compressed = gzipSync(CHAT_RESPONSE);
    const { engine, gateway } = await stand((response) => {
      response.writeHead(200, { 'content-type': 'application/json', 'content-encoding': 'gzip' });
      response.end(compressed);
    });
    const options = { headers: { 'accept-encoding': 'gzip' } };
    const passed = await send(`${gateway.url}/v1/embeddings`, { model: 'm', input: 'x' }, options);
    expect(passed.body.equals(compressed)).toBe(true);
    expect(passed.headers['content-encoding']).toBe('gzip');
    expect(engine.last.headers['accept-encoding']).toBe('gzip');
    // The counts of prompts are read.
    const arranged = await send(gateway.url + PATH, chat(), options);
    expect(arranged.body.equals(compressed)).toBe(true);
    expect(engine.last.headers['accept-encoding']).toBe('identity');
  });

  it('waits for a slow reader instead of buffering, and loses nothing', async () => {
    const chunk = Buffer.alloc(1_048_576, 'x');
    const chunks = 48;
    let written = 0;
    const { gateway } = await stand((response) => {
      response.writeHead(200, { 'content-type': 'application/octet-stream' });
      const fill = () => {
        while (written < chunks) {
          written++;
          if (!response.write(chunk)) {
            response.once('drain', fill);
            return;
          }
        }
        response.end();
      };
      fill();
    });
    const request = openRequest(gateway.url + PATH, { messages: [] });
    const [response] = (await once(request, 'response')) as [import('node:http').IncomingMessage];
    // Nobody reads: what is under way fills the sockets' buffers and then stands still, however often others are
    // served.
    for (let i = 0; i < 300 && written < chunks; i++) await send(`${gateway.url}/healthz`);
    expect(written).toBeLessThan(chunks);
    let bytes = 0;
    for await (const part of response) bytes += (part as Buffer).length;
    expect(bytes).toBe(chunks * chunk.length);
  });

  it('ends a cut stream with an error event and a broken connection', async () => {
    const start = CHAT_STREAM.slice(0, CHAT_STREAM.indexOf('crab') + 400);
    const { engine, gateway } = await stand((response) => {
      startStream(response);
      response.write(start, () => response.destroy());
    });
    const reply = await send(gateway.url + PATH, chat(undefined, { stream: true }));
    expect(reply.status).toBe(200);
    expect(reply.broken).toBe(true);
    expect(reply.text.startsWith(start)).toBe(true);
    const event = /\n\nevent: error\ndata: (.*)\n\n$/.exec(reply.text)?.[1] ?? '';
    expect(JSON.parse(event)).toMatchObject({ error: { code: 'WARMPATH_UPSTREAM_CUT', type: 'upstream_error' } });
    expect(engine.received).toHaveLength(1);
  });

  it('breaks the connection when a response in one piece is cut', async () => {
    const { gateway } = await stand((response) => {
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': CHAT_RESPONSE.length });
      response.write(CHAT_RESPONSE.slice(0, 50), () => response.destroy());
    });
    const reply = await send(gateway.url + PATH, chat());
    expect(reply.broken).toBe(true);
    expect(reply.text).toBe(CHAT_RESPONSE.slice(0, 50));
  });

  it('answers 502 when the engine is down, after one more try', async () => {
    const gateway = closing(await gatewayAt('http://127.0.0.1:1'));
    const reply = await send(gateway.url + PATH, chat());
    expect(reply.status).toBe(502);
    expect(errorOf(reply)).toMatchObject({ code: 'WARMPATH_UPSTREAM_UNREACHABLE', type: 'upstream_error' });
    // What is wrong and what to do; where the engine is, is the operator's own.
    expect(errorOf(reply).message).toMatch(/nothing listens at its address .*`warmpath doctor`/);
    expect(told(reply).error).toBe('upstream');
    expect((await send(`${gateway.url}/metrics`)).text).toContain('warmpath_upstream_retries_total 1');
  });

  it('does not try again when the request may have reached the engine', async () => {
    let connections = 0;
    const server = createServer((socket) => {
      connections++;
      socket.once('data', () => socket.resetAndDestroy());
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as import('node:net').AddressInfo;
    const gateway = closing(await gatewayAt(`http://127.0.0.1:${port}`));
    const reply = await send(gateway.url + PATH, chat());
    expect(reply.status).toBe(502);
    expect(errorOf(reply).code).toBe('WARMPATH_UPSTREAM_CUT');
    expect(connections).toBe(1);
    server.close();
  });

  it('answers 504 when the engine sends no headers in time', async () => {
    const { engine, gateway } = await stand(() => {}, { upstream: { timeoutMs: 50 } });
    const reply = await send(gateway.url + PATH, chat());
    expect(reply.status).toBe(504);
    expect(errorOf(reply)).toMatchObject({
      code: 'WARMPATH_UPSTREAM_TIMEOUT',
      message: expect.stringContaining('`upstream.timeoutMs`'),
    });
    await engine.until('abort', 1);
  });

  it.each([
    ['stalls', 60_000, 'the response stalled'],
    ['takes too long as a whole', 10, 'the exchange took longer than 1200 ms'],
  ])('ends a stream that %s with an error event', async (_, pauseMs, message) => {
    const { engine, gateway } = await stand(
      (response) => {
        startStream(response);
        response.write(CHAT_STREAM.slice(0, CHAT_STREAM.indexOf('42')));
        const writing = setInterval(() => response.write(': \n\n'), pauseMs);
        response.on('close', () => clearInterval(writing));
      },
      { upstream: { timeoutMs: 200 } },
    );
    const reply = await send(gateway.url + PATH, chat(undefined, { stream: true }));
    expect(reply.broken).toBe(true);
    expect(reply.text).toContain('event: error');
    expect(reply.text).toContain(message);
    await engine.until('abort', 1);
  });

  it('serves others while one engine connection breaks', async () => {
    const { gateway } = await stand((response, { body }) => {
      if (body.includes('break me')) response.destroy();
      else response.writeHead(200, { 'content-type': 'application/json' }).end(CHAT_RESPONSE);
    });
    const bodies = Array.from({ length: 30 }, (_, i) => {
      if (i % 3 === 1) return '{"documents": [{}], "messages": []}';
      return chat(undefined, i % 3 === 2 ? { user: 'break me' } : {});
    });
    const replies = await Promise.all(bodies.map((body) => send(gateway.url + PATH, body)));
    expect(replies.map(({ status }) => status)).toEqual(bodies.map((_, i) => [200, 400, 502][i % 3]));
  });
});
