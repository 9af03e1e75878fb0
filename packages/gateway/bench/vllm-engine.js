// Sends the requests of the comparison to vLLM, and reads what vLLM counted.
import { spawn } from 'node:child_process';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as wait } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Pool } from 'undici';
import { temporaryFolder } from './processes.js';

const START = fileURLToPath(new URL('../../../test/vllm/start.sh', import.meta.url));
const { WARMPATH_VLLM, XDG_CACHE_HOME = join(homedir(), '.cache') } = process.env;
/** The model that `test/vllm/setup.sh` makes. */
export const MODEL = join(WARMPATH_VLLM ?? join(XDG_CACHE_HOME, 'warmpath', 'vllm'), 'model');
/** Tokens of a block, as vLLM's attention for CPUs takes them, and blocks of the engines that are started here. */
export const BLOCK_TOKENS = 32;
export const BLOCKS = 512;
/** Ports that one takes in a row: for HTTP, KV events and their replay. */
export const PORTS_EACH = 3;
/** Tokens of an answer: enough for vLLM to count the prompt. */
const MAX_TOKENS = 4;
const MAX_TRIES = 5;

/** Starts the vLLM that `test/vllm/setup.sh` installs; one or two minutes. Rejects: it ended, with its last lines. */
export async function startVllm(port) {
  const [events, replay] = [1, 2].map((behind) => port + behind);
  const publisher = { enable_kv_cache_events: true, publisher: 'zmq' };
  const kvEvents = { ...publisher, endpoint: `tcp://*:${events}`, replay_endpoint: `tcp://*:${replay}` };
  const options = ['--block-size', `${BLOCK_TOKENS}`, '--num-gpu-blocks-override', `${BLOCKS}`];
  options.push('--enable-prompt-tokens-details', '--kv-events-config', JSON.stringify(kvEvents));
  const child = spawn(START, [`${port}`, ...options], {
    stdio: ['ignore', 'ignore', 'pipe'],
    env: { ...process.env, TMPDIR: temporaryFolder() },
  });
  process.once('exit', () => child.kill());
  const said = [];
  for await (const line of createInterface(child.stderr)) {
    said.push(line);
    if (!line.includes('Application startup complete')) continue;
    child.stderr.resume();
    return { url: `http://127.0.0.1:${port}` };
  }
  throw new Error(`vLLM has not started:\n${said.slice(-20).join('\n')}`);
}

/** The model that an engine serves, and the tokens that its cache holds, as far as it says. */
export async function describeEngine({ url }) {
  const { data } = await (await fetch(`${url}/v1/models`)).json();
  const metrics = await (await fetch(`${url}/metrics`)).text();
  const info = /^vllm:cache_config_info\{(.*)\}/m.exec(metrics)?.[1] ?? '';
  const number = (name) => Number(new RegExp(`\\b${name}="(\\d+)"`).exec(info)?.[1]);
  const tokens = number('num_gpu_blocks') * number('block_size');
  return { model: data[0].id, ...(tokens > 0 && { cacheTokens: tokens }) };
}

/** Empties the prefix cache. */
export async function resetCache({ url }) {
  const answer = await fetch(`${url}/reset_prefix_cache`, { method: 'POST' });
  if (!answer.ok) {
    throw new Error(`${url}/reset_prefix_cache answers ${answer.status}: start vLLM with VLLM_SERVER_DEV_MODE=1`);
  }
}

/** Prompt tokens of an engine so far, and those of them that came from its cache. */
async function countsOf({ url }) {
  const metrics = await (await fetch(`${url}/metrics`)).text();
  const sum = (name) => {
    const found = [...metrics.matchAll(new RegExp(`^vllm:${name}\\{[^\\n]*\\} (\\S+)`, 'gm'))];
    if (found.length === 0) throw new Error(`${url}/metrics has no vllm:${name}: a vLLM was expected`);
    return found.reduce((total, [, value]) => total + Number(value), 0);
  };
  return { prompt: sum('prefix_cache_queries_total'), cached: sum('prefix_cache_hits_total') };
}

/**
 * Streams the requests from `url`, so many at once.
 *
 * @returns `failed`, `ttftMs` of each request, and `promptTokens` and `computedTokens` as `engines` counted them or, if
 * there are none, as the answers say
 */
export async function play(requests, { url, engines, model, concurrency }) {
  const before = await Promise.all(engines.map(countsOf));
  const pool = new Pool(url, { connections: concurrency, headersTimeout: 0, bodyTimeout: 0 });
  const waiting = [...requests];
  const answered = [];
  const client = async () => {
    for (let request = waiting.shift(); request !== undefined; request = waiting.shift()) {
      const answer = await streamed(pool, { model, max_tokens: MAX_TOKENS, temperature: 0, ...request });
      if (answer !== undefined) answered.push(answer);
    }
  };
  await Promise.all(Array.from({ length: concurrency }, client));
  await pool.close();
  const after = await Promise.all(engines.map(countsOf));
  const sum = (of) => answered.reduce((total, answer) => total + of(answer), 0);
  const grown = (name) => after.reduce((total, counts, place) => total + counts[name] - before[place][name], 0);
  const [prompt, cached] =
    engines.length > 0
      ? [grown('prompt'), grown('cached')]
      : [sum(({ usage }) => usage.prompt_tokens), sum(({ usage }) => usage.prompt_tokens_details?.cached_tokens ?? 0)];
  return {
    requests: requests.length,
    failed: requests.length - answered.length,
    promptTokens: prompt,
    computedTokens: prompt - cached,
    ttftMs: answered.map(({ ms }) => ms),
  };
}

/**
 * Milliseconds to the first chunk of an answer, and its usage; undefined, with a line, if it fails. As OpenAI's clients
 * do, it tries again when it is told to.
 */
async function streamed(pool, fields) {
  const from = performance.now();
  const request = {
    method: 'POST',
    path: '/v1/chat/completions',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ stream: true, stream_options: { include_usage: true }, ...fields }),
  };
  let answer = await pool.request(request);
  for (let tries = 1; answer.statusCode === 429 && tries < MAX_TRIES; tries++) {
    await answer.body.dump();
    await wait(1_000 * Number(answer.headers['retry-after'] ?? 1));
    answer = await pool.request(request);
  }
  const { statusCode, body } = answer;
  let ms;
  let text = '';
  for await (const chunk of body.setEncoding('utf8')) {
    ms ??= performance.now() - from;
    text += chunk;
  }
  if (statusCode === 200 && text.includes('[DONE]') && !text.includes('"error"')) {
    const last = text.split('\n').findLast((line) => line.startsWith('data: {'));
    return { ms, usage: JSON.parse(last.slice('data: '.length)).usage };
  }
  process.stderr.write(`failed: ${statusCode} ${text.slice(0, 300)}\n`);
}
