// The gateway as it is started by its command line, with its log on, beside what a user would pick instead, in one run:
// 20 documents a request. `node bench/peers.js`, after a build. LiteLLM is measured where the program that LITELLM
// names is installed (`pip install 'litellm[proxy]'`).
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Pool } from 'undici';
import { bodies } from './bodies.js';
import { load, quantile } from './load.js';
import { start, startForeign, stopAll, temporaryFolder, usageOf } from './processes.js';
import { SYSTEMS } from './systems.js';

const PATH = '/v1/chat/completions';
/** Requests a second that come whether the last ones are answered or not, and for how long. */
const RATE = 200;
const SECONDS = 15;
/** Connections that each send one request after another. */
const CONNECTIONS = 32;
const LOAD_MS = 5_000;
const WARM_UP_MS = 8_000;
const CLI = fileURLToPath(new URL('../../cli/dist/main.js', import.meta.url));

/** As `warmpath serve` runs: a line of the log for each request, here into nothing. */
async function startWarmpath({ url }) {
  return startForeign(process.execPath, (port) => [CLI, 'serve', '--engine', url, '--port', String(port)]);
}

async function startLiteLlm({ url }) {
  const program = process.env.LITELLM;
  if (program === undefined) throw new Error('LITELLM does not name the program');
  process.env.LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY = 'true';
  const file = `${temporaryFolder()}/litellm.yaml`;
  writeFileSync(
    file,
    `model_list:\n  - model_name: m\n    litellm_params: { model: openai/m, api_base: '${url}/v1', api_key: none }\n`,
  );
  return startForeign(program, (port) => ['--config', file, '--port', String(port), '--num_workers', '1'], 90_000);
}

const STARTED = {
  direct: SYSTEMS.direct.start,
  'fastify + undici': SYSTEMS.fastify.start,
  Portkey: SYSTEMS.portkey.start,
  LiteLLM: startLiteLlm,
  Warmpath: startWarmpath,
};

/** Answers in milliseconds of requests that come at a fixed rate; a request that fails counts as an error. */
async function atRate({ url, headers = {} }, sent) {
  const pool = new Pool(url, { connections: 256, pipelining: 1 });
  const times = [];
  let errors = 0;
  const ask = async (body) => {
    const from = performance.now();
    const { statusCode, body: answer } = await pool.request({
      method: 'POST',
      path: PATH,
      headers: { 'content-type': 'application/json', ...headers },
      body,
    });
    await answer.arrayBuffer();
    if (statusCode === 200) times.push(performance.now() - from);
    else errors++;
  };
  const asked = [];
  const from = performance.now();
  for (let i = 0; i < RATE * SECONDS; i++) {
    const wait = from + (i * 1_000) / RATE - performance.now();
    if (wait > 1) await sleep(wait);
    asked.push(ask(sent[i % sent.length]).catch(() => errors++));
  }
  await Promise.all(asked);
  await pool.close();
  return { p50Ms: quantile(times, 0.5), p99Ms: quantile(times, 0.99), errors };
}

const { documents } = bodies();
// LiteLLM routes by the name of the model, and refuses members that it does not know.
const withModel = documents.map((body) => Buffer.from(`{"model":"m",${body.toString().slice(1)}`));
const engine = await start('upstream-process.js');
const rows = [];
for (const [name, startSystem] of Object.entries(STARTED)) {
  let system;
  try {
    system = await startSystem(engine);
  } catch (error) {
    console.error(`${name} is not measured: ${error.message}`);
    continue;
  }
  const idle = name === 'direct' ? 0 : (await usageOf(system)).residentBytes / 2 ** 20;
  const lane = {
    server: system,
    headers: { 'content-type': 'application/json', ...system.headers },
    bodies: withModel,
  };
  await load({ ...lane, next: 0 }, { connections: CONNECTIONS, ms: WARM_UP_MS });
  const steady = await atRate(system, withModel);
  const { perSecond, residentMiB, errors } = await load(
    { ...lane, next: 0 },
    { connections: CONNECTIONS, ms: LOAD_MS },
  );
  rows.push({ name, idle, residentMiB, perSecond, ...steady, errors: steady.errors + errors });
  if (name !== 'direct') {
    system.child.kill();
    await once(system.child, 'exit');
  }
}
stopAll();

const [direct] = rows;
console.log(
  `20 documents a request (30 KB); ${RATE} requests a second for ${SECONDS} s, then ${CONNECTIONS} connections`,
);
console.log('system            added p50 ms  added p99 ms  requests/s  RSS idle MiB  RSS loaded MiB  errors');
for (const row of rows) {
  const cells = [
    (row.p50Ms - direct.p50Ms).toFixed(2),
    (row.p99Ms - direct.p99Ms).toFixed(2),
    row.perSecond.toFixed(0),
    row.idle.toFixed(0),
    row.residentMiB.toFixed(0),
    String(row.errors),
  ];
  const widths = [12, 12, 10, 12, 14, 6];
  console.log(`${row.name.padEnd(16)}  ${cells.map((cell, i) => cell.padStart(widths[i])).join('  ')}`);
}
