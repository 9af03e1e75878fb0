import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { describe, expect, it } from 'vitest';
import { OpenRequests } from '../src/server.js';
import { startStream } from './fake-engine.js';
import { chat, memoryOf, metricOf, send, stand, untilMetric } from './harness.js';

const PATH = '/v1/chat/completions';
const CHUNK = Buffer.from(`data: {"choices":[{"delta":{"content":"${'x'.repeat(65_536)}"}}]}\n\n`);

/** Writes as fast as it is taken, without an end. */
function pour(response: ServerResponse): void {
  while (!response.destroyed && response.write(CHUNK));
  response.once('drain', () => pour(response));
}

describe('a client that asks and takes nothing', () => {
  it('gets no place for ever', async () => {
    const { engine, gateway } = await stand((response) => pour(startStream(response)), {
      upstream: { timeoutMs: 625 },
    });
    const { hostname, port } = new URL(gateway.url);
    const socket = connect(Number(port), hostname);
    socket.on('error', () => {});
    socket.pause();
    const body = JSON.stringify(chat(undefined, { stream: true }));
    socket.write(
      `POST ${PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
    );
    await engine.until('abort', 1);
    await untilMetric(gateway, 'warmpath_requests_in_flight', 1);
    await untilMetric(gateway, 'warmpath_upstream_in_flight', 0);
    await untilMetric(gateway, 'warmpath_client_aborts_total', 1);
    await untilMetric(gateway, 'warmpath_stalled_readers_total', 1);
    expect((await memoryOf(gateway))['bodies']).toBe(0);
    socket.destroy();
    // Whoever reads goes on, for many times as long.
    engine.answer = (response) => {
      startStream(response);
      let sent = 0;
      const timer = setInterval(() => {
        if (++sent < 10) response.write(CHUNK);
        else {
          clearInterval(timer);
          response.end('data: [DONE]\n\n');
        }
      }, 60);
    };
    const reply = await send(gateway.url + PATH, chat(undefined, { stream: true }));
    expect([reply.status, reply.broken, reply.text.endsWith('[DONE]\n\n')]).toEqual([200, false, true]);
    expect(await metricOf(gateway, 'warmpath_stalled_readers_total')).toBe(1);
  });

  it('does not keep an answer that is complete', async () => {
    let stalled = 0;
    const open = new OpenRequests(
      () => 50,
      () => stalled++,
    );
    const server = createServer((request, response) => {
      const number = open.began(request, response);
      response.on('close', () => open.ended(number));
      response.end(Buffer.alloc(32 * 2 ** 20));
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    try {
      const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
      socket.on('error', () => {});
      socket.pause();
      socket.write('GET / HTTP/1.1\r\nhost: localhost\r\n\r\n');
      const [, response] = (await once(server, 'request')) as [unknown, ServerResponse];
      await once(response, 'close');
      // Ended by the server: the client has most of it still to come.
      expect(socket.bytesRead).toBeLessThan(16 * 2 ** 20);
      expect(stalled).toBe(1);
      socket.destroy();
    } finally {
      server.close();
    }
  });
});
