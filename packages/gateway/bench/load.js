// Sends the benchmarks' requests and takes their times: so many connections for so long, one request after another on
// each; or streams. Where `wrk` is installed it sends what it can, for it takes the least of cores that all share.
import { spawn, spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { text as textOf } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Pool } from 'undici';
import { temporaryFolder, usageOf } from './processes.js';

const PATH = '/v1/chat/completions';
/**
 * Milliseconds after the last answer in which a server finishes what it put off: that is a cost of the requests, too.
 */
const AFTERWARDS_MS = 40;
/** Requests on each connection that are not counted: what opening it costs is not what a request costs. */
const UNCOUNTED = 2;
/** A frame that comes so long after the one before is a stall; the engine sends one every 20 ms. */
export const STALL_MS = 100;
const WRK_SCRIPT = fileURLToPath(new URL('wrk.lua', import.meta.url));
/** wrk counts an answer that takes longer as lost. */
const WRK_TIMEOUT_S = 60;
/** It is not tried again after a try of so many seconds. */
const WRK_LONGEST_S = 8;

/** The value at a share of the way through the values, the least first. */
export function quantile(values, q) {
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
}

/** `wrk` and its version, or `undefined` where it is not installed. */
export function wrkVersion() {
  const { stdout } = spawnSync('wrk', ['-v'], { encoding: 'utf8' });
  return /\d+\.\d+\.\d+/.exec(stdout ?? '')?.[0];
}

let hasWrk;
const files = new Map();

/**
 * Requests to one server for `ms` milliseconds; with `wrk` a whole number of seconds, more where that is too short.
 *
 * @param lane `{server, headers, bodies, next}`: `next` is the place of the body to send next; where several stand in
 * one place, one connection sends them in order
 * @returns `{requests, errors, uncounted, perSecond, cpuUs, residentMiB, p50Ms, p99Ms}`: CPU a request and memory are
 * those of the server, `errors` were not answered by 200, `uncounted` only opened the connections
 */
export async function load(lane, { connections, ms }) {
  hasWrk ??= wrkVersion() !== undefined;
  const isForWrk = hasWrk && Array.isArray(lane.bodies) && lane.bodies.every(Buffer.isBuffer);
  return isForWrk ? loadByWrk(lane, connections, ms) : loadByPool(lane, connections, ms);
}

/** The result of `run` with what the server's process took a request. */
async function withUsage(server, run) {
  const before = await usageOf(server);
  const result = await run();
  await sleep(AFTERWARDS_MS);
  const { cpuUs, residentBytes } = await usageOf(server);
  return {
    ...result,
    cpuUs: (cpuUs - before.cpuUs) / Math.max(1, result.requests),
    residentMiB: residentBytes / 2 ** 20,
  };
}

/** One thread of wrk, which sends the bodies in turns. */
async function loadByWrk({ server, headers, bodies }, connections, ms) {
  const sent = Object.entries(headers).flatMap(([name, value]) => ['-H', `${name}: ${value}`]);
  const settings = ['-t1', `-c${connections}`, '--timeout', `${WRK_TIMEOUT_S}s`, '-s', WRK_SCRIPT, ...sent];
  const run = async (seconds) => {
    const child = spawn('wrk', [...settings, `-d${seconds}s`, server.url + PATH, '--', fileOf(bodies)], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const output = await textOf(child.stdout);
    const result = /^\{.*\}$/m.exec(output)?.[0];
    if (result === undefined) throw new Error(`wrk gave no result: ${output}`);
    const { durationUs, p50Us, p99Us, ...counts } = JSON.parse(result);
    const latency = { p50Ms: p50Us / 1e3, p99Ms: p99Us / 1e3 };
    return { ...counts, uncounted: 0, perSecond: counts.requests / (durationUs / 1e6), ...latency };
  };
  // Where not every connection has an answer by then, the figures would be those of the first ones.
  for (let seconds = Math.max(1, Math.round(ms / 1_000)); ; seconds *= 2) {
    const result = await withUsage(server, () => run(seconds));
    if (result.requests >= connections || seconds > WRK_LONGEST_S) return result;
  }
}

/** Where the bodies are written for wrk, one a line. */
function fileOf(bodies) {
  const file = files.get(bodies) ?? join(temporaryFolder(), `bodies-${files.size}`);
  if (!files.has(bodies)) writeFileSync(file, `${bodies.join('\n')}\n`);
  files.set(bodies, file);
  return file;
}

async function loadByPool(lane, connections, ms) {
  const { server } = lane;
  const pool = new Pool(server.url, { connections });
  const sendNext = async (times) => {
    for (const body of [lane.bodies.at(lane.next++ % lane.bodies.length)].flat()) {
      times.push(await send(pool, lane.headers, body));
    }
  };
  try {
    await atOnce(connections, async () => {
      for (let i = 0; i < UNCOUNTED; i++) await sendNext([]);
    });
    return await withUsage(server, async () => {
      const started = performance.now();
      const times = [];
      await atOnce(connections, async () => {
        while (performance.now() - started < ms) await sendNext(times);
      });
      const seconds = (performance.now() - started) / 1_000;
      const latency = { p50Ms: quantile(times, 0.5), p99Ms: quantile(times, 0.99) };
      const counts = { requests: times.length, errors: 0, uncounted: UNCOUNTED * connections };
      return { ...counts, perSecond: times.length / seconds, ...latency };
    });
  } finally {
    await pool.close();
  }
}

function atOnce(count, worker) {
  return Promise.all(Array.from({ length: count }, (_, place) => worker(place)));
}

/** Milliseconds until the answer is complete. Whatever is not an answer ends the benchmark. */
async function send(pool, headers, body) {
  let bytes = 0;
  const { status, ms, error } = await exchange(pool, headers, body, (chunk) => {
    bytes += chunk.length;
  });
  if (error !== undefined) throw error;
  if (status !== 200 || bytes === 0) throw new Error(`answered by ${status} and ${bytes} bytes`);
  return ms;
}

/**
 * One exchange, of which `take` gets each piece of the answer: `{started, ms, status, error}` once it is over; `status`
 * is 0 where no answer began. Never rejects.
 */
function exchange(pool, headers, body, take) {
  return new Promise((resolve) => {
    const started = performance.now();
    let status = 0;
    const finish = (error) => resolve({ started, ms: performance.now() - started, status, error });
    pool.dispatch(
      { method: 'POST', path: PATH, headers, body },
      {
        onRequestStart() {},
        onResponseStart(_, code) {
          status = code;
        },
        onResponseData: (_, chunk) => take(chunk),
        onResponseEnd: () => finish(),
        onResponseError: (_, error) => finish(error),
      },
    );
  });
}

/**
 * `connections` streams at once, `each` one after another on every connection; the first ones begin within `spreadMs`.
 *
 * @param lane as for `load`; its bodies ask for `frames` frames
 * @returns `{requests, incomplete, stalled, ttftP50Ms, ttftP99Ms, gapP99Ms, cpuUs, residentMiB}`: `stalled` are frames
 * that came `STALL_MS` after the one before, or later
 */
export async function loadStreams(lane, { connections, each, spreadMs, frames }) {
  const { server, bodies } = lane;
  const pool = new Pool(server.url, { connections });
  const [ttft, gaps] = [[], []];
  let [incomplete, stalled] = [0, 0];
  const one = async () => {
    const stream = await readStream(pool, lane.headers, bodies[lane.next++ % bodies.length]);
    // What came of it counts also where the rest did not.
    if (stream.times.length > 0) ttft.push(stream.times[0] - stream.started);
    for (let i = 1; i < stream.times.length; i++) {
      const gap = stream.times[i] - stream.times[i - 1];
      gaps.push(gap);
      if (gap >= STALL_MS) stalled++;
    }
    if (stream.status !== 200 || stream.events !== frames + 1 || !stream.isEnded) incomplete++;
  };
  try {
    return await withUsage(server, async () => {
      await atOnce(connections, async (place) => {
        await sleep((spreadMs * place) / connections);
        for (let i = 0; i < each; i++) await one();
      });
      const latency = { ttftP50Ms: quantile(ttft, 0.5), ttftP99Ms: quantile(ttft, 0.99) };
      return { requests: connections * each, incomplete, stalled, ...latency, gapP99Ms: quantile(gaps, 0.99) };
    });
  } finally {
    await pool.close();
  }
}

/** One stream: when each piece of it came, how many events it had, and whether it ended as one does. Never rejects. */
async function readStream(pool, headers, body) {
  const times = [];
  let text = '';
  const { started, status, error } = await exchange(pool, headers, body, (chunk) => {
    times.push(performance.now());
    text += chunk.toString('latin1');
  });
  const isEnded = error === undefined && text.endsWith('data: [DONE]\n\n');
  return { started, times, status, events: text.split('\n\n').length - 1, isEnded };
}

/** One exchange in full: `{headers, text}`. */
export async function ask(server, headers, body) {
  const pool = new Pool(server.url, { connections: 1 });
  const response = await pool.request({ method: 'POST', path: PATH, headers, body });
  const text = await response.body.text();
  await pool.close();
  if (response.statusCode !== 200) throw new Error(`${server.name} answered by ${response.statusCode}: ${text}`);
  return { headers: response.headers, text };
}

/** What every such chat begins with. */
export const SYSTEM = 'Answer from the documents.';

/**
 * Sends a question over documents, and reads its stream: milliseconds to the first content, and the engine's counts.
 */
export async function askOver(url, { question, documents }, maxTokens) {
  const begin = performance.now();
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      messages: [
        { role: 'system', content: SYSTEM },
        { role: 'user', content: question },
      ],
      documents,
      max_tokens: maxTokens,
      temperature: 0,
      stream: true,
      stream_options: { include_usage: true },
    }),
  });
  if (response.status !== 200) throw new Error(await response.text());
  let ttft;
  let text = '';
  for await (const chunk of response.body) {
    text += Buffer.from(chunk).toString();
    if (ttft === undefined && /"content":"[^"]/.test(text)) ttft = performance.now() - begin;
  }
  const chunks = [...text.matchAll(/^data: (\{.*\})$/gm)].map(([, json]) => JSON.parse(json));
  const { usage } = chunks.findLast((chunk) => chunk.usage);
  const { prompt_tokens: prompt, prompt_tokens_details: details } = usage;
  return { ttft, prompt, cached: details?.cached_tokens ?? 0 };
}

/** What such answers took on average, and how much of their prompts was cached. */
export function summaryOf(answers) {
  const mean = (value) => answers.reduce((sum, answer) => sum + value(answer), 0) / answers.length;
  const times = answers.map(({ ttft }) => ttft).toSorted((a, b) => a - b);
  return {
    uncachedTokens: mean(({ prompt, cached }) => prompt - cached),
    cachedShare: mean(({ cached }) => cached) / mean(({ prompt }) => prompt),
    ttftMean: mean(({ ttft }) => ttft),
    ttftP50: times[Math.floor(0.5 * times.length)],
    ttftP99: times[Math.floor(0.99 * times.length)],
  };
}
