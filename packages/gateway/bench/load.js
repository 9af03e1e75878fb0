// Sends the benchmark's requests and takes their times: so many connections for so long, one request after another
// on each; or one stream.
import { setTimeout as sleep } from 'node:timers/promises';
import { Pool } from 'undici';
import { usageOf } from './processes.js';

const PATH = '/v1/chat/completions';
/**
 * Milliseconds after the last answer in which a server finishes what it put off: that is a cost of the requests, too.
 */
const AFTERWARDS_MS = 40;
/** Requests on each connection that are not counted: what opening it costs is not what a request costs. */
const UNCOUNTED = 2;

/**
 * Requests to one server for `ms` milliseconds. `lane` is `{server, headers, bodies, next}`: `next` is the place of the
 * body to send next; where several stand in one place, one connection sends them in order. CPU is that of the server's
 * process; times are in milliseconds.
 */
export async function load(lane, { connections, ms }) {
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
    const before = await usageOf(server);
    const started = performance.now();
    const times = [];
    await atOnce(connections, async () => {
      while (performance.now() - started < ms) await sendNext(times);
    });
    const seconds = (performance.now() - started) / 1_000;
    await sleep(AFTERWARDS_MS);
    const { cpuUs } = await usageOf(server);
    return {
      times,
      requests: times.length,
      perSecond: times.length / seconds,
      cpuUs: (cpuUs - before.cpuUs) / times.length,
    };
  } finally {
    await pool.close();
  }
}

function atOnce(count, worker) {
  return Promise.all(Array.from({ length: count }, worker));
}

/** Milliseconds until the answer is complete. Whatever is not an answer ends the benchmark. */
function send(pool, headers, body) {
  return new Promise((resolve, reject) => {
    const started = performance.now();
    let status = 0;
    let bytes = 0;
    pool.dispatch(
      { method: 'POST', path: PATH, headers, body },
      {
        onRequestStart() {},
        onResponseStart(_, code) {
          status = code;
        },
        onResponseData(_, chunk) {
          bytes += chunk.length;
        },
        onResponseEnd() {
          if (status === 200 && bytes > 0) resolve(performance.now() - started);
          else reject(new Error(`answered by ${status} and ${bytes} bytes`));
        },
        onResponseError: (_, error) => reject(error),
      },
    );
  });
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

/** Milliseconds until a stream's first chunk, and between its chunks. */
export async function stream(pool, headers, body) {
  const started = performance.now();
  const response = await pool.request({ method: 'POST', path: PATH, headers, body });
  const gaps = [];
  let last = started;
  let text = '';
  for await (const chunk of response.body) {
    const now = performance.now();
    gaps.push(now - last);
    last = now;
    text += chunk.toString('latin1');
  }
  return { ttft: gaps[0], gaps: gaps.slice(1), complete: text.endsWith('[DONE]\n\n') };
}

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
        { role: 'system', content: 'Answer from the documents.' },
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
