import { once } from 'node:events';
import { createServer } from 'node:http';
import { createServer as createTcpServer } from 'node:net';
import { describe, expect, it } from 'vitest';
import { freePort } from '../../../test/free-port.js';
import type { EngineReport } from '../src/index.js';
import { startGateway } from '../src/start-gateway.js';
import { type Answer, FakeEngine } from './fake-engine.js';
import { chat, closing, errorOf, send } from './harness.js';

const json =
  (status: number, body: unknown): Answer =>
  (response) =>
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
const MODELS = json(200, { object: 'list', data: [{ id: 'm' }] });

/** A gateway in front of that address, and what it hears of it. */
async function watching(url: string, upstream: object = {}) {
  const reports: EngineReport[] = [];
  let heard = (): void => {};
  const gateway = closing(
    await startGateway(
      { server: { port: 0 }, upstream: { url, ...upstream }, log: { level: 'silent' } },
      {
        onEngine: (report) => {
          reports.push(report);
          heard();
        },
      },
    ),
  );
  const until = async (count: number): Promise<EngineReport> => {
    while (reports.length < count) {
      await new Promise<void>((resolve) => {
        heard = resolve;
      });
    }
    return reports[count - 1]!;
  };
  return { gateway, reports, until };
}

describe('what is said of an engine at the start', () => {
  it.each([
    ['its models', MODELS, { state: 'up', models: ['m'], problem: undefined }],
    ['a key is wanted', json(401, {}), { state: 'wants-key', remedy: expect.stringContaining('--key-env') }],
    ['a key is wrong', json(403, {}), { state: 'wants-key', remedy: expect.stringContaining('upstream.apiKey') }],
    ['another path', json(404, {}), { state: 'not-an-engine', problem: expect.stringContaining('/v1/models') }],
    [
      'a page',
      ((r) => r.end('<!doctype html><p>Hi')) as Answer,
      { state: 'not-an-engine', problem: expect.stringContaining('HTML') },
    ],
    [
      'other JSON',
      json(200, { ok: true }),
      { state: 'not-an-engine', problem: expect.stringContaining('no list of models') },
    ],
    ['a redirect', json(302, {}), { state: 'not-an-engine', problem: expect.stringContaining('redirects') }],
    ['not ready', json(503, {}), { state: 'down', problem: expect.stringContaining('503') }],
    ['no answer', (() => {}) as Answer, { state: 'down', problem: expect.stringContaining('upstream.timeoutMs') }],
  ])('%s', async (name, answer, expected) => {
    const engine = closing(await FakeEngine.start(answer));
    const { until } = await watching(`${engine.url}/v1`, name === 'no answer' ? { timeoutMs: 300 } : {});
    expect(await until(1)).toMatchObject({ url: engine.url, ...expected });
  });

  it('names the address without its password, and what is no HTTP', async () => {
    const server = createTcpServer((socket) => socket.on('error', () => {}).end('SSH-2.0-x\r\n'));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as { port: number };
    const { until } = await watching(`http://user:hidden@127.0.0.1:${port}`);
    const report = await until(1);
    expect(report).toMatchObject({ state: 'down', url: `http://127.0.0.1:${port}` });
    expect(JSON.stringify(report)).not.toContain('hidden');
    server.close();
  });
});

describe('an engine that comes later', () => {
  it('is asked for again and again, and told of when something changed', async () => {
    let asked = 0;
    const engine = closing(
      await FakeEngine.start((response, request) => (++asked < 3 ? json(503, {}) : MODELS)(response, request)),
    );
    const { reports, until } = await watching(engine.url);
    await until(2);
    expect(reports.map(({ state }) => state)).toEqual(['down', 'up']);
    expect(engine.received).toHaveLength(3);
  });

  it('is waited for, told of when it is there, and again when a request finds it gone', async () => {
    const port = await freePort();
    const { gateway, reports, until } = await watching(`http://127.0.0.1:${port}`);
    expect(await until(1)).toMatchObject({ state: 'down', problem: expect.stringContaining('ECONNREFUSED') });
    // What clients read names no address.
    const refused = await send(`${gateway.url}/v1/chat/completions`, chat());
    expect(refused.status).toBe(502);
    expect(errorOf(refused).message).toContain('nothing listens at its address (ECONNREFUSED)');
    expect(refused.text).not.toMatch(new RegExp(`127\\.0\\.0\\.1|:${port}`));
    let engine = createServer((_, response) => response.end('{"data": []}')).listen(port, '127.0.0.1');
    expect(await until(2)).toMatchObject({ state: 'up' });
    engine.closeAllConnections();
    engine.close();
    await once(engine, 'close');
    await send(`${gateway.url}/v1/chat/completions`, chat());
    expect(await until(3)).toMatchObject({ state: 'down' });
    engine = createServer((_, response) => response.end('{"data": []}')).listen(port, '127.0.0.1');
    expect(await until(4)).toMatchObject({ state: 'up' });
    expect(reports).toHaveLength(4);
    engine.closeAllConnections();
    engine.close();
  });
});
