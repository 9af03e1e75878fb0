// What the supervising process in front of the engine adds to a request: the same engine asked directly and through it,
// in turns, one request at a time; and its CPU time for each token of streams, sixteen at a time. `node bench/front.js
// [--requests 2000] [--rounds 5]`. Times mean nothing on a busy machine. The CPU time needs Linux.
import { fork } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Pool } from 'undici';
import { spawnEngine } from '../dist/index.js';

const { values } = parseArgs({ options: { requests: { type: 'string' }, rounds: { type: 'string' } } });
const REQUESTS = Number(values.requests ?? 2_000);
const ROUNDS = Number(values.rounds ?? 5);
const STREAMS = 16;
const STREAM_TOKENS = 400;
const OPTIONS = { port: 0, threads: 1, contextTokens: STREAMS * 512 };
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

/** CPU time of a process so far, in Linux's hundredths of a second. */
function cpuTicks(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
  return Number(fields[11]) + Number(fields[12]);
}

/** Microseconds of CPU time of the front for a streamed token. */
async function streamCost({ pid }, pool) {
  const body = JSON.stringify({ prompt: 'hello', stream: true, max_tokens: STREAM_TOKENS, ignore_eos: true });
  const stream = async () => {
    const { body: answer } = await pool.request({ method: 'POST', path: '/v1/completions', body });
    await answer.dump({ limit: Number.POSITIVE_INFINITY });
  };
  const before = cpuTicks(pid);
  for (let round = 0; round < ROUNDS; round++) {
    await Promise.all(Array.from({ length: STREAMS }, stream));
  }
  return ((cpuTicks(pid) - before) * 10_000) / (ROUNDS * STREAMS * STREAM_TOKENS);
}

const supervised = await spawnEngine(OPTIONS);
const direct = await startDirect();
const pools = [direct.url, supervised.url].map((url) => new Pool(url, { connections: 1 }));
for (let round = 0; round < ROUNDS; round++) {
  const [alone, through] = [await measure(pools[0]), await measure(pools[1])];
  const added = { p50: through.p50 - alone.p50, p99: through.p99 - alone.p99 };
  process.stdout.write(`${JSON.stringify({ round, direct: alone, through, addedMs: added })}\n`);
}
const streaming = new Pool(supervised.url, { connections: STREAMS });
const cpuMicroseconds = await streamCost(supervised, streaming);
await streaming.close();
process.stdout.write(`${JSON.stringify({ streamedToken: { cpuMicroseconds } })}\n`);
const rss = Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${supervised.pid}/status`, 'utf8'))[1]);
process.stdout.write(`${JSON.stringify({ frontMiB: Math.round(rss / 1024) })}\n`);
await Promise.all(pools.map((pool) => pool.close()));
direct.stop();
await supervised.stop();
