import { fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { FakeEngine } from './fake-engine.js';
import { closing, send } from './harness.js';

const PROCESS = join(import.meta.dirname, '../bench/gateway-process.js');
const PROMPTS = 4_000;
const AT_ONCE = 32;

it('young bodies are no reason to collect all of the heap, however little V8 would let it grow', async () => {
  const engine: FakeEngine = closing(
    await FakeEngine.start((response) => {
      engine.received.length = 0;
      response.end('{"choices":[]}');
    }),
  );
  const child = fork(PROCESS, [engine.url], {
    execArgv: ['--trace-gc', '--heap-growing-percent=10'],
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
  });
  const ended = once(child, 'close');
  const end = async () => {
    child.kill();
    await ended;
  };
  closing({ close: end });
  let traced = '';
  child.stdout!.setEncoding('utf8').on('data', (text: string) => {
    traced += text;
  });
  const [{ url }] = (await once(child, 'message')) as [{ readonly url: string }];
  const body = JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'word '.repeat(6_000) }] });
  let sent = 0;
  const client = async () => {
    while (sent++ < PROMPTS) await send(`${url}/v1/chat/completions`, body);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, client));
  await end();
  const count = (kind: string) => traced.split(kind).length - 1;
  // 120 MB of bodies went through; the old generation grows by a fraction of that.
  expect(count('Scavenge')).toBeGreaterThan(10);
  expect(count('Mark-Compact')).toBeLessThan(count('Scavenge'));
}, 120_000);
