// What tiers and replacement policies are worth on a real engine: RAGCache's workload in small, one request after the other.
//
// The trace is the lab's `ragcache-mmlu` (the paper's skew: 60 % of the requests go to 3 % of the documents; two documents a
// request, the second a neighbour of the first), of a smaller corpus and shorter pages in the same proportions. The working set
// is what a cache that never forgets would hold of the trace's documents, each in the context of what stands before it; the
// device holds a tenth of it. The first half of the requests fills the tiers and is not counted.
//
// `node bench/tiers.js [--models demo,random:24m] [--requests 400,300] [--shrink 32,128] [--seeds 101,102] [--documents 300]
//   [--drift 0] [--policies pgdsf,gdsf,lru,lfu] [--json <file>] [--count]`; lists of models, requests and shrinks go together.
// With `--count` nothing is computed: the cache alone runs, over a memory that holds nothing, so hit rates of many seeds take
// seconds; what prefill costs is a formula then.
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { replacementPolicy } from '../../core/dist/index.js';
import { ragCacheWorkload } from '../../lab/dist/index.js';
import { PrefixCache } from '../dist/cache/prefix-cache.js';
import { spawnEngine } from '../dist/index.js';

const { values } = parseArgs({
  options: {
    models: { type: 'string', default: 'demo,random:24m' },
    requests: { type: 'string', default: '400,300' },
    shrink: { type: 'string', default: '32,128' },
    seeds: { type: 'string', default: '101,102' },
    documents: { type: 'string', default: '300' },
    drift: { type: 'string', default: '0' },
    policies: { type: 'string', default: 'pgdsf,gdsf,lru,lfu' },
    json: { type: 'string' },
    count: { type: 'boolean', default: false },
  },
});
const MODELS = values.models.split(',');
const REQUESTS = values.requests.split(',').map(Number);
const SHRINKS = values.shrink.split(',').map(Number);
const SEEDS = values.seeds.split(',').map(Number);
const POLICIES = values.policies.split(',');
/** Host tier in multiples of the device. */
const HOST_SIZES = [0, 1, 4];
const DEVICE_SHARE = 0.1;
/** Requests that fill the tiers and are not counted. */
const WARM_UP_SHARE = 0.5;
/** llama.cpp rounds cells up to a multiple of this. */
const CELL_STEP = 256;
const BASELINE = '0x lru';

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

/** Tokens that stand for a text: the same for the same key. */
const texts = new Map();
function tokensOf({ key, tokens }) {
  let text = texts.get(key);
  if (text === undefined) {
    const next = seeded([...key].reduce((hash, letter) => Math.imul(hash, 31) + letter.charCodeAt(0), tokens));
    text = Array.from({ length: tokens }, () => 300 + Math.floor(next() * 900));
    texts.set(key, text);
  }
  return text;
}

function drawTrace(seed, requests, shrink) {
  texts.clear();
  const { documents, drift } = values;
  const options = { dataset: 'mmlu', k: 2, requests, documents: Number(documents), drift: Number(drift), shrink };
  const workload = ragCacheWorkload(seed, options);
  const held = new Map();
  const trace = workload.requests.map((request) => {
    const prompt = [...tokensOf(workload.preamble)];
    const segments = [prompt.length];
    let path = '';
    for (const { id, tokens } of request.documents) {
      prompt.push(...tokensOf({ key: id, tokens }));
      segments.push(prompt.length);
      path += ` ${id}`;
      held.set(path, tokens);
    }
    prompt.push(...tokensOf(request.question));
    return { prompt, segments };
  });
  return { trace, workingSet: [...held.values()].reduce((sum, tokens) => sum + tokens, workload.preamble.tokens) };
}

async function post(engine, body) {
  const response = await fetch(`${engine.url}/v1/completions`, { method: 'POST', body: JSON.stringify(body) });
  if (!response.ok) {
    throw new Error(await response.text());
  }
  return response.json();
}

/** Holds nothing: a saved token is a byte. */
const NO_MEMORY = {
  copy: () => undefined,
  remove: () => undefined,
  save: (_sequence, from, to) => new Uint8Array(to - from),
  restore: () => true,
  slice: (_state, from, to) => new Uint8Array(to - from),
};
/** A token costs twice as much behind 4,096 others. */
const COST = { prefillMs: (cached, count) => count * (1 + (cached + count / 2) / 4096) };

/** What {@link run} counts, without an engine. */
function count(trace, { contextTokens, policy = 'lru', hostTier = 0 }, salt) {
  const cache = new PrefixCache({
    memory: NO_MEMORY,
    cells: contextTokens,
    sequences: Array.from({ length: 255 }, (_, index) => index),
    policy: replacementPolicy(policy),
    cost: COST,
    ...(hostTier > 0 && { host: { memory: NO_MEMORY, capacityBytes: hostTier, clock: () => 0 } }),
  });
  const counted = { requests: 0, prompt: 0, device: 0, host: 0, ms: 0, meanMs: Number.NaN };
  for (const [index, { prompt, segments }] of trace.entries()) {
    const lease = cache.acquire(prompt, prompt.length - 1, segments, salt ? String(index) : undefined);
    const device = lease.length;
    const { host } = cache.extend(lease, prompt, prompt.length - 1);
    cache.grow(lease, prompt.length - device - host);
    cache.commit(lease, prompt.slice(device + host));
    cache.release(lease);
    if (index >= WARM_UP_SHARE * trace.length) {
      counted.requests++;
      counted.prompt += prompt.length;
      counted.device += device;
      counted.host += host;
    }
  }
  return counted;
}

/** @param salt Whether no request may use what another has left. */
async function run(trace, options, salt = false) {
  if (values.count) {
    return count(trace, options, salt);
  }
  const engine = await spawnEngine({ port: 0, threads: 1, ...options });
  const counted = { requests: 0, prompt: 0, device: 0, host: 0, ms: 0 };
  for (const [index, request] of trace.entries()) {
    const own = salt ? { cache_salt: String(index) } : {};
    const { usage, timings } = await post(engine, { ...request, ...own, max_tokens: 1, temperature: 0 });
    if (index >= WARM_UP_SHARE * trace.length) {
      counted.requests++;
      counted.prompt += usage.prompt_tokens;
      counted.device += timings.cached_device;
      counted.host += timings.cached_host;
      counted.ms += timings.prompt_ms;
    }
  }
  await engine.stop();
  return { ...counted, meanMs: counted.ms / counted.requests };
}

/** Bytes of one token's cells, as the engine says it. */
async function bytesPerToken(model) {
  if (values.count) {
    return 1;
  }
  const engine = await spawnEngine({ port: 0, threads: 1, model, contextTokens: 512, hostTier: 2 ** 30 });
  for (const key of ['a', 'b']) {
    await post(engine, { prompt: tokensOf({ key, tokens: 400 }), max_tokens: 1 });
  }
  const text = await (await fetch(`${engine.url}/metrics`)).text();
  const read = (name) => Number(new RegExp(`^${name}\\{.*\\} (\\S+)$`, 'm').exec(text)[1]);
  await engine.stop();
  return read('warmpath_engine_host_used_bytes') / read('warmpath_engine_host_tokens');
}

/** Every configuration on the trace of one seed, by name. */
async function measure(model, seed, { requests, shrink, tokenBytes }) {
  const { trace, workingSet } = drawTrace(seed, requests, shrink);
  const longest = Math.max(...trace.map(({ prompt }) => prompt.length)) + 1;
  const contextTokens = CELL_STEP * Math.ceil(Math.max(DEVICE_SHARE * workingSet, longest) / CELL_STEP);
  process.stdout.write(
    `${model}, seed ${seed}: working set ${Math.round(workingSet)} tokens, ${contextTokens} cells\n`,
  );
  const results = { 'no cache': await run(trace, { model, contextTokens, hostTier: 0 }, true) };
  for (const size of HOST_SIZES) {
    for (const policy of POLICIES) {
      const hostTier = Math.round(size * contextTokens * tokenBytes);
      results[`${size}x ${policy}`] = await run(trace, { model, contextTokens, policy, hostTier });
    }
  }
  return results;
}

function meanAndError(numbers, digits) {
  const mean = numbers.reduce((sum, each) => sum + each, 0) / numbers.length;
  const variance = numbers.reduce((sum, each) => sum + (each - mean) ** 2, 0) / Math.max(1, numbers.length - 1);
  return `${mean.toFixed(digits)} ± ${Math.sqrt(variance / numbers.length).toFixed(digits)}`;
}

function table(bySeed) {
  return Object.keys(bySeed[0]).map((name) => {
    const over = (read, digits) =>
      meanAndError(
        bySeed.map((results) => read(results[name], results)),
        digits,
      );
    const [size] = name.split(' ');
    const alone = name.replace(size, '0x');
    return {
      configuration: name,
      'from device %': over(({ device, prompt }) => (100 * device) / prompt, 1),
      'from host %': over(({ host, prompt }) => (100 * host) / prompt, 1),
      'hit rate %': over(({ device, host, prompt }) => (100 * (device + host)) / prompt, 1),
      'computed %': over(({ device, host, prompt }) => (100 * (prompt - device - host)) / prompt, 1),
      ...(!values.count && {
        'mean TTFT ms': over(({ meanMs }) => meanMs, 2),
        'times less than device only, LRU': over(
          ({ meanMs }, all) => (all[BASELINE]?.meanMs ?? Number.NaN) / meanMs,
          2,
        ),
        'than device only, same policy': over(({ meanMs }, all) => (all[alone] ?? all[name]).meanMs / meanMs, 2),
        'than no cache': over(({ meanMs }, all) => all['no cache'].meanMs / meanMs, 2),
      }),
    };
  });
}

const raw = {};
for (const [place, model] of MODELS.entries()) {
  const shape = { requests: REQUESTS[place] ?? REQUESTS[0], shrink: SHRINKS[place] ?? SHRINKS[0] };
  const tokenBytes = await bytesPerToken(model);
  raw[model] = [];
  for (const seed of SEEDS) {
    raw[model].push(await measure(model, seed, { ...shape, tokenBytes }));
  }
  process.stdout.write(`${model}: ${shape.requests} requests, lengths 1/${shape.shrink}, seeds ${SEEDS}\n`);
  console.table(table(raw[model]));
}
if (values.json !== undefined) {
  writeFileSync(values.json, JSON.stringify({ ...values, raw }, undefined, 2));
}
