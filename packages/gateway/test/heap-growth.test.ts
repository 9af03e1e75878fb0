import { fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { HeapGrowth } from '../src/operate/heap-growth.js';
import { FakeEngine } from './fake-engine.js';
import { closing, send } from './harness.js';

const PROCESS = join(import.meta.dirname, '../bench/gateway-process.js');

/** A gateway in a process of its own that says what V8 collects. */
async function start(...flags: readonly string[]) {
  const engine: FakeEngine = closing(
    await FakeEngine.start((response) => {
      engine.received.length = 0;
      response.end('{"choices":[]}');
    }),
  );
  const child = fork(PROCESS, [engine.url], {
    execArgv: ['--trace-gc', ...flags],
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
  /** Ends the process: what V8 said of each collection, and how often it collected like this. */
  const collections = async () => {
    await end();
    return { lines: traced.split('\n'), count: (kind: string) => traced.split(kind).length - 1 };
  };
  return { url: `${url}/v1/chat/completions`, collections };
}

it('young bodies are no reason to collect all of the heap, however little V8 would let it grow', async () => {
  const { url, collections } = await start('--heap-growing-percent=10');
  const body = JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'word '.repeat(6_000) }] });
  let left = 4_000;
  const client = async () => {
    while (left-- > 0) await send(url, body);
  };
  await Promise.all(Array.from({ length: 32 }, client));
  const { count } = await collections();
  // 120 MB of bodies went through; the old generation grows by a fraction of that.
  expect(count('Scavenge')).toBeGreaterThan(10);
  expect(count('Mark-Compact')).toBeLessThan(count('Scavenge'));
}, 120_000);

describe('how far the heap grows', () => {
  const MB = 1_000_000;

  function growthOf(times: readonly number[], heapBytes: number): readonly number[] {
    const told: number[] = [];
    const growth = new HeapGrowth((percent) => told.push(percent));
    for (const time of times) growth.collected(time, heapBytes);
    return told;
  }
  const every = (ms: number, count: number) => Array.from({ length: count }, (_, i) => ms * i);

  it('is what the last full collection left, where these are seldom', () => {
    expect(growthOf(every(501, 100), 20 * MB)).toEqual([]);
  });

  it('is more where they are frequent, up to 96 MiB of garbage', () => {
    expect(growthOf(every(500, 9), 20 * MB)).toEqual([200]);
    expect(growthOf(every(500, 18), 20 * MB)).toEqual([200, 400]);
    expect(growthOf(every(500, 100), 20 * MB)).toEqual([200, 400, 503]);
    expect(growthOf(every(500, 100), 60 * MB)).toEqual([167]);
    expect(growthOf(every(500, 100), 200 * MB)).toEqual([]);
  });

  it('is as before when they have been seldom for a while', () => {
    expect(growthOf([...every(100, 9), 30_900, 60_901, 60_902], 20 * MB)).toEqual([200, 100]);
  });
});

it('prompts of 400 KB are no reason to collect all of the heap again and again', async () => {
  const { url, collections } = await start();
  const words = 'word '.repeat(80_000);
  let left = 3_000;
  const client = async () => {
    while (left-- > 0) await send(url, JSON.stringify({ model: 'm', messages: [{ role: 'user', content: words }] }));
  };
  await Promise.all(Array.from({ length: 8 }, client));
  const { count } = await collections();
  expect(count('external memory pressure')).toBeGreaterThan(20);
  expect(count('Mark-Compact')).toBeLessThan(count('external memory pressure') / 2);
}, 120_000);

it('a request with documents leaves little behind that only a full collection would find', async () => {
  const { url, collections } = await start();
  const documents = Array.from({ length: 60 }, (_, i) => ({ id: `d${i}`, content: `${i} of the hills. `.repeat(80) }));
  const bodyOf = (number: number) =>
    JSON.stringify({
      model: 'm',
      messages: [{ role: 'user', content: `Question ${number % 300}?` }],
      documents: Array.from({ length: 20 }, (_, i) => documents[(7 * i + number) % 60]),
    });
  const [warmUp, requests] = [3_000, 5_000];
  for (let number = 0; number < warmUp + requests; number++) await send(url, bodyOf(number));
  const { lines } = await collections();
  /** MB that are left after each collection of the young generation; `undefined` after one of all. */
  const left = lines
    .filter((line) => /Scavenge|Mark-Compact/.test(line))
    .map((line) => (line.includes('Scavenge') ? Number(/-> ([\d.]+)/.exec(line)![1]) : undefined));
  const measured = left.slice(Math.floor((left.length * warmUp) / (warmUp + requests)));
  let grownMb = 0;
  for (let i = 1; i < measured.length; i++) {
    const [before, after] = [measured[i - 1], measured[i]];
    if (before !== undefined && after !== undefined) grownMb += after - before;
  }
  expect(measured.length).toBeGreaterThan(10);
  // Its record and its counts; 3.4 KB here. Members spread out of a rest, in one place, left 2.4 KB on top of that.
  expect((grownMb * 1e6) / requests).toBeLessThan(6_500);
}, 120_000);
