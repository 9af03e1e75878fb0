// How long running streams wait for their next token while a long prompt is computed, against when they are alone; and
// how long that prompt takes when nobody streams. `node bench/gaps.js [--models demo,random:24m] [--streams 8]
// [--prompt 4000] [--quiet 200] [--threads 1] [--batch-tokens 128]`
import { request as httpRequest } from 'node:http';
import { parseArgs } from 'node:util';
import { spawnEngine } from '../dist/index.js';
import { quantile } from './draw.js';
import { modelPath } from './random-model/dist/model-path.js';

const { values } = parseArgs({
  options: {
    models: { type: 'string', default: 'demo,random:24m' },
    streams: { type: 'string', default: '8' },
    prompt: { type: 'string', default: '4000' },
    quiet: { type: 'string', default: '200' },
    threads: { type: 'string', default: '1' },
    'batch-tokens': { type: 'string', default: '128' },
  },
});
const STREAMS = Number(values.streams);
const PROMPT_TOKENS = Number(values.prompt);
/** Tokens of each stream that are measured before the prompt arrives. */
const QUIET_TOKENS = Number(values.quiet);
/** Tokens of each stream that are measured after the prompt is answered. */
const AFTER_TOKENS = 60;
const STREAM_PROMPT_TOKENS = 40;
/** More than a stream has while the prompt is computed, and cells for all of them: nothing may end or give way. */
const STREAM_TOKENS = 3_000;
const CELLS = STREAMS * (STREAM_PROMPT_TOKENS + STREAM_TOKENS) + PROMPT_TOKENS + 1_000;

/** Token ids that stand for ordinary text, different for every salt. */
function tokensOf(count, salt) {
  return Array.from({ length: count }, (_, index) => 260 + ((index * 7 + salt * 131 + ((index * index) % 97)) % 1200));
}

/** A stream on a socket of its own; `onToken` hears the time of every token. */
function openStream(url, salt, onToken) {
  const request = httpRequest(`${url}/v1/completions`, { method: 'POST', agent: false });
  const ended = new Promise((resolve) => {
    request.on('error', resolve);
    request.on('response', (response) => {
      response.setEncoding('utf8');
      response.on('data', (text) => {
        const now = performance.now();
        for (let at = text.indexOf('"text":'); at >= 0; at = text.indexOf('"text":', at + 1)) {
          onToken(now);
        }
      });
      response.on('close', resolve);
    });
  });
  const body = {
    prompt: tokensOf(STREAM_PROMPT_TOKENS, salt),
    max_tokens: STREAM_TOKENS,
    ignore_eos: true,
    stream: true,
  };
  request.end(JSON.stringify({ ...body, temperature: 0 }));
  return { close: () => request.destroy(), ended };
}

async function prefill(url, salt) {
  const start = performance.now();
  const response = await fetch(`${url}/v1/completions`, {
    method: 'POST',
    body: JSON.stringify({ prompt: tokensOf(PROMPT_TOKENS, salt), max_tokens: 1, temperature: 0 }),
  });
  const answer = await response.json();
  if (answer.usage === undefined) {
    throw new Error(JSON.stringify(answer));
  }
  return performance.now() - start;
}

async function measure(model) {
  const options = {
    port: 0,
    model: await modelPath(model),
    threads: Number(values.threads),
    batchTokens: Number(values['batch-tokens']),
  };
  const engine = await spawnEngine({ ...options, contextTokens: CELLS });
  const aloneMs = await prefill(engine.url, 900);
  const times = Array.from({ length: STREAMS }, () => []);
  let isQuietOver;
  let onLater = () => undefined;
  const quietOver = new Promise((resolve) => {
    isQuietOver = resolve;
  });
  const streams = times.map((own, index) =>
    openStream(engine.url, index, (now) => {
      own.push(now);
      onLater();
      if (times.every(({ length }) => length >= QUIET_TOKENS)) {
        isQuietOver();
      }
    }),
  );
  // A stream that ends before it is closed leaves nothing to be measured.
  const ended = Promise.race(streams.map(({ ended }) => ended)).then(() => {
    throw new Error('A stream has come to its end before the prompt');
  });
  ended.catch(() => undefined);
  await Promise.race([quietOver, ended]);
  // Only while all of them run and none of their prompts is left.
  const quietFrom = Math.max(...times.map((own) => own[10]));
  const arrival = performance.now();
  const besideMs = await Promise.race([prefill(engine.url, 901), ended]);
  const end = performance.now();
  // The streams are longer now and the cells fuller: what is quiet then, the prompt has no part in.
  const quietSteps = times[0].length + AFTER_TOKENS;
  const isLater = new Promise((resolve) => {
    onLater = () => times[0].length >= quietSteps && resolve();
  });
  await Promise.race([isLater, ended]);
  const later = performance.now();
  for (const stream of streams) {
    stream.close();
  }
  await Promise.all(streams.map(({ ended }) => ended));
  await engine.stop();
  const gaps = (from, to) =>
    times.flatMap((own) => own.slice(1).flatMap((time, i) => (own[i] >= from && time <= to ? [time - own[i]] : [])));
  const quiet = gaps(quietFrom, arrival);
  const during = gaps(arrival, end);
  const median = quantile(quiet, 0.5);
  const after = quantile(gaps(end, later), 0.5);
  // Of the last tenth, against what is quiet when it is over.
  const last = gaps(end - (end - arrival) / 10, end);
  return {
    model,
    'quiet median ms': median.toFixed(2),
    'quiet p99': `${(quantile(quiet, 0.99) / median).toFixed(2)}x`,
    gaps: during.length,
    'median beside a prompt': `${(quantile(during, 0.5) / median).toFixed(2)}x`,
    p99: `${(quantile(during, 0.99) / median).toFixed(2)}x`,
    longest: `${(Math.max(...during) / median).toFixed(2)}x`,
    'quiet afterwards': `${(after / median).toFixed(2)}x`,
    'last tenth, of quiet afterwards': `${(quantile(last, 0.5) / after).toFixed(2)}x, p99 ${(quantile(last, 0.99) / after).toFixed(2)}x`,
    'prompt ms beside streams': besideMs.toFixed(0),
    'prompt ms alone': aloneMs.toFixed(0),
  };
}

const rows = [];
for (const model of values.models.split(',')) {
  rows.push(await measure(model));
}
console.table(rows);
