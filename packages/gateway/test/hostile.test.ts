import { once } from 'node:events';
import { connect } from 'node:net';
import { describe, expect, test } from 'vitest';
import { chat, DOCUMENTS, type ErrorBody, labelsIn, send, stand, told } from './harness.js';

const CHAT = '/v1/chat/completions';

/** Writes these bytes and collects what comes back until the gateway closes the connection. */
async function exchangeBytes(url: string, bytes: string): Promise<string> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  let answer = '';
  socket.setEncoding('latin1').on('data', (text: string) => {
    answer += text;
  });
  // Bytes that come after the answer meet a closed connection.
  socket.on('error', () => {});
  socket.write(bytes);
  await once(socket, 'close');
  return answer;
}

function post(path: string, body: string, headers = ''): string {
  return `POST ${path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n${headers}content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
}

describe('what is not HTTP', () => {
  const both = 'content-length: 5\r\ntransfer-encoding: chunked\r\n';
  test.each([
    ['no request line', 'GARBAGE\r\n\r\n', '400', 'not HTTP'],
    [
      'two lengths',
      `POST ${CHAT} HTTP/1.1\r\nhost: localhost\r\n${both}\r\n0\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n`,
      '400',
      'not HTTP',
    ],
    [
      'a broken chunk',
      `POST ${CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n`,
      '400',
      'not HTTP',
    ],
    [
      'endless headers',
      `GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: ${'x'.repeat(20_000)}\r\n\r\n`,
      '431',
      'headers',
    ],
  ])('%s gets the error of the table and a closed connection', async (_name, bytes, status, detail) => {
    const { engine, gateway } = await stand();
    const answer = await exchangeBytes(gateway.url, bytes);
    const [head, body] = answer.split('\r\n\r\n');
    expect(head).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    expect(head).toContain('x-warmpath: error=gateway');
    const { error } = JSON.parse(body!) as ErrorBody;
    expect(error.code).toBe('WARMPATH_INVALID_REQUEST');
    expect(error.message).toContain(detail);
    expect(engine.received).toHaveLength(0);
    expect((await send(`${gateway.url}/metrics`)).text).toMatch(
      /errors_total\{code="WARMPATH_INVALID_REQUEST",source="gateway"\} 1/,
    );
  });

  test('behind a good request adds nothing to the answer that is owed', async () => {
    const { engine, gateway } = await stand(() => {});
    const answer = exchangeBytes(gateway.url, `${post(CHAT, '{"model":"m","messages":[]}')}GARBAGE\r\n\r\n`);
    expect(await answer).toBe('');
    expect(engine.received.length).toBeLessThanOrEqual(1);
  });

  test('in the middle of a stream adds nothing to the stream, and the engine is told to stop', async () => {
    const { engine, gateway } = await stand((response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write('data: {"choices":[]}\n\n');
    });
    const { hostname, port } = new URL(gateway.url);
    const socket = connect(Number(port), hostname);
    let answer = '';
    socket.on('error', () => {});
    socket.write(post(CHAT, '{"model":"m","messages":[],"stream":true}'));
    while (!answer.includes('data:')) answer += String((await once(socket, 'data'))[0]);
    socket.on('data', (bytes) => {
      answer += String(bytes);
    });
    socket.write('GARBAGE\r\n\r\n');
    await once(socket, 'close');
    await engine.until('abort', 1);
    expect(answer.match(/HTTP\/1\.1/g)).toHaveLength(1);
    expect(answer).not.toContain('WARMPATH');
  });
});

describe('paths that lead elsewhere', () => {
  test.each([
    '/v1/../metrics',
    '/v1/models/..',
    '/v1/./models',
    '/v1/%2e%2e/metrics',
    '/v1/.%2E/metrics',
    '/v1/x%2f..%2fmetrics',
    '/v1/x\\..\\metrics',
  ])('%s is nothing', async (path) => {
    const { engine, gateway } = await stand();
    const answer = await exchangeBytes(
      gateway.url,
      `GET ${path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n`,
    );
    expect(answer).toMatch(/^HTTP\/1\.1 404 /);
    expect(engine.received).toHaveLength(0);
  });

  test('dots in names and in queries are like any other character', async () => {
    const { engine, gateway } = await stand();
    const path = '/v1/models/org/model..v1.5?next=/../x';
    await send(gateway.url + path);
    expect(engine.last.path).toBe(path);
  });

  test('a broken percent escape is refused and counted, and its path is not repeated', async () => {
    const { gateway } = await stand();
    const reply = await send(`${gateway.url}/v1/%zz-private`);
    expect(reply.status).toBe(400);
    expect((JSON.parse(reply.text) as ErrorBody).error.code).toBe('WARMPATH_INVALID_REQUEST');
    expect(reply.text).not.toContain('private');
    expect((await send(`${gateway.url}/metrics`)).text).toMatch(/requests_total\{route="unmatched",status="400"\} 1/);
  });

  test('a request line with a whole URL reaches the engine as a path', async () => {
    const { engine, gateway } = await stand();
    const line = 'GET http://localhost:1/v1/models?a=1 HTTP/1.1';
    await exchangeBytes(gateway.url, `${line}\r\nhost: localhost\r\nconnection: close\r\n\r\n`);
    expect(engine.last.path).toBe('/v1/models?a=1');
  });
});

test('content parts that are none do not cost the order: they are the engine’s to judge', async () => {
  const { engine, gateway } = await stand();
  const content = [null, 5, 'text', { type: 'text', text: 7 }, { type: 'text', text: { length: 9 } }];
  const reply = await send(gateway.url + CHAT, chat(DOCUMENTS, { messages: [{ role: 'user', content }] }));
  expect(told(reply).fallback).toBeUndefined();
  const body = JSON.parse(engine.last.body) as { messages: { content: { text: string }[] }[] };
  expect(labelsIn(body.messages[0]!.content[0]!.text)).toEqual(['velka', 'orsin', 'tamir']);
  expect(body.messages[0]!.content.slice(1)).toEqual(content);
});

test('names in Connection are not forwarded, however much space stands between them', async () => {
  const { engine, gateway } = await stand();
  const headers = {
    connection: `close ,x-one,  x-two${' '.repeat(9_000)}x`,
    'x-one': '1',
    'x-two': '2',
    'x-three': '3',
  };
  await send(`${gateway.url}/v1/models`, undefined, { headers });
  expect(engine.last.headers['x-one']).toBeUndefined();
  expect(engine.last.headers['x-three']).toBe('3');
});

test('a content type that is none is refused with its name', async () => {
  const { gateway } = await stand();
  const reply = await send(gateway.url + CHAT, chat(), { headers: { 'content-type': ';;;' } });
  expect(reply.status).toBe(415);
  expect((JSON.parse(reply.text) as ErrorBody).error.param).toBe('content-type');
});
