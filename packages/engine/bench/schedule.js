// First come, first served against cache-aware order, on a RAGCache-like trace (two documents a request, popularity by
// Zipf) that arrives as a Poisson process at, and beyond, what the engine can serve. The rate is measured first, with a
// queue that never runs dry; both disciplines then get the same requests at the same times. Ratios are means over
// seeds, with their standard errors: requests of one run wait for each other and say little apart. Seeds below 100 are
// for tuning. `node bench/schedule.js [--model demo] [--requests 300] [--documents 60] [--tokens 150] [--loads
// 0.8,1,1.2] [--seeds 101,102,103]
//   [--answer 8] [--running 4] [--host 0] [--window 32] [--threads 1]
//   [--stream-gap 3]`
import { request as httpRequest } from 'node:http';
import { parseArgs } from 'node:util';
import { spawnEngine } from '../dist/index.js';
import { quantile, seeded } from './draw.js';

const { values } = parseArgs({
  options: {
    model: { type: 'string', default: 'demo' },
    requests: { type: 'string', default: '300' },
    documents: { type: 'string', default: '60' },
    tokens: { type: 'string', default: '150' },
    loads: { type: 'string', default: '0.8,1,1.2' },
    seeds: { type: 'string', default: '101,102,103' },
    answer: { type: 'string', default: '8' },
    running: { type: 'string', default: '4' },
    host: { type: 'string', default: '0' },
    window: { type: 'string', default: '32' },
    threads: { type: 'string', default: '1' },
    'stream-gap': { type: 'string', default: '3' },
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
const LOADS = values.loads.split(',').map(Number);
const SEEDS = values.seeds.split(',').map(Number);
/** The first is what the other is compared with. */
const DISCIPLINES = ['fifo', 'cache-aware'];

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
    streamGap: Number(values['stream-gap']),
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

/** The mean over seeds, and its standard error. */
function overSeeds(numbers) {
  const mean = numbers.reduce((sum, each) => sum + each, 0) / numbers.length;
  const squares = numbers.reduce((sum, each) => sum + (each - mean) ** 2, 0);
  return { mean, error: Math.sqrt(squares / Math.max(1, numbers.length - 1) / numbers.length) };
}

/** What a run is judged by. */
function figures(answers) {
  const first = answers.map(({ firstMs }) => firstMs);
  const sum = (read) => answers.reduce((total, each) => total + read(each), 0);
  return {
    computed: (100 * sum(({ prompt, cached }) => prompt - cached)) / sum(({ prompt }) => prompt),
    mean: overSeeds(first).mean,
    p50: quantile(first, 0.5),
    p99: quantile(first, 0.99),
  };
}

/**
 * Both disciplines at a load: the same requests at the same times, one seed after the other, and which goes first takes
 * turns.
 */
async function compare(load, perSecond) {
  const runs = new Map(DISCIPLINES.map((schedule) => [schedule, []]));
  for (const [turn, seed] of SEEDS.entries()) {
    for (const schedule of turn % 2 === 0 ? DISCIPLINES : [...DISCIPLINES].reverse()) {
      runs.get(schedule).push(figures(await run(schedule, seed, load * perSecond)));
    }
  }
  const baseline = runs.get(DISCIPLINES[0]);
  return DISCIPLINES.map((schedule) => {
    const own = runs.get(schedule);
    const mean = (name) => overSeeds(own.map((each) => each[name])).mean.toFixed(1);
    const ratio = (name) => {
      const each = overSeeds(own.map((figure, index) => figure[name] / baseline[index][name]));
      if (schedule === DISCIPLINES[0]) {
        return '';
      }
      // One seed has no error to tell.
      return own.length === 1 ? each.mean.toFixed(2) : `${each.mean.toFixed(2)} ± ${each.error.toFixed(2)}`;
    };
    return {
      load,
      schedule,
      'computed %': mean('computed'),
      'mean TTFT ms': mean('mean'),
      'of fifo': ratio('mean'),
      'p50 ms': mean('p50'),
      'p99 ms': mean('p99'),
      'p99 of fifo': ratio('p99'),
    };
  });
}

const perSecond = await capacity();
const seconds = LOADS.reduce(
  (sum, load) => sum + (DISCIPLINES.length * SEEDS.length * REQUESTS) / (load * perSecond),
  0,
);
process.stdout.write(`${values.model}: ${contextTokens} cells, ${perSecond.toFixed(1)} requests a second; `);
process.stdout.write(`the requests of all runs take ${(seconds / 60).toFixed(1)} minutes to arrive\n`);
const rows = [];
for (const load of LOADS) {
  rows.push(...(await compare(load, perSecond)));
}
console.table(rows);
