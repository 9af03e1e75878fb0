// What becomes of a gateway that is offered more than it can do: bodies of 30 KB with 20 documents, sent when their
// time has come whether or not others were answered, at a multiple of what it does when it is asked as fast as it
// answers. Three processes, so that the gateway's processor is its own as far as the machine has one for it.
// `node bench/overload.js [--times 2] [--seconds 10] [--json]`, after a build. Exits with 1 where something accepted
// was not answered, or recovery took longer than a second.
import { parseArgs } from 'node:util';
import { Pool } from 'undici';
import { bodies } from './bodies.js';
import { load, quantile } from './load.js';
import { start, stopAll, usageOf } from './processes.js';

const { values } = parseArgs({
  options: {
    times: { type: 'string', default: '2' },
    seconds: { type: 'string', default: '10' },
    json: { type: 'boolean', default: false },
  },
});
const TIMES = Number(values.times);
const MS = 1_000 * Number(values.seconds);
const WARM_UP_MS = 5_000;
const CAPACITY_MS = 4_000;
const CAPACITY_CONNECTIONS = 16;
/** Of what it can do: what it is offered when the overload is over. */
const AFTERWARDS = 0.5;
const AFTERWARDS_MS = 3_000;
const RECOVERY_MS = 1_000;
const TICK_MS = 5;
const MEMORY_EVERY_MS = 250;
/** Requests without an answer beyond which none is sent: nobody is to run out of sockets. */
const MOST_OPEN = 10_000;
const HEADERS = { 'content-type': 'application/json' };

const given = bodies().documents;
let next = 0;

/** Offers so many requests a second, and resolves with what became of them when all are over. */
async function offer(pool, gateway, { perSecond, ms }) {
  const began = performance.now();
  const requests = [];
  const residentMiB = [];
  let open = 0;
  let missed = 0;
  let sent = 0;
  const sampling = setInterval(async () => {
    residentMiB.push((await usageOf(gateway)).residentBytes / 2 ** 20);
  }, MEMORY_EVERY_MS);
  await new Promise((resolve) => {
    const timer = setInterval(() => {
      const elapsed = performance.now() - began;
      for (const due = (Math.min(elapsed, ms) * perSecond) / 1_000; sent < due; sent++) {
        if (open >= MOST_OPEN) missed++;
        else {
          open++;
          requests.push(exchange(pool).finally(() => open--));
        }
      }
      if (elapsed < ms) return;
      clearInterval(timer);
      resolve();
    }, TICK_MS);
  });
  const over = performance.now();
  const found = await Promise.all(requests);
  clearInterval(sampling);
  return { began, over, missed, requests: found, residentMiB };
}

async function exchange(pool) {
  const began = performance.now();
  try {
    const body = given[next++ % given.length];
    const response = await pool.request({ method: 'POST', path: '/v1/chat/completions', headers: HEADERS, body });
    await response.body.arrayBuffer();
    const told = response.headers['retry-after'] !== undefined;
    return { began, ended: performance.now(), status: response.statusCode, told };
  } catch (error) {
    return { began, ended: performance.now(), status: error.code ?? error.message, told: false };
  }
}

function describe(requests) {
  const times = requests.map(({ began, ended }) => ended - began);
  return { count: requests.length, p50Ms: quantile(times, 0.5), p99Ms: quantile(times, 0.99) };
}

async function measure() {
  const engine = await start('upstream-process.js');
  const gateway = await start('gateway-process.js', engine.url);
  const lane = { server: gateway, headers: HEADERS, bodies: given, next: 0 };
  await load(lane, { connections: CAPACITY_CONNECTIONS, ms: WARM_UP_MS });
  const { perSecond: capacity } = await load(lane, { connections: CAPACITY_CONNECTIONS, ms: CAPACITY_MS });
  const idleMiB = (await usageOf(gateway)).residentBytes / 2 ** 20;
  const pool = new Pool(gateway.url, { connections: MOST_OPEN });
  const overload = await offer(pool, gateway, { perSecond: TIMES * capacity, ms: MS });
  const after = await offer(pool, gateway, { perSecond: AFTERWARDS * capacity, ms: AFTERWARDS_MS });
  await pool.destroy();
  const accepted = overload.requests.filter(({ status }) => status === 200);
  const refused = overload.requests.filter(({ status, told }) => (status === 429 || status === 503) && told);
  const lastRefusal = Math.max(
    after.began,
    ...after.requests.filter(({ status }) => status !== 200).map(({ began }) => began),
  );
  return {
    capacityPerSecond: capacity,
    offeredPerSecond: (overload.requests.length + overload.missed) / ((overload.over - overload.began) / 1_000),
    missed: overload.missed,
    accepted: describe(accepted),
    refused: describe(refused),
    others: overload.requests.length - accepted.length - refused.length,
    recoveryMs: lastRefusal - after.began,
    afterwards: describe(after.requests.filter(({ status }) => status === 200)),
    residentMiB: { idle: idleMiB, most: Math.max(...overload.residentMiB), last: overload.residentMiB.at(-1) },
  };
}

try {
  const result = await measure();
  const { accepted, refused, residentMiB: memory } = result;
  const isWell = result.others === 0 && accepted.count > 0 && result.recoveryMs <= RECOVERY_MS;
  if (values.json) console.log(JSON.stringify(result));
  else {
    const ms = ({ count, p50Ms, p99Ms }) =>
      count === 0 ? 'none' : `${count}, p50 ${p50Ms.toFixed(0)} ms, p99 ${p99Ms.toFixed(0)} ms`;
    console.log(
      `it does ${result.capacityPerSecond.toFixed(0)} a second, and is offered ${result.offeredPerSecond.toFixed(0)}`,
    );
    console.log(`accepted and answered: ${ms(accepted)}`);
    console.log(`refused with retry-after: ${ms(refused)}`);
    console.log(`neither: ${result.others}; not sent, because too many had no answer: ${result.missed}`);
    console.log(`memory: ${memory.idle.toFixed(0)} MiB before, ${memory.most.toFixed(0)} MiB at most`);
    console.log(`the last refusal came ${result.recoveryMs.toFixed(0)} ms after the overload was over`);
  }
  process.exitCode = isWell ? 0 : 1;
} finally {
  stopAll();
}
