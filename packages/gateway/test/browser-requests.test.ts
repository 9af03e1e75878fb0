import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { chat, errorOf, type StandConfig, send, stand } from './harness.js';

type Server = NonNullable<StandConfig['server']>;

const PATHS = ['/v1/models', '/v1/collections', '/v1/requests/x', '/metrics', '/ui', '/ui/tree', '/readyz', '/unknown'];

async function standing(server: Server = {}) {
  const folder = await mkdtemp(join(tmpdir(), 'warmpath-origin-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const { engine, gateway } = await stand(undefined, { server, collections: { folder } });
  const { port } = new URL(gateway.url);
  const base = `http://127.0.0.1:${port}`;
  const ask = async (path: string, headers: Record<string, string>, body?: string | object) => {
    const reply = await send(base + path, body, { headers });
    return reply.status < 400 ? reply.status : errorOf(reply).code;
  };
  return { engine, base, port, ask };
}

/** The status line of an answer to these very bytes. */
async function raw(port: string, bytes: string): Promise<string> {
  const socket = connect(Number(port), '127.0.0.1');
  let answer = '';
  socket.setEncoding('latin1').on('data', (text: string) => {
    answer += text;
  });
  socket.write(bytes);
  await once(socket, 'close');
  return answer.split('\r\n', 1)[0]!.slice('HTTP/1.1 '.length);
}

describe('the Host of a request to a gateway without keys', () => {
  it.each([
    ...['127.0.0.1', 'localhost', 'LOCALHOST', 'localhost.', '127.0.0.2', '[::1]', '[0:0:0:0:0:0:0:1]', '127.1'],
  ])('is served if it is a name of this machine: %s', async (host) => {
    const { port, ask } = await standing();
    expect(await ask('/v1/collections', { host })).toBe(200);
    expect(await ask('/v1/collections', { host: `${host}:${port}` })).toBe(200);
    expect(await ask('/v1/collections', { host: `${host}:1` })).toBe(200);
  });

  it.each([
    ...['evil.example', 'evil.example:80', '127.0.0.1.evil.example', 'localhost.evil.example', '127.evil.example'],
    ...['192.0.2.1', '0.0.0.0', '[::2]', '127.0.0.1@evil.example', 'evil.example/127.0.0.1', 'warmpath'],
    ...['127.0.0.1, evil.example', '127.0.0.1:80:80', 'evil.example#@127.0.0.1', 'x\\127.0.0.1'],
  ])('is refused on every path otherwise: %s', async (host) => {
    const { engine, ask } = await standing();
    const answers = await Promise.all(PATHS.map((path) => ask(path, { host })));
    expect(new Set(answers)).toEqual(new Set(['WARMPATH_HOST_NOT_ALLOWED']));
    expect(await ask('/v1/chat/completions', { host }, chat())).toBe('WARMPATH_HOST_NOT_ALLOWED');
    expect(engine.received).toHaveLength(0);
  });

  it('is the whole URL of the request line where there is one, and stands there once', async () => {
    const { port } = await standing();
    const asked = (line: string, ...headers: string[]) => raw(port, [line, ...headers, '', ''].join('\r\n'));
    const close = 'connection: close';
    expect(await asked('GET http://evil.example/v1/collections HTTP/1.1', 'host: localhost', close)).toMatch(/^403/);
    expect(await asked('GET http://localhost/v1/collections HTTP/1.1', 'host: evil.example', close)).toMatch(/^403/);
    expect(await asked('GET http://localhost/v1/collections HTTP/1.1', 'host: localhost', close)).toMatch(/^200/);
    expect(await asked('GET /v1/collections HTTP/1.1', 'host: localhost', 'host: evil.example', close)).toMatch(/^400/);
    expect(await asked('GET /v1/collections HTTP/1.1', 'host: localhost', 'Host: localhost', close)).toMatch(/^400/);
    expect(await asked('GET /v1/collections HTTP/1.0')).toMatch(/^403/);
    expect(await asked('GET /v1/collections HTTP/1.1', close)).toMatch(/^400/);
  });

  it('may be any name outside of the public DNS on a host that is not loopback', async () => {
    const { ask } = await standing({ host: '0.0.0.0' });
    for (const host of ['warmpath:8080', '192.0.2.1', 'warmpath.default.svc.cluster.local', 'host.docker.internal'])
      expect([host, await ask('/healthz', { host })]).toEqual([host, 200]);
    expect(await ask('/healthz', { host: 'evil.example' })).toBe('WARMPATH_HOST_NOT_ALLOWED');
  });

  it.each(<Server[]>[
    { open: true },
    { host: '0.0.0.0', open: true },
    { keys: [{ name: 'alice', key: 'alice-has-this-key' }] },
    { trustedHeaders: { tenant: 'x-tenant' } },
  ])('may be any name where the operator says who may ask: %j', async (server) => {
    const { ask } = await standing(server);
    const headers = { host: 'gateway.example', authorization: 'Bearer alice-has-this-key', 'x-tenant': 'alice' };
    expect(await ask('/v1/collections', headers)).toBe(200);
  });
});

describe('a web page of another origin', () => {
  const ELSEWHERE = ['https://evil.example', 'null', 'http://localhost:3000', 'http://127.0.0.1', 'file://', 'x', ''];

  it.each(<Server[]>[{}, { open: true }, { host: '0.0.0.0', open: true }, { cors: ['https://app.example'] }])(
    'neither reads nor writes: %j',
    async (server) => {
      const { engine, ask } = await standing(server);
      const pages = [
        ...ELSEWHERE.map((origin) => ({ origin })),
        { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'no-cors', 'sec-fetch-dest': 'script' },
        { 'sec-fetch-site': 'same-site', 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'iframe' },
      ] as Record<string, string>[];
      for (const page of pages) {
        for (const path of PATHS) expect([page, path, await ask(path, page)]).toEqual([page, path, REFUSED]);
        expect(await ask('/v1/chat/completions', page, chat())).toBe(REFUSED);
        const planted = { ...page, 'content-type': 'text/plain' };
        expect(await ask('/v1/collections/c/documents?id=x', planted, 'planted')).toBe(REFUSED);
      }
      expect(engine.received).toHaveLength(0);
      expect(await ask('/v1/collections', {})).toBe(200);
      const cross = { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'document' };
      expect(await ask('/v1/collections', cross)).toBe(REFUSED);
      // A link leads to the page, which holds no data.
      expect(await ask('/ui', cross)).not.toBe(REFUSED);
    },
  );

  it('reads and writes where `server.cors` lists its origin', async () => {
    for (const cors of [['https://app.example'], ['*']]) {
      const { ask } = await standing({ cors });
      const page = { origin: 'https://app.example', 'sec-fetch-site': 'cross-site' };
      expect(await ask('/v1/collections', page)).toBe(200);
      expect(await ask('/v1/chat/completions', page, chat())).toBe(200);
    }
  });

  it("is told from the gateway's own page", async () => {
    const { base, ask } = await standing();
    expect(await ask('/v1/collections', { origin: base })).toBe(200);
    expect(await ask('/v1/collections', { origin: 'http://localhost', host: 'localhost:80' })).toBe(200);
    expect(await ask('/v1/collections', { 'sec-fetch-site': 'same-origin' })).toBe(200);
    expect(await ask('/v1/collections', { 'sec-fetch-site': 'none' })).toBe(200);
  });
});

const REFUSED = 'WARMPATH_ORIGIN_NOT_ALLOWED';

describe('a body', () => {
  const SIMPLE = ['text/plain', 'text/plain;charset=UTF-8', 'application/x-www-form-urlencoded', ''];
  const NOT_JSON = [...SIMPLE, 'multipart/form-data; boundary=x', 'text/json', 'application/json; charset=utf-16'];

  it.each(['chat/completions', 'completions', 'messages', 'responses', 'arrange', 'warmup', 'observe', 'plan'])(
    'is read as JSON only: /v1/%s',
    async (path) => {
      const { engine, ask } = await standing();
      for (const type of NOT_JSON) {
        const code = await ask(`/v1/${path}`, { 'content-type': type }, chat());
        expect([type, code]).toEqual([type, 'WARMPATH_MEDIA_TYPE']);
      }
      expect(engine.received).toHaveLength(0);
    },
  );

  it('of documents is JSON, JSON lines, a file or a form with files', async () => {
    const { ask } = await standing();
    const put = (type: string, query = '') =>
      ask(`/v1/collections/c/documents${query}`, { 'content-type': type }, { id: 'a', content: 'A text.' });
    for (const type of ['application/x-www-form-urlencoded', '', 'text/json'])
      expect([type, await put(type)]).toEqual([type, 'WARMPATH_MEDIA_TYPE']);
    expect(await put('multipart/form-data; boundary=x')).toBe('WARMPATH_INVALID_REQUEST');
    expect(await put('application/x-ndjson')).toBe(200);
    expect(await put('Text/Plain; charset=utf-8', '?id=b')).toBe(200);
  });

  it('for the engine is anything but what a page sends to another site without asking', async () => {
    const { engine, ask } = await standing();
    for (const type of SIMPLE) {
      expect(await ask('/v1/embeddings', { 'content-type': type }, { input: 'x' })).toBe('WARMPATH_MEDIA_TYPE');
      expect(await ask('/tokenize', { 'content-type': type }, { input: 'x' })).toBe('WARMPATH_MEDIA_TYPE');
    }
    expect(engine.received).toHaveLength(0);
    expect(await ask('/v1/audio/transcriptions', { 'content-type': 'multipart/form-data; boundary=x' }, 'x')).toBe(200);
    expect(await ask('/v1/embeddings', {}, { input: 'x' })).toBe(200);
  });

  it('is refused with the header that is missing', async () => {
    const { base } = await standing();
    const headers = { 'content-type': 'application/x-www-form-urlencoded' };
    const reply = await send(`${base}/v1/chat/completions`, '{}', { headers });
    expect(reply.status).toBe(415);
    expect(errorOf(reply).message).toContain('`content-type: application/json`');
  });
});
