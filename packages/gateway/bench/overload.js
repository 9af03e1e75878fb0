// What becomes of a gateway that is offered more than it can do: bodies of 30 KB with 20 documents, sent when their
// time has come whether or not others were answered, at a multiple of what it does when the same client asks as fast
// as it answers. Twice: over connections that stay, as load balancers have them, and with a connection for each
// request. Three processes, so that the gateway's processor is its own as far as the machine has one for it.
// `node bench/overload.js [--times 2] [--seconds 30] [--deadline 3000] [--json]`, after a build: `--deadline` is what
// clients wait, in milliseconds. Prints what was measured and a verdict on each bar, and exits with 1 where one is
// missed.
import { connect } from 'node:net';
import { parseArgs } from 'node:util';
import { bodies } from './bodies.js';
import { quantile } from './load.js';
import { start, stopAll, usageOf } from './processes.js';
import { printed, verdict } from './report.js';

const { values } = parseArgs({
  options: {
    times: { type: 'string', default: '2' },
    seconds: { type: 'string', default: '30' },
    // The time-out of the probes of the chart and the image.
    deadline: { type: 'string', default: '3000' },
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
/** A refusal waits for two turns of an event loop that is as late as the gateway lets it be. */
const REFUSAL_MS = 2_000;
/** What is resident in the last quarter of the overload, of what is in the second: the first one fills the heap. */
const RESIDENT_RATIO = 1.1;
const TICK_MS = 5;
const MEMORY_EVERY_MS = 250;
/** Requests without an answer beyond which none is sent: nobody is to run out of sockets. */
const MAX_OPEN = 10_000;

const given = bodies().documents;
let next = 0;

/**
 * As many connections as there are requests without an answer; of those that stay the one used last is used next.
 * Written for this alone: a client that does more takes longer for each request than the gateway for refusing it.
 */
class Connections {
  #port;
  #heads;
  #free = [];
  #all = new Set();

  constructor(url, stay) {
    const { port, host } = new URL(url);
    this.#port = Number(port);
    const head = `POST /v1/chat/completions HTTP/1.1\r\nhost: ${host}\r\ncontent-type: application/json\r\n${
      stay ? '' : 'connection: close\r\n'
    }`;
    this.#heads = new Map(given.map((body) => [body, Buffer.from(`${head}content-length: ${body.length}\r\n\r\n`)]));
  }

  /** `{status, told}` of an answer that was read to its end: whether it says when to come again. */
  send(body) {
    const socket = this.#free.pop() ?? this.#open();
    return new Promise((resolve, reject) => {
      let text = '';
      const ended = (error) => reject(error instanceof Error ? error : new Error('ended before the answer was there'));
      const received = (chunk) => {
        text += chunk;
        const end = text.indexOf('\r\n\r\n');
        if (end === -1) return;
        const head = text.slice(0, end).toLowerCase();
        if (text.length < end + 4 + Number(/\r\ncontent-length: (\d+)/.exec(head)[1])) return;
        socket.off('data', received).off('close', ended).off('error', ended);
        if (head.includes('\r\nconnection: close')) socket.destroy();
        else this.#free.push(socket);
        resolve({ status: Number(head.slice(9, 12)), told: head.includes('\r\nretry-after: ') });
      };
      socket.on('data', received).on('close', ended).on('error', ended);
      socket.cork();
      socket.write(this.#heads.get(body));
      socket.write(body);
      socket.uncork();
    });
  }

  #open() {
    const socket = connect(this.#port, '127.0.0.1').setEncoding('latin1').setNoDelay();
    this.#all.add(socket);
    return socket.on('error', () => {}).once('close', () => this.#all.delete(socket));
  }

  destroy() {
    for (const socket of this.#all) socket.destroy();
  }
}

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
        if (open >= MAX_OPEN) missed++;
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

/** How many requests are answered in that time when each connection sends the next one as soon as it has an answer. */
async function served(pool, ms) {
  const until = performance.now() + ms;
  let count = 0;
  const send = async () => {
    for (; performance.now() < until; count++) {
      const { status } = await exchange(pool);
      if (status !== 200) throw new Error(`answered by ${status} although nothing else was asked`);
    }
  };
  await Promise.all(Array.from({ length: CAPACITY_CONNECTIONS }, send));
  return count;
}

async function exchange(pool) {
  const began = performance.now();
  try {
    const { status, told } = await pool.send(given[next++ % given.length]);
    return { began, ended: performance.now(), status, told };
  } catch (error) {
    return { began, ended: performance.now(), status: error.code ?? error.message, told: false };
  }
}

function describe(requests) {
  const times = requests.map(({ began, ended }) => ended - began);
  return { count: requests.length, p50Ms: quantile(times, 0.5), p99Ms: quantile(times, 0.99) };
}

async function measure(stay) {
  const engine = await start('upstream-process.js');
  const gateway = await start('gateway-process.js', engine.url);
  const pool = new Connections(gateway.url, stay);
  await served(pool, WARM_UP_MS);
  const capacity = (await served(pool, CAPACITY_MS)) / (CAPACITY_MS / 1_000);
  const idleMiB = (await usageOf(gateway)).residentBytes / 2 ** 20;
  const overload = await offer(pool, gateway, { perSecond: TIMES * capacity, ms: MS });
  const after = await offer(pool, gateway, { perSecond: AFTERWARDS * capacity, ms: AFTERWARDS_MS });
  pool.destroy();
  stopAll();
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
    residentMiB: { idle: idleMiB, most: Math.max(...overload.residentMiB), growth: growthOf(overload.residentMiB) },
  };
}

/** The middle of the last quarter of the samples, of that of the second quarter; few samples say nothing. */
function growthOf(samples) {
  const quarter = Math.floor(samples.length / 4);
  if (quarter === 0) return Number.NaN;
  return quantile(samples.slice(-quarter), 0.5) / quantile(samples.slice(quarter, 2 * quarter), 0.5);
}

/** `[bar, what was found, what it may be, whether it is met]`; what was not measured misses its bar. */
function judge({ accepted, refused, others, recoveryMs, residentMiB }) {
  const atMost = (name, value, limit, unit) => {
    const shown = Number.isInteger(value) ? value : value.toFixed(unit === 'ms' ? 0 : 2);
    return { name, value: `${shown} ${unit}`.trimEnd(), limit: `≤ ${limit} ${unit}`.trimEnd(), isMet: value <= limit };
  };
  // Where nothing was refused, nothing was refused late.
  const refusalMs = refused.count === 0 ? 0 : refused.p99Ms;
  return [
    { name: 'accepted and answered', value: String(accepted.count), limit: '> 0', isMet: accepted.count > 0 },
    atMost('accepted, p99', accepted.p99Ms ?? Number.NaN, Number(values.deadline), 'ms'),
    atMost('refused with retry-after, p99', refusalMs, REFUSAL_MS, 'ms'),
    atMost('neither answered nor refused', others, 0, ''),
    atMost('resident, end to beginning', residentMiB.growth, RESIDENT_RATIO, ''),
    atMost('last refusal after the overload', recoveryMs, RECOVERY_MS, 'ms'),
  ];
}

function print({ capacityPerSecond, offeredPerSecond, accepted, refused, others, missed, residentMiB }, bars) {
  const ms = ({ count, p50Ms, p99Ms }) =>
    count === 0 ? 'none' : `${count}, p50 ${p50Ms.toFixed(0)} ms, p99 ${p99Ms.toFixed(0)} ms`;
  console.log(`it does ${capacityPerSecond.toFixed(0)} a second, and is offered ${offeredPerSecond.toFixed(0)}`);
  console.log(`accepted and answered: ${ms(accepted)}`);
  console.log(`refused with retry-after: ${ms(refused)}`);
  console.log(`neither: ${others}; not sent, because too many had no answer: ${missed}`);
  console.log(`memory: ${residentMiB.idle.toFixed(0)} MiB before, ${residentMiB.most.toFixed(0)} MiB at most`);
  const rows = bars.map(({ name, value, limit, isMet }) => [name, value, limit, verdict(isMet ? 0 : 1)]);
  console.log(`${printed({ title: 'Bars', head: ['bar', 'found', 'bar at', 'verdict'], rows })}\n`);
}

try {
  const results = [];
  for (const connections of ['stay', 'one each']) {
    const result = await measure(connections === 'stay');
    const bars = judge(result);
    results.push({ connections, ...result, bars });
    if (values.json) continue;
    console.log(connections === 'stay' ? 'Connections that stay' : 'A connection for each request');
    print(result, bars);
  }
  if (values.json) console.log(JSON.stringify(results));
  process.exitCode = results.every(({ bars }) => bars.every(({ isMet }) => isMet)) ? 0 : 1;
} finally {
  stopAll();
}
