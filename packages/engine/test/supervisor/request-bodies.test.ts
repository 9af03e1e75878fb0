import { once } from 'node:events';
import { createServer, type IncomingMessage, request as sendRequest } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import { heldBytes } from '../../../../test/held-bytes.js';
import { isFull } from '../../../../test/suite.js';
import { RequestBodies } from '../../src/supervisor/request-bodies.js';

const LIMIT = 1_000_000;
const closers: (() => void)[] = [];
afterEach(() => {
  for (const close of closers.splice(0)) close();
});

/** A server that receives bodies and answers with their length, their beginning and what it holds of them. */
async function receiver(onData: (received: number) => void = () => {}) {
  const bodies = new RequestBodies(() => LIMIT);
  let received = 0;
  const server = createServer((request, response) => {
    request.on('data', (part: Buffer) => {
      received += part.length;
      onData(received);
    });
    const done = bodies.hold(request, async (body) => {
      response.end(`${body.length} ${body.toString().slice(0, 4)} ${body.buffer.byteLength}`);
    });
    done.catch(() => response.writeHead(413).end());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  closers.push(() => {
    server.closeAllConnections();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, refused: bodies.refused };
}

async function send(port: number, chunks: readonly string[], headers: Record<string, string | number> = {}) {
  const request = sendRequest({ port, method: 'POST', headers });
  for (const chunk of chunks) request.write(chunk);
  request.end();
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  const parts: Buffer[] = [];
  for await (const part of response) parts.push(part as Buffer);
  return { status: response.statusCode, text: Buffer.concat(parts).toString() };
}

it('hands a body on as it came, in memory of its own length where that was announced', async () => {
  const { port, refused } = await receiver();
  expect((await send(port, ['ab', 'cd'], { 'content-length': 4 })).text).toBe('4 abcd 4');
  expect((await send(port, ['ab', 'cd'])).text).toMatch(/^4 abcd /);
  expect((await send(port, [])).text).toMatch(/^0 /);
  const large = 'x'.repeat(300_000);
  expect((await send(port, [large, large, large], { 'content-length': 900_000 })).text).toBe('900000 xxxx 900000');
  expect((await send(port, [large, large, large])).text).toMatch(/^900000 xxxx /);
  expect((await send(port, [large, large, large, large])).status).toBe(413);
  expect(refused).toEqual({ too_large: 1, no_room: 0 });
});

it.runIf(isFull)('holds no more of a body than it counts, however small its chunks are', async () => {
  const count = 200_000;
  let tellAll = () => {};
  const all = new Promise<void>((resolve) => {
    tellAll = resolve;
  });
  const { port } = await receiver((received) => received === count && tellAll());
  const socket = connect(port, '127.0.0.1');
  closers.push(() => socket.destroy());
  await once(socket, 'connect');
  const before = await heldBytes();
  socket.write('POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n');
  for (let sent = 0; sent < count; sent += 1_000) socket.write('1\r\nx\r\n'.repeat(1_000));
  await all;
  expect((await heldBytes()) - before).toBeLessThan(4_000_000);
});
