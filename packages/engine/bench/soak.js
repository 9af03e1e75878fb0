// Whether the engine can be brought to a standstill, to a wrong account of its cells, or to growth: thousands of
// overlapping, aborted and identical requests on contexts that are far too small for them, with every tier, tenants,
// and workers that are killed. Loopback only, seeded; the processes are looked at in /proc, so it needs Linux. `node
// bench/soak.js [--requests 4000] [--seed 1] [--rounds 0,4,6] [--parallel 2]`. Exits with 1 when something is wrong.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { ERROR_TABLE } from '@warmpath/core/internal';
import { spawnEngine } from '../dist/index.js';
import { seeded } from './draw.js';
import { modelPath } from './random-model/dist/model-path.js';

const { values } = parseArgs({
  options: {
    requests: { type: 'string' },
    seed: { type: 'string' },
    rounds: { type: 'string' },
    parallel: { type: 'string' },
  },
});
const REQUESTS = Number(values.requests ?? 4_000);
const SEED = Number(values.seed ?? 1);
/** Rounds at a time. */
const PARALLEL = Number(values.parallel ?? availableParallelism());
/** Without one finished or refused request in this time, the engine stands still. */
const STANDSTILL_MS = 60_000;
/** Growth of the resident memory between the first quarter of the requests and the end that counts as a leak. */
const GROWTH_BYTES = 48 * 2 ** 20;
const SEQUENCES = 255;
/** Of Linux's `/proc`. */
const TICKS_PER_SECOND = 100;
/** Of a client that waits for its whole answer. */
const NEVER = { kind: 'never' };

const ROUNDS = [
  { clients: 8, options: { model: 'demo', contextTokens: 2048 } },
  { clients: 24, options: { model: 'demo', contextTokens: 2048, batchTokens: 64, maxRunning: 24, queueLimit: 6 } },
  { clients: 16, options: { model: 'random:1m', contextTokens: 4096, maxRunning: 12 } },
  {
    clients: 24,
    options: { model: 'random:1m', contextTokens: 2048, batchTokens: 32, maxRunning: 32, queueLimit: 64 },
  },
  // Everything comes and goes between two tiers that are both too small.
  {
    clients: 12,
    options: { model: 'demo', contextTokens: 2048, hostTier: 4 * 2 ** 20, policy: 'pgdsf' },
  },
  {
    clients: 24,
    options: { model: 'random:1m', contextTokens: 2048, batchTokens: 64, hostTier: 2 ** 20, policy: 'lru' },
  },
  {
    clients: 12,
    disk: true,
    options: {
      model: 'demo',
      contextTokens: 2048,
      hostTier: 3 * 2 ** 20,
      diskTierBytes: 12 * 2 ** 20,
      policy: 'pgdsf',
    },
  },
  // The same with workers that are killed: streams go on, and everything else is computed again.
  {
    clients: 12,
    killEvery: 100,
    options: { model: 'demo', contextTokens: 2048, hostTier: 4 * 2 ** 20, batchInvariant: true },
  },
  { clients: 1, options: { model: 'demo', contextTokens: 2048 } },
];

/** A document is always the same text; prompts are sequences of some of forty, so that they share beginnings. */
const WORDS = 'weight colour founder river engine cache prefix token order document answer question kg teal'.split(' ');
function documentText(index) {
  const next = seeded(7_000 + index);
  const length = 20 + Math.floor(next() * 120);
  return Array.from({ length }, () => WORDS[Math.floor(next() * WORDS.length)]).join(' ');
}
const DOCUMENTS = Array.from({ length: 40 }, (_, index) => documentText(index));

function prompt(next) {
  const texts = Array.from({ length: 1 + Math.floor(next() ** 2 * 9) }, () => DOCUMENTS[Math.floor(next() ** 2 * 40)]);
  return `${texts.join('\n')}\nQuestion ${Math.floor(next() * 5)}?`;
}

function tokens(next) {
  const family = Math.floor(next() * 4);
  const shared = Math.floor(next() * 900);
  const own = 1 + Math.floor(next() * 500);
  const salt = Math.floor(next() * 1000);
  return [
    ...Array.from({ length: shared }, (_, index) => 300 + ((family * 131 + index * 7) % 900)),
    ...Array.from({ length: own }, (_, index) => 300 + ((salt * 17 + index * 11) % 900)),
  ];
}

/** One request as some client might send it. */
function drawRequest(next) {
  const kind = next();
  const fields = {
    max_tokens: 1 + Math.floor(next() * 64),
    stream: next() < 0.5,
    temperature: next() < 0.4 ? 0 : 1,
    ...(next() < 0.3 && { top_p: 0.9 }),
    ...(next() < 0.3 && { stop: ['kg', ' a', '\n'] }),
    ...(next() < 0.3 && { ignore_eos: true }),
    seed: Math.floor(next() * 1000),
    ...(next() < 0.2 && { cache_salt: `tenant ${Math.floor(next() * 3)}` }),
    ...(next() < 0.05 && { max_tokens: 0 }),
  };
  if (kind < 0.4) {
    return { path: '/v1/chat/completions', body: { messages: [{ role: 'user', content: prompt(next) }], ...fields } };
  }
  if (kind < 0.97) {
    return { path: '/v1/completions', body: { prompt: kind < 0.6 ? prompt(next) : tokens(next), ...fields } };
  }
  const wrong = [{ prompt: [] }, { prompt: tokens(next), max_tokens: 5000 }, { prompt: [-1] }, { prompt: 'x', n: 2 }];
  return { path: '/v1/completions', body: wrong[Math.floor(next() * wrong.length)] };
}

/** When the client goes away: never, while it sends, when the head is there, or after some of the body. */
function drawAbort(next) {
  const draw = next();
  if (draw < 0.7) {
    return NEVER;
  }
  return draw < 0.85 ? { kind: 'after', ms: next() ** 2 * 300 } : { kind: 'chunks', count: Math.floor(next() * 12) };
}

/** @returns How the request ended: `finished`, `aborted` or an error's code. */
function send(url, { path, body }, abort) {
  return new Promise((resolve) => {
    const outgoing = httpRequest(url + path, { method: 'POST', agent: false });
    const leave = () => {
      outgoing.destroy();
      resolve('aborted');
    };
    const timer = abort.kind === 'after' ? setTimeout(leave, abort.ms) : undefined;
    outgoing.once('error', (error) => resolve(abort.kind === 'never' ? `socket: ${error.message}` : 'aborted'));
    outgoing.once('close', () => clearTimeout(timer));
    outgoing.once('response', (incoming) => {
      let text = '';
      let chunks = 0;
      incoming.setEncoding('utf8');
      incoming.on('data', (part) => {
        text += part;
        chunks++;
        if (abort.kind === 'chunks' && chunks > abort.count) {
          leave();
        }
      });
      incoming.once('error', () => resolve(abort.kind === 'never' ? 'cut off' : 'aborted'));
      incoming.once('end', () => resolve(verdict(incoming.statusCode, text, body)));
    });
    outgoing.end(JSON.stringify(body));
  });
}

function verdict(status, text, { stream, max_tokens: mostTokens }) {
  if (status !== 200) {
    return JSON.parse(text).error.code;
  }
  if (stream === true) {
    if (text.endsWith('data: [DONE]\n\n')) return 'finished';
    return text.includes('WARMPATH_ENGINE_FAILED') ? 'WARMPATH_ENGINE_FAILED' : 'a stream without its end';
  }
  const { usage, timings } = JSON.parse(text);
  if (usage === undefined) {
    return 'finished';
  }
  const cached = usage.prompt_tokens_details.cached_tokens;
  // The last token of a prompt is computed, for its logits, unless nothing is to be generated.
  const mostCached = usage.prompt_tokens - (mostTokens === 0 ? 0 : 1);
  const isSound = cached >= 0 && cached <= mostCached && timings.prompt_n === usage.prompt_tokens - cached;
  return isSound ? 'finished' : `cached ${cached} of ${usage.prompt_tokens}`;
}

function get(url, path) {
  return new Promise((resolve, reject) => {
    const outgoing = httpRequest(url + path, { agent: false, timeout: 5_000 }, (incoming) => {
      let text = '';
      incoming.setEncoding('utf8');
      incoming.on('data', (part) => {
        text += part;
      });
      incoming.once('end', () => resolve(text));
    });
    outgoing.once('timeout', () => outgoing.destroy(new Error('no answer within 5 s')));
    outgoing.once('error', reject);
    outgoing.end();
  });
}

async function metrics(url) {
  const lines = (await get(url, '/metrics')).split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  const read = (name) =>
    Number(
      lines
        .find((line) => line.startsWith(`${name}{`))
        ?.split(' ')
        .pop(),
    );
  return {
    running: read('vllm:num_requests_running'),
    waiting: read('vllm:num_requests_waiting'),
    preemptions: read('vllm:num_preemptions_total'),
    evicted: read('warmpath_engine_evicted_tokens'),
    used: read('warmpath_engine_used_cells'),
    cached: read('warmpath_engine_cached_cells'),
    freeSequences: read('warmpath_engine_free_sequences'),
    hostBytes: read('warmpath_engine_host_used_bytes'),
    diskBytes: read('warmpath_engine_disk_used_bytes'),
    diskFailures: read('warmpath_engine_disk_failures_total'),
    loaded: read('warmpath_engine_disk_loaded_tokens_total'),
    restarts: read('warmpath_engine_restarts_total'),
    restored: read('warmpath_engine_host_restored_tokens_total'),
    hostFailures: read('warmpath_engine_host_failures_total'),
    steps: read('warmpath_engine_steps_total'),
  };
}

/** Resident bytes of the process that computes. */
function residentBytes({ pid }) {
  return pid === undefined ? 0 : processFigures(pid).rss;
}

function processFigures(pid) {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
  return {
    state: stat[0],
    cpuTicks: Number(stat[11]) + Number(stat[12]),
    rss: Number(/VmRSS:\s+(\d+)/.exec(status)[1]) * 1024,
  };
}

/** What can be said of an engine that stands still: whether it answers, and whether it burns its core or sleeps. */
async function diagnose(engine) {
  const before = processFigures(engine.pid);
  const state = await metrics(engine.url).catch((error) => error.message);
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  const after = processFigures(engine.pid);
  return { metrics: state, process: after.state, cpuTicksInASecond: after.cpuTicks - before.cpuTicks };
}

async function soak({ clients, options: given, disk = false, killEvery = Number.POSITIVE_INFINITY }, requests, seed) {
  const folder = disk ? mkdtempSync(join(tmpdir(), 'warmpath-soak-')) : undefined;
  const options = { hostTier: 0, ...given, ...(folder !== undefined && { diskTier: folder }) };
  const crashes = [];
  const onCrash = ({ message }) => crashes.push(message);
  const model = await modelPath(options.model);
  const engine = await spawnEngine({ port: 0, threads: 1, ...options, model }, { onCrash });
  const outcomes = new Map();
  let sent = 0;
  let lastProgress = Date.now();
  let early;
  let kills = 0;
  let standstill;
  const watchdog = setInterval(() => {
    if (Date.now() - lastProgress > STANDSTILL_MS && standstill === undefined) {
      standstill = diagnose(engine).then((report) => {
        process.stderr.write(`${JSON.stringify({ standstill: report })}\n`);
        process.kill(engine.pid, 'SIGKILL');
      });
    }
  }, 1_000);
  const client = async (index) => {
    const next = seeded(seed * 1_000 + index);
    let previous;
    while (sent < requests && standstill === undefined) {
      sent++;
      // Often the very request that another client has just sent: the same prompt, twice in flight.
      const drawn = previous !== undefined && next() < 0.15 ? previous : drawRequest(next);
      previous = drawn;
      const twin = next() < 0.1 ? send(engine.url, drawn, drawAbort(next)) : undefined;
      const end = await send(engine.url, drawn, drawAbort(next));
      const ends = [end, ...(twin === undefined ? [] : [await twin])];
      if (ends.includes('WARMPATH_OVERLOADED')) {
        await new Promise((resolve) => setTimeout(resolve, next() * 400));
      }
      for (const end of ends) {
        outcomes.set(end, (outcomes.get(end) ?? 0) + 1);
      }
      lastProgress = Date.now();
      if (early === undefined && sent > requests / 4) {
        early = residentBytes(engine);
      }
      if (sent >= (kills + 1) * killEvery && engine.pid !== undefined) {
        process.kill(engine.pid, ['SIGKILL', 'SIGSEGV'][kills++ % 2]);
      }
    }
  };
  const startedMs = Date.now();
  await Promise.all(Array.from({ length: clients }, (_, index) => client(index)));
  clearInterval(watchdog);
  await standstill;
  const faults =
    standstill === undefined ? await audit(engine, outcomes, { early, options, kills }) : ['the engine stood still'];
  if (crashes.length > kills) {
    faults.push(...crashes.filter((message) => !message.includes('signal')));
  }
  const state = standstill === undefined ? await metrics(engine.url) : {};
  const worker = standstill === undefined ? engine.pid : undefined;
  // Of the last worker; the machine's other work does not count in it.
  const cpuSeconds = worker === undefined ? undefined : processFigures(worker).cpuTicks / TICKS_PER_SECOND;
  await engine.stop();
  if (folder !== undefined) {
    rmSync(folder, { recursive: true });
  }
  return {
    ...options,
    clients,
    seconds: (Date.now() - startedMs) / 1000,
    cpuSeconds,
    outcomes: Object.fromEntries(outcomes),
    kills,
    ...state,
    faults,
  };
}

/** Aborted requests leave after the current step, which is waited for, but not for ever. */
async function idle(url) {
  const untilMs = Date.now() + 10_000;
  for (;;) {
    const state = await metrics(url);
    if ((state.running === 0 && state.waiting === 0) || Date.now() > untilMs) {
      return state;
    }
  }
}

/**
 * Requests for as many tokens as there are cells, which nobody has sent: everything else has to leave, and with it
 * every sequence id that is not leaked.
 */
async function flush({ url, cells, model }) {
  const length = Math.min(cells, model.contextTokens) - 1;
  const count = Math.ceil(cells / length);
  for (let index = 0; index < count; index++) {
    const prompt = Array.from({ length }, (_, at) => 300 + ((at * 13 + index * 7 + 5) % 900));
    await send(url, { path: '/v1/completions', body: { prompt, max_tokens: 1, cache_salt: `flush ${index}` } }, NEVER);
  }
  return count;
}

async function audit(engine, outcomes, { early, options, kills }) {
  const faults = [];
  for (const outcome of outcomes.keys()) {
    const isCrash = outcome === 'WARMPATH_ENGINE_FAILED' && kills === 0;
    const isRefusal = outcome in ERROR_TABLE && outcome !== 'WARMPATH_INTERNAL' && !isCrash;
    if (outcome !== 'finished' && outcome !== 'aborted' && !isRefusal) {
      faults.push(outcome);
    }
  }
  await idle(engine.url);
  const flushed = await flush(engine);
  const state = await idle(engine.url);
  if (state.running !== 0 || state.waiting !== 0) {
    faults.push(`${state.running} running and ${state.waiting} waiting when idle`);
  }
  if (state.used !== state.cached) {
    faults.push(`${state.used - state.cached} cells belong to nobody`);
  }
  // What is flushed keeps one id each, and what is left of the leaf that gave the last cells another.
  if (state.freeSequences < SEQUENCES - flushed - 1 || state.freeSequences > SEQUENCES) {
    faults.push(`${state.freeSequences} free sequence ids after ${flushed} prompts that need every cell`);
  }
  const { hostTier } = options;
  if (state.hostFailures !== 0 || state.hostBytes > hostTier) {
    faults.push(`${state.hostFailures} copies were no good, and ${state.hostBytes} bytes of ${hostTier} are in use`);
  }
  const diskTier = options.diskTierBytes ?? 0;
  if (state.diskFailures !== 0 || state.diskBytes > diskTier) {
    faults.push(
      `${state.diskFailures} files were no good, and ${state.diskBytes} bytes of ${diskTier} are on the disk`,
    );
  }
  const now = residentBytes(engine);
  if (kills === 0) {
    const mib = [early, now].map((bytes) => (bytes / 2 ** 20).toFixed(0));
    process.stderr.write(`resident memory ${mib.join(' -> ')} MiB\n`);
    if (now - early > GROWTH_BYTES) {
      faults.push(`resident memory grew from ${early} to ${now} bytes`);
    }
  }
  return faults;
}

const chosen = values.rounds?.split(',').map(Number) ?? [...ROUNDS.keys()];
const waiting = [...chosen];
let isSound = true;
/** Every round's engine has a thread of its own: as many run at a time as there are cores. */
async function soakWaiting() {
  for (let index = waiting.shift(); index !== undefined; index = waiting.shift()) {
    const result = await soak(ROUNDS[index], Math.ceil(REQUESTS / chosen.length), SEED * 100 + index);
    isSound &&= result.faults.length === 0;
    process.stdout.write(`${JSON.stringify({ round: index, ...result })}\n`);
  }
}
await Promise.all(Array.from({ length: PARALLEL }, soakWaiting));
process.exitCode = isSound ? 0 : 1;
