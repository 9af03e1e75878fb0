// What the supervising process in front of the engine adds to a request: the same engine asked directly and through it,
// in turns, one request at a time. `node bench/front.js [--requests 2000] [--rounds 5]`. Times mean nothing on a busy
// machine.
import { fork } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Pool } from 'undici';
import { spawnEngine } from '../dist/index.js';

const { values } = parseArgs({ options: { requests: { type: 'string' }, rounds: { type: 'string' } } });
const REQUESTS = Number(values.requests ?? 2_000);
const ROUNDS = Number(values.rounds ?? 5);
const OPTIONS = { port: 0, threads: 1, contextTokens: 1024 };
/** Next to no work for the engine, so that what is added shows. */
const BODY = JSON.stringify({ content: 'hello world' });

/** An engine with nothing in front of it, as a supervisor starts it, but on a port. */
async function startDirect() {
  const child = fork(fileURLToPath(new URL('../dist/main.js', import.meta.url)), ['--worker'], { execArgv: [] });
  const url = await new Promise((resolve) => {
    child.on('message', (message) => message.type === 'listening' && resolve(message.url));
    child.send({ type: 'start', options: OPTIONS });
  });
  return { url, stop: () => child.kill('SIGTERM') };
}

async function measure(pool) {
  const times = [];
  for (let index = 0; index < REQUESTS; index++) {
    const startedMs = performance.now();
    const { body } = await pool.request({ method: 'POST', path: '/tokenize', body: BODY });
    await body.text();
    times.push(performance.now() - startedMs);
  }
  times.sort((a, b) => a - b);
  return { p50: times[Math.floor(REQUESTS * 0.5)], p99: times[Math.floor(REQUESTS * 0.99)] };
}

const supervised = await spawnEngine(OPTIONS);
const direct = await startDirect();
const pools = [direct.url, supervised.url].map((url) => new Pool(url, { connections: 1 }));
for (let round = 0; round < ROUNDS; round++) {
  const [alone, through] = [await measure(pools[0]), await measure(pools[1])];
  const added = { p50: through.p50 - alone.p50, p99: through.p99 - alone.p99 };
  process.stdout.write(`${JSON.stringify({ round, direct: alone, through, addedMs: added })}\n`);
}
const rss = Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${supervised.pid}/status`, 'utf8'))[1]);
process.stdout.write(`${JSON.stringify({ frontMiB: Math.round(rss / 1024) })}\n`);
await Promise.all(pools.map((pool) => pool.close()));
direct.stop();
await supervised.stop();
