import { type ChildProcess, spawn } from 'node:child_process';
import { hash } from 'node:crypto';
import { once } from 'node:events';
import { open } from 'node:fs/promises';
import { Agent } from 'node:http';
import { createInterface } from 'node:readline';
import { Readable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { isFull } from '../../../test/suite.js';
import { FakeEngine } from './fake-engine.js';
import { chat, closing, metricOf, send } from './harness.js';

const BUILT = new URL('../dist/index.js', import.meta.url).href;

/** The built gateway in a process of its own, whose standard output is its log: a pipe, or where it is told to go. */
async function logged(engineUrl: string, level: string, output: 'pipe' | number = 'pipe') {
  const config = { server: { port: 0 }, upstream: { url: engineUrl }, log: { level } };
  const script = `import { startGateway } from ${JSON.stringify(BUILT)};
    const gateway = await startGateway(${JSON.stringify(config)});
    process.send(gateway.url);
    process.on('disconnect', () => gateway.close());`;
  const child: ChildProcess = spawn(process.execPath, ['--input-type=module', '-e', script], {
    stdio: ['ignore', output, 'inherit', 'ipc'],
  });
  const lines: string[] = [];
  const reader = createInterface({ input: child.stdout ?? Readable.from([]) }).on('line', (line) => lines.push(line));
  const [url] = (await once(child, 'message')) as [string];
  const stop = async () => {
    const ended = Promise.all([once(child, 'exit'), once(reader, 'close')]);
    child.disconnect();
    await ended;
    return lines;
  };
  return { url, stop, child };
}

/** Asks until no more lines may wait, all of which are answered. */
async function untilLinesAreLost(url: string): Promise<void> {
  const agent = new Agent({ keepAlive: true, maxSockets: 8 });
  const options = { agent, headers: { 'x-request-id': 'r'.repeat(100) } };
  while ((await metricOf({ url }, 'warmpath_log_lines_lost_total')) === 0) {
    const replies = await Promise.all(Array.from({ length: 500 }, () => send(`${url}/nothing`, undefined, options)));
    expect(new Set(replies.map(({ status }) => status))).toEqual(new Set([404]));
  }
  agent.destroy();
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

  it.skipIf(process.platform !== 'linux')('costs no answer and no orderly end where its disk is full', async () => {
    const engine = closing(await FakeEngine.start());
    const full = closing(await open('/dev/full', 'w'));
    const { url, child } = await logged(engine.url, 'trace', full.fd);
    await untilLinesAreLost(url);
    expect((await send(`${url}/v1/chat/completions`, chat())).status).toBe(200);
    const ended = once(child, 'exit');
    child.disconnect();
    expect(await ended).toEqual([0, null]);
  });

  it.runIf(isFull)('does not keep its process from ending where its reader has stalled', async () => {
    const engine = closing(await FakeEngine.start());
    const { url, child } = await logged(engine.url, 'trace');
    child.stdout!.pause();
    await untilLinesAreLost(url);
    const ended = once(child, 'exit');
    child.disconnect();
    expect(await ended).toEqual([0, null]);
  });
});
