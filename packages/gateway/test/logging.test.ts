import { type ChildProcess, spawn } from 'node:child_process';
import { hash } from 'node:crypto';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { describe, expect, it } from 'vitest';
import { FakeEngine } from './fake-engine.js';
import { chat, closing, send } from './harness.js';

const BUILT = new URL('../dist/index.js', import.meta.url).href;

/** The built gateway in a process of its own, whose standard output is its log. */
async function logged(engineUrl: string, level: string) {
  const config = { server: { port: 0 }, upstream: { url: engineUrl }, log: { level } };
  const script = `import { startGateway } from ${JSON.stringify(BUILT)};
    const gateway = await startGateway(${JSON.stringify(config)});
    process.send(gateway.url);
    process.on('disconnect', () => gateway.close());`;
  const child: ChildProcess = spawn(process.execPath, ['--input-type=module', '-e', script], {
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
  });
  const lines: string[] = [];
  const reader = createInterface({ input: child.stdout! }).on('line', (line) => lines.push(line));
  const [url] = (await once(child, 'message')) as [string];
  const stop = async () => {
    const ended = Promise.all([once(child, 'exit'), once(reader, 'close')]);
    child.disconnect();
    await ended;
    return lines;
  };
  return { url, stop };
}

describe('the log', () => {
  it('has one line per request, with counts and times, and nothing private', async () => {
    const engine = closing(await FakeEngine.start());
    const { url, stop } = await logged(engine.url, 'trace');
    const headers = { authorization: 'Bearer SECRET-key', 'x-request-id': 'request-1' };
    const secret = [{ id: 'SECRET-id', title: 'SECRET title', content: 'SECRET content' }];
    await send(`${url}/v1/chat/completions?api_key=SECRET`, chat(secret, { warmpath: { session: 'SECRET' } }), {
      headers,
    });
    await send(`${url}/v1/chat/completions`, '{"documents": [SECRET', { headers });
    await send(`${url}/v1/chat/completions`, { documents: [{ id: 'SECRET', content: 3 }] }, { headers });
    await send(`${url}/SECRET-path`, undefined, { headers });
    const lines = await stop();
    expect(lines.join('\n')).not.toContain('SECRET');
    expect(lines.join('\n')).not.toContain(hash('sha256', headers.authorization));
    const requests = lines
      .map((line) => JSON.parse(line) as Record<string, unknown>)
      .filter(({ msg }) => msg === 'request');
    expect(requests.map(({ route, status }) => [route, status])).toEqual([
      ['/v1/chat/completions', 200],
      ['/v1/chat/completions', 400],
      ['/v1/chat/completions', 400],
      ['unmatched', 404],
    ]);
    expect(requests[0]).toMatchObject({
      requestId: 'request-1',
      method: 'POST',
      documents: 1,
      documentsMoved: 0,
      promptTokens: 120,
      cachedTokens: 96,
    });
    expect(requests[1]).toMatchObject({ errorCode: 'WARMPATH_INVALID_JSON', errorSource: 'gateway' });
  });

  it('keeps to its level', async () => {
    const engine = closing(await FakeEngine.start());
    const { url, stop } = await logged(engine.url, 'error');
    await send(`${url}/v1/models`);
    expect(await stop()).toEqual([]);
  });
});
