// What a shared store of conversations costs a request: the same conversations through a gateway that remembers by
// itself, through one over a Redis on the loopback, and through two over that Redis in turns, so that every turn
// travels. CPU and latency of a request, what the store is asked, and its own CPU. Needs `redis-server` (or
// REDIS_SERVER). `node bench/shared.js [--json] [--quick]`, after a build.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { createClient } from '@redis/client';
import { Pool } from 'undici';
import { draws, prose } from './draw.js';
import { freePort, start, stopAll, usageOf } from './processes.js';

const QUICK = process.argv.includes('--quick');
const CONVERSATIONS = QUICK ? 10 : 150;
const TURNS = 8;
const CONCURRENT = 8;
const ROUNDS = QUICK ? 1 : 4;
/** What the engine of the benchmark answers to everything: by it an unnamed conversation is known. */
const ANSWER = { role: 'assistant', content: 'x'.repeat(400) };
const SYSTEM = { role: 'system', content: 'Answer from the documents.' };

const next = draws();
const pool = Array.from({ length: 60 }, (_, i) => ({ id: `doc-${i}`, content: prose(next, 120) }));

/** The bodies of one conversation: three documents a turn, some of which it has seen. */
function conversation(mark) {
  const messages = [SYSTEM];
  return Array.from({ length: TURNS }, (_, turn) => {
    messages.push({ role: 'user', content: `Question ${turn} of ${mark}: ${prose(next, 8)}?` });
    const documents = Array.from({ length: 3 }, () => pool[next(pool.length)]);
    const body = JSON.stringify({ model: 'm', messages, documents });
    messages.push(ANSWER);
    return body;
  });
}

async function startRedis() {
  const port = await freePort();
  const settings = ['--bind', '127.0.0.1', '--port', `${port}`, '--save', '', '--appendonly', 'no'];
  const server = spawn(process.env.REDIS_SERVER ?? 'redis-server', settings, { stdio: ['ignore', 'pipe', 'inherit'] });
  for await (const line of createInterface(server.stdout)) if (line.includes('Ready to accept')) break;
  return { server, url: `redis://127.0.0.1:${port}` };
}

/** What the server did since it began: scripts run for gateways, its CPU, and bytes. */
async function storeUsage(client) {
  const info = await client.sendCommand(['INFO', 'everything']);
  const number = (name) => Number(new RegExp(`^${name}:([\\d.]+)`, 'm').exec(info)?.[1] ?? 0);
  const calls = (name) => Number(new RegExp(`^cmdstat_${name}:calls=(\\d+)`, 'm').exec(info)?.[1] ?? 0);
  return {
    calls: calls('evalsha') + calls('eval'),
    cpuUs: (number('used_cpu_user') + number('used_cpu_sys')) * 1e6,
    bytes: number('total_net_input_bytes') + number('total_net_output_bytes'),
  };
}

async function send(to, body) {
  const began = performance.now();
  const headers = { 'content-type': 'application/json' };
  const response = await to.request({ method: 'POST', path: '/v1/chat/completions', headers, body });
  await response.body.arrayBuffer();
  return { ms: performance.now() - began, replayed: told(response).replayed !== undefined };
}

/** Has the conversations, so many at once, each turn through the next gateway. */
async function converse(pools, conversations, atOnce) {
  const waiting = conversations.slice();
  const sent = [];
  const worker = async () => {
    for (let bodies = waiting.pop(); bodies !== undefined; bodies = waiting.pop()) {
      for (const [turn, body] of bodies.entries()) sent.push(await send(pools[turn % pools.length], body));
    }
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
  return sent;
}

function median(values) {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];
}

async function lane(name, upstream, { gateways, redis }) {
  const store =
    redis === undefined
      ? {}
      : { session: { store: { url: redis.url } }, parts: { sharedStore: { prefix: `${name}:` } } };
  const processes = [];
  for (let i = 0; i < gateways; i++) {
    processes.push(await start('gateway-process.js', upstream.url, JSON.stringify(store)));
  }
  const pools = processes.map(({ url }) => new Pool(url, { connections: CONCURRENT }));
  return { name, processes, pools, redis, mark: 0, cpuUs: [], ms: [], store: [], replayed: 0, requests: 0 };
}

async function cpuOf({ processes }) {
  const usages = await Promise.all(processes.map(usageOf));
  return usages.reduce((sum, { cpuUs }) => sum + cpuUs, 0);
}

async function round(one, client, isWarmUp) {
  const fresh = (count) => Array.from({ length: count }, () => conversation(`${one.name}-${one.mark++}`));
  const conversations = fresh(CONVERSATIONS);
  const total = CONVERSATIONS * TURNS;
  const [cpu, store] = [await cpuOf(one), await storeUsage(client)];
  const sent = await converse(one.pools, conversations, CONCURRENT);
  const [cpuAfter, storeAfter] = [await cpuOf(one), await storeUsage(client)];
  const alone = await converse(one.pools, fresh(Math.ceil(CONVERSATIONS / 5)), 1);
  if (isWarmUp) return;
  one.cpuUs.push((cpuAfter - cpu) / total);
  one.ms.push(median(alone.map(({ ms }) => ms)));
  one.replayed += sent.filter(({ replayed }) => replayed).length;
  one.requests += total;
  const each = (field) => (storeAfter[field] - store[field]) / total;
  if (one.redis !== undefined) {
    one.store.push({ roundTrips: each('calls'), cpuUs: each('cpuUs'), kilobytes: each('bytes') / 1_000 });
  }
}

function resultOf({ name, cpuUs, ms, store, replayed, requests }) {
  const of = (field) => (store.length === 0 ? 0 : median(store.map((one) => one[field])));
  return {
    name,
    cpuUs: median(cpuUs),
    p50Ms: median(ms),
    roundTrips: of('roundTrips'),
    storeCpuUs: of('cpuUs'),
    storeKilobytes: of('kilobytes'),
    replayedShare: replayed / requests,
  };
}

function print(results) {
  const columns = ['CPU µs', 'p50 ms', 'scripts', 'store CPU µs', 'store KB', 'replayed'];
  console.log(`${'a request'.padEnd(26)}${columns.map((column) => column.padStart(14)).join('')}`);
  for (const { name, cpuUs, p50Ms, roundTrips, storeCpuUs, storeKilobytes, replayedShare } of results) {
    const cells = [cpuUs.toFixed(0), p50Ms.toFixed(2), roundTrips.toFixed(2), storeCpuUs.toFixed(0)];
    cells.push(storeKilobytes.toFixed(1), `${(replayedShare * 100).toFixed(0)} %`);
    console.log(name.padEnd(26) + cells.map((cell) => cell.padStart(14)).join(''));
  }
}

const redis = await startRedis();
const client = createClient({ url: redis.url, RESP: 2 });
try {
  await client.connect();
  const upstream = await start('upstream-process.js');
  const lanes = [
    await lane('memory', upstream, { gateways: 1 }),
    await lane('redis', upstream, { gateways: 1, redis }),
    await lane('redis, two gateways', upstream, { gateways: 2, redis }),
  ];
  // In turns, so that a noisy neighbour meets all alike.
  for (let i = 0; i <= ROUNDS; i++) for (const one of lanes) await round(one, client, i === 0);
  const results = lanes.map(resultOf);
  if (process.argv.includes('--json')) console.log(JSON.stringify(results));
  else print(results);
  await Promise.all(lanes.flatMap(({ pools }) => pools.map((one) => one.close())));
} finally {
  client.destroy();
  redis.server.kill();
  stopAll();
}
