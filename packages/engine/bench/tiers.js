// What a host tier and a replacement policy are worth: a RAGCache-like trace (two documents a request, popularity by Zipf)
// on a device that holds a tenth of the documents, one request after the other.
// `node bench/tiers.js [--model demo] [--requests 300] [--documents 60] [--tokens 150] [--seed 1]`
import { parseArgs } from 'node:util';
import { spawnEngine } from '../dist/index.js';

const { values } = parseArgs({
  options: {
    model: { type: 'string', default: 'demo' },
    requests: { type: 'string', default: '300' },
    documents: { type: 'string', default: '60' },
    tokens: { type: 'string', default: '150' },
    seed: { type: 'string', default: '1' },
  },
});
const REQUESTS = Number(values.requests);
const DOCUMENTS = Number(values.documents);
const TOKENS = Number(values.tokens);
const SYSTEM_TOKENS = 40;
const QUESTION_TOKENS = 20;
/** Requests that fill the tiers and are not counted. */
const WARM_UP = Math.floor(REQUESTS / 5);
const POLICIES = ['pgdsf', 'gdsf', 'lru', 'lfu'];
/** Host tier in multiples of the device. */
const HOST_SIZES = [0, 1, 4];

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

/** Documents differ in length, from half to one and a half times the mean. */
function tokensOf(count, salt) {
  const next = seeded(salt);
  return Array.from({ length: count }, () => 300 + Math.floor(next() * 900));
}
const SYSTEM = tokensOf(SYSTEM_TOKENS, 1);
const TEXTS = Array.from({ length: DOCUMENTS }, (_, index) =>
  tokensOf(Math.round(TOKENS * (0.5 + seeded(50_000 + index)())), 1_000 + index),
);

/** Popularity falls with the rank; what is asked for first is more popular than what is asked for second. */
function drawTrace(seed) {
  const next = seeded(seed);
  const weights = Array.from({ length: DOCUMENTS }, (_, rank) => 1 / (rank + 1));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const draw = () => {
    let rest = next() * total;
    return Math.max(
      0,
      weights.findIndex((weight) => {
        rest -= weight;
        return rest < 0;
      }),
    );
  };
  return Array.from({ length: REQUESTS }, (_, index) => {
    const first = draw();
    let second = draw();
    while (second === first) {
      second = draw();
    }
    const documents = [TEXTS[first], TEXTS[second]];
    const segments = [SYSTEM.length, SYSTEM.length + documents[0].length, SYSTEM.length + documents.flat().length];
    return { prompt: [...SYSTEM, ...documents.flat(), ...tokensOf(QUESTION_TOKENS, 100_000 + index)], segments };
  });
}

async function run(trace, options) {
  const engine = await spawnEngine({ port: 0, threads: 1, model: values.model, ...options });
  const counted = { prompt: 0, device: 0, host: 0, ms: 0 };
  for (const [index, request] of trace.entries()) {
    const response = await fetch(`${engine.url}/v1/completions`, {
      method: 'POST',
      body: JSON.stringify({ ...request, max_tokens: 1, temperature: 0 }),
    });
    const { usage, timings } = await response.json();
    if (index >= WARM_UP) {
      counted.prompt += usage.prompt_tokens;
      counted.device += timings.cached_device;
      counted.host += timings.cached_host;
      counted.ms += timings.prompt_ms;
    }
  }
  await engine.stop();
  return { ...counted, ms: counted.ms / (REQUESTS - WARM_UP) };
}

const documentTokens = TEXTS.reduce((sum, text) => sum + text.length, 0);
// What runs needs cells too; the library rounds up to 256.
const longest = SYSTEM_TOKENS + QUESTION_TOKENS + 2 * Math.max(...TEXTS.map(({ length }) => length)) + 1;
const contextTokens = Math.max(256 * Math.ceil(documentTokens / 10 / 256), 256 * Math.ceil(longest / 256));
const trace = drawTrace(Number(values.seed));

/** Bytes of one token's cells, as the engine says it. */
async function bytesPerToken() {
  const engine = await spawnEngine({ port: 0, threads: 1, model: values.model, contextTokens: 512, hostTier: 2 ** 30 });
  for (const salt of [7, 8]) {
    const prompt = tokensOf(400, salt);
    await fetch(`${engine.url}/v1/completions`, { method: 'POST', body: JSON.stringify({ prompt, max_tokens: 1 }) });
  }
  const text = await (await fetch(`${engine.url}/metrics`)).text();
  const read = (name) => Number(new RegExp(`^${name}\\{.*\\} (\\S+)$`, 'm').exec(text)[1]);
  await engine.stop();
  return read('warmpath_engine_host_used_bytes') / read('warmpath_engine_host_tokens');
}

const tokenBytes = await bytesPerToken();
process.stdout.write(`${values.model}: ${documentTokens} tokens of documents, ${contextTokens} cells\n`);
const rows = [];
for (const size of HOST_SIZES) {
  for (const policy of POLICIES) {
    const hostTier = Math.round(size * contextTokens * tokenBytes);
    const { prompt, device, host, ms } = await run(trace, { contextTokens, policy, hostTier });
    const percent = (tokens) => `${((100 * tokens) / prompt).toFixed(1)} %`;
    rows.push({
      host: `${size}x`,
      policy,
      'from device': percent(device),
      'from host': percent(host),
      computed: percent(prompt - device - host),
      'mean prompt ms': ms.toFixed(2),
    });
  }
}
console.table(rows);
