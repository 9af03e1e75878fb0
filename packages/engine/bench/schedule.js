// First come, first served against cache-aware order, on a RAGCache-like trace (two documents a request, popularity by Zipf)
// that arrives as a Poisson process at, and beyond, what the engine can serve. The rate is measured first, with a queue that
// never runs dry; both disciplines then get the same requests at the same times.
// `node bench/schedule.js [--model demo] [--requests 300] [--documents 60] [--tokens 150] [--loads 0.8,1,1.2] [--seeds 1,2,3]
//   [--answer 8] [--running 4] [--host 0] [--window 32] [--threads 1]`
import { request as httpRequest } from 'node:http';
import { parseArgs } from 'node:util';
import { spawnEngine } from '../dist/index.js';

const { values } = parseArgs({
  options: {
    model: { type: 'string', default: 'demo' },
    requests: { type: 'string', default: '300' },
    documents: { type: 'string', default: '60' },
    tokens: { type: 'string', default: '150' },
    loads: { type: 'string', default: '0.8,1,1.2' },
    seeds: { type: 'string', default: '1,2,3' },
    answer: { type: 'string', default: '8' },
    running: { type: 'string', default: '4' },
    host: { type: 'string', default: '0' },
    window: { type: 'string', default: '32' },
    threads: { type: 'string', default: '1' },
  },
});
const REQUESTS = Number(values.requests);
const DOCUMENTS = Number(values.documents);
const TOKENS = Number(values.tokens);
const ANSWER_TOKENS = Number(values.answer);
const SYSTEM_TOKENS = 40;
const QUESTION_TOKENS = 20;
/** Requests that fill the cache and are not counted. */
const WARM_UP = Math.floor(REQUESTS / 5);
const DISCIPLINES = ['fifo', 'cache-aware'];

/** mulberry32: numbers in [0, 1), the same for the same seed. */
function seeded(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b_79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

function tokensOf(count, salt) {
  const next = seeded(salt);
  return Array.from({ length: count }, () => 300 + Math.floor(next() * 900));
}
const SYSTEM = tokensOf(SYSTEM_TOKENS, 1);
const TEXTS = Array.from({ length: DOCUMENTS }, (_, index) =>
  tokensOf(Math.round(TOKENS * (0.5 + seeded(50_000 + index)())), 1_000 + index),
);

/** Popularity falls with the rank. */
function drawPrompts(seed) {
  const next = seeded(seed);
  const weights = Array.from({ length: DOCUMENTS }, (_, rank) => 1 / (rank + 1));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const draw = () => {
    let rest = next() * total;
    const found = weights.findIndex((weight) => {
      rest -= weight;
      return rest < 0;
    });
    return Math.max(0, found);
  };
  return Array.from({ length: REQUESTS }, (_, index) => {
    const first = draw();
    let second = draw();
    while (second === first) {
      second = draw();
    }
    const [a, b] = [TEXTS[first], TEXTS[second]];
    const segments = [SYSTEM.length, SYSTEM.length + a.length, SYSTEM.length + a.length + b.length];
    return { prompt: [...SYSTEM, ...a, ...b, ...tokensOf(QUESTION_TOKENS, 100_000 * seed + index)], segments };
  });
}

/** Sends a request; answers when its first token and its end came, and the tokens that were not computed. */
function send(url, body) {
  const sent = performance.now();
  return new Promise((resolve, reject) => {
    const request = httpRequest(`${url}/v1/completions`, { method: 'POST', agent: false });
    request.on('error', reject);
    request.on('response', (response) => {
      let text = '';
      let firstMs;
      response.setEncoding('utf8');
      response.on('data', (part) => {
        firstMs ??= performance.now() - sent;
        text += part;
      });
      response.on('end', () => {
        const usage = /"usage":(\{.*?\}\}\})/.exec(text);
        if (usage === null) {
          reject(new Error(text));
          return;
        }
        const { prompt_tokens: prompt, prompt_tokens_details: details } = JSON.parse(usage[1]);
        resolve({ firstMs, prompt, cached: details.cached_tokens });
      });
    });
    const fields = { max_tokens: ANSWER_TOKENS, ignore_eos: true, temperature: 0, stream: true };
    request.end(JSON.stringify({ ...body, ...fields, stream_options: { include_usage: true } }));
  });
}

const documentTokens = TEXTS.reduce((sum, text) => sum + text.length, 0);
const longest = SYSTEM_TOKENS + QUESTION_TOKENS + ANSWER_TOKENS + 2 * Math.max(...TEXTS.map(({ length }) => length));
const RUNNING = Number(values.running);
/** A tenth of the documents beside what runs. */
const contextTokens = 256 * Math.ceil((documentTokens / 10 + RUNNING * longest) / 256);

function start(schedule) {
  const { model } = values;
  const options = { model, schedule, contextTokens, maxRunning: RUNNING, queueLimit: REQUESTS, policy: 'pgdsf' };
  return spawnEngine({
    ...options,
    port: 0,
    threads: Number(values.threads),
    hostTier: Number(values.host),
    window: Number(values.window),
  });
}

/** Requests a second of an engine that always has some waiting. */
async function capacity() {
  const engine = await start('fifo');
  const prompts = drawPrompts(1_000);
  let next = 0;
  let started = performance.now();
  const client = async () => {
    while (next < prompts.length) {
      if (next === WARM_UP) {
        started = performance.now();
      }
      await send(engine.url, prompts[next++]);
    }
  };
  await Promise.all(Array.from({ length: 2 * RUNNING }, client));
  const perSecond = (1000 * (REQUESTS - WARM_UP)) / (performance.now() - started);
  await engine.stop();
  return perSecond;
}

async function run(schedule, seed, perSecond) {
  const engine = await start(schedule);
  const next = seeded(7_000 + seed);
  const results = [];
  let due = performance.now();
  for (const prompt of drawPrompts(seed)) {
    due += (-Math.log(1 - next()) * 1000) / perSecond;
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, due - performance.now())));
    results.push(send(engine.url, prompt));
  }
  const done = (await Promise.all(results)).slice(WARM_UP);
  await engine.stop();
  return done;
}

function quantile(numbers, share) {
  const sorted = [...numbers].sort((a, b) => a - b);
  return sorted[Math.floor(share * (sorted.length - 1))];
}

const perSecond = await capacity();
process.stdout.write(`${values.model}: ${contextTokens} cells, ${perSecond.toFixed(1)} requests a second\n`);
const rows = [];
for (const load of values.loads.split(',').map(Number)) {
  for (const schedule of DISCIPLINES) {
    const all = [];
    for (const seed of values.seeds.split(',').map(Number)) {
      all.push(...(await run(schedule, seed, load * perSecond)));
    }
    const first = all.map(({ firstMs }) => firstMs);
    const sum = (read) => all.reduce((total, each) => total + read(each), 0);
    rows.push({
      load,
      schedule,
      computed: `${((100 * sum(({ prompt, cached }) => prompt - cached)) / sum(({ prompt }) => prompt)).toFixed(1)} %`,
      'mean TTFT ms': (sum(({ firstMs }) => firstMs) / all.length).toFixed(1),
      'p50 ms': quantile(first, 0.5).toFixed(1),
      'p99 ms': quantile(first, 0.99).toFixed(1),
    });
  }
}
console.table(rows);
