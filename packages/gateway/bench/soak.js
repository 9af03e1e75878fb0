// Does the gateway's memory stay flat? A million mixed requests (plain bodies, known and never seen documents, streams,
// clients that leave, more tenants than are kept), and its resident memory as they go. `node bench/soak.js [requests]
// [--json]`.
import { Pool } from 'undici';
import { timeLeft } from '../../lab/dist/time-left.js';
import { draws } from './draw.js';
import { start, stopAll, usageOf } from './processes.js';

const REQUESTS = Number(process.argv.slice(2).find((argument) => /^\d+$/.test(argument)) ?? 1_000_000);
const SAMPLES = 20;
const CONCURRENT = 32;
const TENANTS = 3_000;
const STREAM_EVERY = 500;
const LEAVE_EVERY = 997;
const PATH = '/v1/chat/completions';

async function residentMiB(process) {
  return (await usageOf(process)).residentBytes / 2 ** 20;
}

const below = draws();

const SENTENCE = 'The engine keeps the prefix of a prompt in blocks of its cache. ';

/** Five passages of 0.6 KB: by turns from 2,000 that come again and again, or never seen before. */
function documents(index) {
  return Array.from({ length: 5 }, (_, place) => {
    const name = index % 4 === 1 ? `new-${index}-${place}` : `doc-${below(2_000)}`;
    return { id: name, title: name, content: `${name}: ${SENTENCE.repeat(9)}` };
  });
}

function requestAt(index) {
  const messages = [
    { role: 'system', content: 'Answer from the documents.' },
    { role: 'user', content: `Question number ${index}?` },
  ];
  const body = index % 2 === 0 ? { model: 'm', messages } : { model: 'm', messages, documents: documents(index) };
  if (index % STREAM_EVERY === 0) body.stream = true;
  return {
    method: 'POST',
    path: PATH,
    headers: { 'content-type': 'application/json', authorization: `Bearer key-${below(TENANTS)}` },
    body: JSON.stringify(body),
  };
}

async function send(pool, index) {
  if (index % LEAVE_EVERY !== 0) {
    const response = await pool.request(requestAt(index));
    await response.body.arrayBuffer();
    if (response.statusCode !== 200) throw new Error(`request ${index} was answered by ${response.statusCode}`);
    return;
  }
  const leaving = new AbortController();
  const answered = pool.request({ ...requestAt(index), signal: leaving.signal });
  setImmediate(() => leaving.abort());
  // Left or answered: either is right, it depends on who is faster.
  await answered.then((response) => response.body.arrayBuffer()).catch(() => undefined);
}

async function soak() {
  const upstream = await start('upstream-process.js');
  const gateway = await start('gateway-process.js', upstream.url);
  const pool = new Pool(gateway.url, { connections: CONCURRENT });
  const samples = [{ requests: 0, residentMiB: await residentMiB(gateway) }];
  const perSample = Math.ceil(REQUESTS / SAMPLES);
  const started = performance.now();
  let next = 0;
  for (let sample = 1; sample <= SAMPLES; sample++) {
    const end = Math.min(REQUESTS, sample * perSample);
    const worker = async () => {
      while (next < end) await send(pool, next++);
    };
    await Promise.all(Array.from({ length: CONCURRENT }, worker));
    samples.push({ requests: next, residentMiB: await residentMiB(gateway) });
    if (process.stderr.isTTY) {
      const left = timeLeft(performance.now() - started, next, REQUESTS);
      process.stderr.write(`${next} requests, ${samples.at(-1).residentMiB.toFixed(0)} MiB  ${left}\n`);
    }
  }
  await pool.close();
  return { seconds: (performance.now() - started) / 1_000, samples };
}

/** Means of the second and of the last quarter: the first quarter fills what is bounded, such as trees and tenants. */
function drift(samples) {
  const quarter = Math.floor(samples.length / 4);
  const mean = (part) => part.reduce((sum, { residentMiB: value }) => sum + value, 0) / part.length;
  return { secondQuarterMiB: mean(samples.slice(quarter, 2 * quarter)), lastQuarterMiB: mean(samples.slice(-quarter)) };
}

try {
  const { seconds, samples } = await soak();
  const result = { requests: REQUESTS, seconds, ...drift(samples), samples };
  if (process.argv.includes('--json')) {
    console.log(JSON.stringify(result));
  } else {
    for (const { requests, residentMiB: value } of samples) {
      console.log(`${String(requests).padStart(10)} requests${value.toFixed(0).padStart(8)} MiB`);
    }
    console.log(
      `${REQUESTS} requests in ${seconds.toFixed(0)} s: ${result.secondQuarterMiB.toFixed(0)} MiB in the second quarter, ${result.lastQuarterMiB.toFixed(0)} MiB in the last`,
    );
  }
} finally {
  stopAll();
}
