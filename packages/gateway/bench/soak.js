// Does the gateway survive, with its memory flat? A million mixed requests at full speed (plain bodies, known and never
// seen documents, streams, more tenants than are kept), some of which go wrong: engines that reset, break off, refuse
// or talk nonsense, clients that read slowly or leave in all states. Each answer is checked against its own question
// and documents, each failure against what was played. `node bench/soak.js [--requests 1000000] [--seed 42] [--json
// FILE]`. Exits with 1 where a request is not answered, an answer is wrong, anything is left behind, or memory grows:
// what is kept after a collection, and, in long runs, what is resident.
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Pool } from 'undici';
import { draws } from './draw.js';
import { keptBy, start, stopAll, usageOf } from './processes.js';
import { answerTo, FILLER, NONSENSE, PLAYS, REFUSED } from './soak-plays.js';

const { values: given } = parseArgs({
  options: {
    requests: { type: 'string', default: '1000000' },
    seed: { type: 'string', default: '42' },
    json: { type: 'string' },
  },
});
const REQUESTS = Number(given.requests);
const SAMPLES = 40;
/** Requests between two samples, at least: a collection takes as long as some requests. */
const MIN_BETWEEN = 100;
const CONCURRENT = 32;
const TENANTS = 3_000;
const PATH = '/v1/chat/completions';
/** A request that is not answered by then never will be. */
const UNANSWERED_MS = 30_000;
/** The last quarter of the requests may find so much more memory in use than the second did. */
const GROWTH = 0.1;
/**
 * From so many requests on, what is bounded is full in the second quarter: trees and tenants after 5,000 requests. What
 * is resident settles later: memory that was freed in small pieces stays with the process until it fits again.
 */
const JUDGED_FROM = { heap: 40_000, buffers: 40_000, resident: 400_000 };
/** A reader's pause, and how many it makes. */
const PAUSE_MS = 40;
const PAUSES = 5;
const SETTLED_MS = 10_000;
const SHOWN_PROBLEMS = 20;

const below = draws(Number(given.seed));
const SENTENCE = 'The engine keeps the prefix of a prompt in blocks of its cache. ';

/** Five passages of 0.6 KB: by turns from 2,000 that come again and again, or never seen before. */
function documents(index) {
  const names = new Set();
  while (names.size < 5) names.add(index % 4 === 1 ? `new-${index}-${names.size}` : `doc-${below(2_000)}`);
  return [...names].map((name) => ({ id: name, title: name, content: `${name}: ${SENTENCE.repeat(9)}` }));
}

/** The request at a place: what is sent, what the engine will play, and the answer to it. */
function requestAt(index) {
  let drawn = below(10_000);
  let play = 'whole';
  for (const [name, share] of Object.entries(PLAYS)) {
    if (drawn >= 0 && drawn < share) play = name;
    drawn -= share;
  }
  const messages = [
    { role: 'system', content: 'Answer from the documents.' },
    { role: 'user', content: `This is question ${index}, play ${play}: what is it?` },
  ];
  const given = index % 2 === 0 ? [] : documents(index);
  const stream = ['stream', 'cut stream', 'slow reader', 'left in a stream'].includes(play);
  const body = { model: 'm', messages, ...(given.length > 0 && { documents: given }), ...(stream && { stream }) };
  return {
    play,
    answer: answerTo(
      index,
      given.map(({ id }) => id),
    ),
    options: {
      method: 'POST',
      path: PATH,
      headers: { 'content-type': 'application/json', authorization: `Bearer key-${below(TENANTS)}` },
      body: JSON.stringify(body),
    },
  };
}

/** The whole of an answer, or how far it came: `{status, text, isBroken}`. */
async function exchange(pool, options, pauses = 0) {
  const { statusCode: status, body } = await pool.request(options);
  const chunks = [];
  let paused = 0;
  try {
    for await (const chunk of body) {
      chunks.push(chunk);
      if (paused++ < pauses) await sleep(PAUSE_MS);
    }
    return { status, text: Buffer.concat(chunks).toString(), isBroken: false };
  } catch (error) {
    if (isTimeout(error)) throw error;
    return { status, text: Buffer.concat(chunks).toString(), isBroken: true };
  }
}

function isTimeout({ code }) {
  return code === 'UND_ERR_HEADERS_TIMEOUT' || code === 'UND_ERR_BODY_TIMEOUT';
}

const messageOf = (text) => JSON.parse(text).choices[0].message.content;

function contentOf(stream) {
  const deltas = [...stream.matchAll(/^data: (\{.*\})$/gm)].map(
    ([, json]) => JSON.parse(json).choices[0]?.delta.content ?? '',
  );
  return deltas.join('');
}

/** What is wrong with an answer to what was played, if anything. */
const CHECKS = {
  whole: ({ status, text }, answer) => status === 200 && messageOf(text) === answer,
  stream: ({ status, text }, answer) => status === 200 && text.endsWith('[DONE]\n\n') && contentOf(text) === answer,
  'slow reader': ({ status, text }, answer) =>
    status === 200 && text.endsWith('[DONE]\n\n') && contentOf(text).replaceAll(FILLER, '') === answer,
  refused: ({ status, text }, answer) => status === REFUSED && JSON.parse(text).error.message === answer,
  nonsense: ({ status, text }, answer) => status === 200 && text === NONSENSE + answer,
  reset: isError,
  garbled: isError,
  cut: ({ isBroken }) => isBroken,
  // What came of it may only be what the engine said; then an error or a broken connection, never a good end.
  'cut stream': ({ status, text, isBroken }, answer) =>
    status === 200 &&
    !text.includes('[DONE]') &&
    (isBroken || text.includes('"error"')) &&
    answer.startsWith(contentBefore(text)),
};

/** Nothing of the engine's answer came: an error of the gateway's own. */
function isError({ status, text, isBroken }) {
  return !isBroken && status >= 500 && JSON.parse(text).error.code.startsWith('WARMPATH_UPSTREAM_');
}

function contentBefore(stream) {
  return contentOf(stream.split(/^(?:event: error|data: \{"error")/m)[0]);
}

/** Clients that leave: each resolves when it is gone. */
const DEPARTURES = {
  async 'left before an answer'(pool, options, place) {
    const leaving = new AbortController();
    const answered = exchange(pool, { ...options, signal: leaving.signal });
    await sleep(place % 5);
    leaving.abort();
    return answered.then(
      () => false,
      (error) => error.name === 'AbortError',
    );
  },
  async 'left in a stream'(pool, options) {
    const { statusCode, body } = await pool.request(options);
    await once(body, 'data');
    body.on('error', () => {}).destroy();
    return statusCode === 200;
  },
  async 'left in an upload'(pool, { path, headers, body }, place) {
    const { hostname, port } = new URL(pool.url);
    const socket = connect(Number(port), hostname).on('error', () => {});
    await once(socket, 'connect');
    const fields = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    const head = `POST ${path} HTTP/1.1\r\nhost: x\r\n${fields.join('')}content-length: ${body.length}\r\n\r\n`;
    await new Promise((resolve) => socket.write(head + body.slice(0, place % body.length), resolve));
    socket.destroy();
    return true;
  },
};

class Soak {
  /** Requests by what was played; of these, `problems` went otherwise than they should. */
  played = {};
  problems = [];
  failed = 0;
  unanswered = 0;
  #pool;

  constructor(url) {
    const limits = { headersTimeout: UNANSWERED_MS, bodyTimeout: UNANSWERED_MS };
    this.#pool = Object.assign(new Pool(url, { connections: CONCURRENT, ...limits }), { url });
  }

  async send(index) {
    const { play, answer, options } = requestAt(index);
    this.played[play] = (this.played[play] ?? 0) + 1;
    try {
      if (play in DEPARTURES) {
        if (!(await DEPARTURES[play](this.#pool, options, index))) this.#problem(index, play, 'it was answered');
        return;
      }
      const reply = await exchange(this.#pool, options, play === 'slow reader' ? PAUSES : 0);
      if (!CHECKS[play](reply, answer)) this.#problem(index, play, JSON.stringify(reply).slice(0, 400));
    } catch (error) {
      if (isTimeout(error)) this.unanswered++;
      this.#problem(index, play, error.stack);
    }
  }

  #problem(index, play, what) {
    this.failed++;
    if (this.problems.length < SHOWN_PROBLEMS) this.problems.push(`question ${index}, ${play}: ${what}`);
  }

  async close() {
    await this.#pool.close();
  }
}

/** What is still under way when all clients are gone: nothing, after a moment. */
async function leftBehind(engine, gateway) {
  const deadline = performance.now() + SETTLED_MS;
  for (;;) {
    const { open } = await usageOf(engine);
    const metrics = await (await fetch(`${gateway.url}/metrics`)).text();
    const value = (name) => {
      const values = [...metrics.matchAll(new RegExp(`^warmpath_${name}(?:\\{.*\\})? (\\d+)$`, 'gm'))];
      return values.reduce((sum, [, number]) => sum + Number(number), 0);
    };
    const left = {
      'requests at the engine': open,
      // The one for the metrics is in flight itself.
      'requests in flight': value('requests_in_flight') - 1,
      'requests at the engine, as the gateway counts': value('upstream_in_flight'),
      'requests in the queue': value('queue_depth'),
    };
    const problems = Object.entries(left).filter(([, count]) => count !== 0);
    if (problems.length === 0) return [];
    if (performance.now() > deadline) return problems.map(([name, count]) => `${count} ${name} are left`);
    await sleep(50);
  }
}

/** What is resident, and then what of it is left after a collection, in MiB. */
async function memoryOf(gateway) {
  const { residentBytes } = await usageOf(gateway);
  const { heapBytes, bufferBytes } = await keptBy(gateway);
  const [resident, heap, buffers] = [residentBytes, heapBytes, bufferBytes].map((bytes) => bytes / 2 ** 20);
  return { resident, heap, buffers };
}

/**
 * Means of the second and of the last quarter of the samples, in MiB, by kind of memory: the first quarter fills what
 * is bounded, such as trees and tenants.
 */
function drift(samples) {
  const quarter = Math.max(1, Math.floor(samples.length / 4));
  const mean = (part, kind) => part.reduce((sum, { memory }) => sum + memory[kind], 0) / part.length;
  const kinds = Object.entries(JUDGED_FROM).map(([kind, from]) => {
    const [second, last] = [samples.slice(quarter, 2 * quarter), samples.slice(-quarter)].map((part) =>
      mean(part, kind),
    );
    const isJudged = REQUESTS >= from;
    return [kind, { second, last, isJudged, grows: isJudged && last > second * (1 + GROWTH) }];
  });
  return Object.fromEntries(kinds);
}

async function measure() {
  const engine = await start('soak-engine-process.js');
  const gateway = await start('gateway-process.js', engine.url);
  const soak = new Soak(gateway.url);
  const samples = [{ requests: 0, memory: await memoryOf(gateway) }];
  const perSample = Math.max(MIN_BETWEEN, Math.ceil(REQUESTS / SAMPLES));
  const started = performance.now();
  let next = 0;
  while (next < REQUESTS) {
    const end = Math.min(REQUESTS, next + perSample);
    const worker = async () => {
      while (next < end) await soak.send(next++);
    };
    await Promise.all(Array.from({ length: CONCURRENT }, worker));
    samples.push({ requests: next, memory: await memoryOf(gateway) });
    const seconds = (performance.now() - started) / 1_000;
    const leftS = ((REQUESTS - next) * seconds) / next;
    const left = leftS < 100 ? `${leftS.toFixed(0)} s` : `${(leftS / 60).toFixed(0)} min`;
    const figures = `${(next / seconds).toFixed(0)}/s, ${shown(samples.at(-1).memory)}, ${soak.failed} wrong`;
    console.error(`${next} of ${REQUESTS} requests, ${figures}, ${left} left`);
  }
  const seconds = (performance.now() - started) / 1_000;
  await soak.close();
  const problems = [...soak.problems, ...(await leftBehind(engine, gateway))];
  const { aborted } = await usageOf(engine);
  const { played, failed, unanswered } = soak;
  if (aborted['left in a stream'] !== played['left in a stream']) {
    problems.push(
      `of ${played['left in a stream']} clients that left a stream, the engine saw ${aborted['left in a stream']}`,
    );
  }
  const memory = drift(samples);
  for (const [kind, { grows }] of Object.entries(memory)) if (grows) problems.push(`memory grows: ${kind}`);
  return { requests: REQUESTS, seconds, played, failed, unanswered, aborted, memory, samples, problems };
}

function shown({ resident, heap, buffers }) {
  return `${resident.toFixed(0)} MiB resident, kept ${heap.toFixed(0)} in the heap and ${buffers.toFixed(0)} beside it`;
}

try {
  const result = await measure();
  if (given.json !== undefined) writeFileSync(given.json, `${JSON.stringify(result, null, 1)}\n`);
  const { seconds, played, failed, unanswered, memory, problems } = result;
  for (const [play, count] of Object.entries(played)) console.log(`${String(count).padStart(10)} ${play}`);
  console.log(`${REQUESTS} requests in ${seconds.toFixed(0)} s, ${(REQUESTS / seconds).toFixed(0)} a second`);
  console.log(`${failed} answered wrongly, ${unanswered} of them not at all`);
  for (const [kind, { second, last, isJudged }] of Object.entries(memory)) {
    const judged = isJudged ? '' : `; judged from ${JUDGED_FROM[kind]} requests on`;
    const [before, after] = [second, last].map((value) => `${value.toFixed(1)} MiB`);
    console.log(`memory, ${kind}: ${before} in the second quarter of the requests, ${after} in the last${judged}`);
  }
  for (const problem of problems) console.log(problem);
  if (problems.length > 0) process.exitCode = 1;
} finally {
  stopAll();
}
