// Does the gateway's memory stay flat, and does each answer belong to its question? A million mixed requests (plain
// bodies, known and never seen documents, streams, clients that leave, more tenants than are kept) at an engine that
// fails in all its ways, as fast as they go, and the gateway's resident memory meanwhile. `node bench/soak.js
// [requests] [--json]`. Exits with 1 where an answer is not the one to its question, or none comes.
import { Pool } from 'undici';
import { draws } from './draw.js';
import { start, stopAll, usageOf } from './processes.js';

const REQUESTS = Number(process.argv.slice(2).find((argument) => /^\d+$/.test(argument)) ?? 1_000_000);
const SAMPLES = 20;
const CONCURRENT = 32;
const TENANTS = 3_000;
const STREAM_EVERY = 500;
const LEAVE_EVERY = 997;
/** Of so many requests one goes wrong in the engine, in each of these ways in turn. */
const FAULT_EVERY = 29;
const FAULTS = ['reset', 'status', 'cut', 'garbage', 'reset', 'status', 'cut', 'silence'];
/** What a client gets: a status, or an answer that breaks off. */
const OUTCOMES = { reset: 502, status: 500, cut: 'broken', garbage: 502, silence: 504 };
/** Milliseconds in which an engine must answer, and after which a client counts as one without an answer. */
const ENGINE_MS = 500;
const UNANSWERED_MS = 60_000;
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

/** How the engine answers a request: `well`, or a way to fail. */
function fateOf(index) {
  return index % FAULT_EVERY === 0 ? FAULTS[(index / FAULT_EVERY) % FAULTS.length] : 'well';
}

/** A request, and what the engine answers to it if it answers well. */
function requestAt(index) {
  const messages = [
    { role: 'system', content: 'Answer from the documents.' },
    { role: 'user', content: `Question number ${index}, ${fateOf(index)}?` },
  ];
  const context = index % 2 === 0 ? [] : documents(index);
  const body = context.length === 0 ? { model: 'm', messages } : { model: 'm', messages, documents: context };
  if (index % STREAM_EVERY === 0) body.stream = true;
  const ids = [...new Set(context.map(({ id }) => id))].sort();
  const request = {
    method: 'POST',
    path: PATH,
    headers: { 'content-type': 'application/json', authorization: `Bearer key-${below(TENANTS)}` },
    body: JSON.stringify(body),
  };
  return { request, answer: `${index} ${ids.join(' ')}` };
}

/** What came of it: `left`, `answered`, or the name of a fault that the client was told of. */
async function send(pool, index) {
  const { request, answer } = requestAt(index);
  if (index % LEAVE_EVERY === 0) {
    const leaving = new AbortController();
    const answered = pool.request({ ...request, signal: leaving.signal });
    setImmediate(() => leaving.abort());
    // Left or answered: either is right, it depends on who is faster.
    await answered.then((response) => response.body.arrayBuffer()).catch(() => undefined);
    return 'left';
  }
  const fate = fateOf(index);
  const { status, text, isBroken } = await exchange(pool, request, index);
  const outcome = isBroken ? 'broken' : status;
  if (outcome !== (OUTCOMES[fate] ?? 200)) throw new Error(`request ${index} (${fate}): ${outcome} ${text}`);
  if (fate !== 'well') return fate;
  const content = /"content":"([^"]*)"/.exec(text)?.[1];
  if (content !== answer) throw new Error(`request ${index} got the answer to another question: ${text}`);
  return 'answered';
}

async function exchange(pool, request, index) {
  const signal = AbortSignal.timeout(UNANSWERED_MS);
  let status;
  try {
    const response = await pool.request({ ...request, signal });
    status = response.statusCode;
    return { status, text: await response.body.text(), isBroken: false };
  } catch (error) {
    if (signal.aborted || status === undefined) throw new Error(`request ${index} has no answer`, { cause: error });
    return { status, text: '', isBroken: true };
  }
}

async function soak() {
  const engine = await start('soak-engine-process.js');
  const settings = { upstream: { timeouts: { headersMs: ENGINE_MS, idleMs: ENGINE_MS } } };
  const gateway = await start('gateway-process.js', engine.url, JSON.stringify(settings));
  const outcomes = {};
  const pool = new Pool(gateway.url, { connections: CONCURRENT });
  const samples = [{ requests: 0, residentMiB: await residentMiB(gateway) }];
  const perSample = Math.ceil(REQUESTS / SAMPLES);
  const started = performance.now();
  let next = 0;
  for (let sample = 1; sample <= SAMPLES; sample++) {
    const end = Math.min(REQUESTS, sample * perSample);
    const worker = async () => {
      while (next < end) {
        const outcome = await send(pool, next++);
        outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
      }
    };
    await Promise.all(Array.from({ length: CONCURRENT }, worker));
    samples.push({ requests: next, residentMiB: await residentMiB(gateway) });
    if (process.stderr.isTTY) process.stderr.write(`${next} requests, ${samples.at(-1).residentMiB.toFixed(0)} MiB\n`);
  }
  await pool.close();
  return { seconds: (performance.now() - started) / 1_000, outcomes, samples };
}

/** Means of the second and of the last quarter: the first quarter fills what is bounded, such as trees and tenants. */
function drift(samples) {
  const quarter = Math.floor(samples.length / 4);
  const mean = (part) => part.reduce((sum, { residentMiB: value }) => sum + value, 0) / part.length;
  return { secondQuarterMiB: mean(samples.slice(quarter, 2 * quarter)), lastQuarterMiB: mean(samples.slice(-quarter)) };
}

try {
  const { seconds, outcomes, samples } = await soak();
  const result = { requests: REQUESTS, seconds, outcomes, ...drift(samples), samples };
  if (process.argv.includes('--json')) {
    console.log(JSON.stringify(result));
  } else {
    for (const { requests, residentMiB: value } of samples) {
      console.log(`${String(requests).padStart(10)} requests${value.toFixed(0).padStart(8)} MiB`);
    }
    console.log(
      Object.entries(outcomes)
        .map(([name, count]) => `${count} ${name}`)
        .join(', '),
    );
    console.log(
      `${REQUESTS} requests in ${seconds.toFixed(0)} s: ${result.secondQuarterMiB.toFixed(0)} MiB in the second quarter, ${result.lastQuarterMiB.toFixed(0)} MiB in the last`,
    );
  }
} finally {
  stopAll();
}
