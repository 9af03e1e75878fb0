// The limit that the gateway learns, beside fixed ones: how many tokens an engine that takes eight requests at once
// computes, and how long clients wait for the first one. Clients ask one request after the other, so that more are
// there than the engine takes. Every lane has an engine of its own, over the same requests.
// `node bench/adaptive.js [--engine timed|embedded] [--requests 800] [--clients 32] [--running 8] [--limits 1,2,4,8,16]
// [--tokens 8] [--json FILE]`, after a build. `timed` has a prefix cache and a model of time (`timed-engine.js`).
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { spawnEngine } from '@warmpath/engine';
import { modelPath } from '../../engine/bench/random-model/dist/model-path.js';
import { startGateway } from '../dist/index.js';
import { draws, prose } from './draw.js';
import { askOver, summaryOf } from './load.js';
import { startTimedEngine } from './timed-engine.js';

const { values } = parseArgs({
  options: {
    engine: { type: 'string', default: 'timed' },
    requests: { type: 'string', default: '800' },
    clients: { type: 'string', default: '32' },
    running: { type: 'string', default: '8' },
    limits: { type: 'string', default: '1,2,4,8,16' },
    tokens: { type: 'string', default: '8' },
    json: { type: 'string' },
  },
});
const [REQUESTS, CLIENTS, RUNNING, TOKENS] = [values.requests, values.clients, values.running, values.tokens].map(
  Number,
);
const UNLIMITED = 1_024;
const DOCUMENTS = 120;
const TOP = 5;
/** What a new engine and a new gateway learn at first does not count. */
const WARM_UP = 0.25;
/** A lane that takes so many times as long as the fastest one leaves its engine idle. */
const SLOWEST = 1.25;
/** The limit is looked at after so many requests. */
const LOOK = 10;
/** Room for what runs, and for some twenty prompts that stay cached. */
const CACHE_TOKENS = 16_384;
/** One token of a prompt, and one of an answer, in milliseconds: long beside what the machine under them takes. */
const TIMES = { newTokenMs: 0.5, stepMs: 10 };

async function startEngine() {
  if (values.engine === 'timed') return startTimedEngine({ running: RUNNING, cacheTokens: CACHE_TOKENS, ...TIMES });
  const model = await modelPath('random:1m');
  return spawnEngine({ port: 0, model, threads: 1, contextTokens: CACHE_TOKENS, hostTier: 0, maxRunning: RUNNING });
}

const next = draws();
const documents = Array.from({ length: DOCUMENTS }, (_, number) => ({
  id: `document-${number}`,
  content: prose(next, 30 + next(120)),
}));
/** Neighbours of a document that is the likelier the lower its number. */
const requests = Array.from({ length: REQUESTS }, (_, number) => {
  const centre = Math.floor(DOCUMENTS ** (next(1_000_000) / 1_000_000)) - 1;
  const ranks = new Set();
  while (ranks.size < TOP) ranks.add((centre + next(9)) % DOCUMENTS);
  return { question: `Question ${number}: ${prose(next, 6)}?`, documents: [...ranks].map((rank) => documents[rank]) };
});

const LANES = [
  { name: 'retrieval, unlimited', policy: 'retrieval', limit: UNLIMITED, adaptive: false },
  { name: 'exact, unlimited', policy: 'exact', limit: UNLIMITED, adaptive: false },
  { name: 'foresight, unlimited', policy: 'foresight', limit: UNLIMITED, adaptive: false },
  ...values.limits.split(',').map((limit) => {
    return { name: `foresight, ${limit} at once`, policy: 'foresight', limit: Number(limit), adaptive: false };
  }),
  { name: 'foresight, as installed', policy: 'foresight', limit: UNLIMITED, adaptive: true },
];

async function limitOf({ url }) {
  const text = await (await fetch(`${url}/metrics`)).text();
  return Number(/^warmpath_engine_limit\{[^}]*\} (.*)$/m.exec(text)[1]);
}

async function run({ policy, limit, adaptive }) {
  const engine = await startEngine();
  const gateway = await startGateway({
    server: { port: 0 },
    upstream: { url: engine.url, maxConcurrent: limit },
    arrange: { policy },
    queue: { adaptive },
    log: { level: 'silent' },
  });
  try {
    const answers = [];
    const limits = [];
    let turn = 0;
    const begin = performance.now();
    await Promise.all(
      Array.from({ length: CLIENTS }, async () => {
        while (turn < requests.length) {
          const number = turn++;
          answers[number] = await askOver(gateway.url, requests[number], TOKENS);
          if (number % LOOK === 0) limits.push(await limitOf(gateway));
        }
      }),
    );
    const seconds = (performance.now() - begin) / 1_000;
    return {
      ...summaryOf(answers.slice(WARM_UP * REQUESTS)),
      limit: mean(limits.slice(WARM_UP * limits.length)),
      seconds,
    };
  } finally {
    await gateway.close();
    await engine.stop();
  }
}

function mean(numbers) {
  return numbers.reduce((sum, number) => sum + number, 0) / numbers.length;
}

console.log(
  `\nAn engine that takes ${RUNNING} at once, ${CLIENTS} clients, ${REQUESTS} requests of ${TOP} documents\n`,
);
console.log(
  'order and limit             mean limit   uncached tokens   cached   TTFT mean      p50      p99 ms   seconds',
);
const rows = [];
for (const lane of LANES) {
  const row = { ...lane, ...(await run(lane)) };
  rows.push(row);
  const times = [row.ttftMean, row.ttftP50, row.ttftP99].map((ms) => ms.toFixed(0));
  console.log(
    row.name.padEnd(27),
    row.limit.toFixed(1).padStart(10),
    row.uncachedTokens.toFixed(0).padStart(17),
    `${(100 * row.cachedShare).toFixed(1)} %`.padStart(8),
    times[0].padStart(11),
    times[1].padStart(8),
    times[2].padStart(8),
    row.seconds.toFixed(1).padStart(11),
  );
}
const named = (name) => rows.find((row) => row.name === name);
const learned = named('foresight, as installed');
const fixed = rows.filter(({ policy, adaptive, limit }) => policy === 'foresight' && !adaptive && limit < UNLIMITED);
// A limit below what the engine takes finds more in the cache, and leaves the engine idle.
const fastest = Math.min(...rows.map(({ seconds }) => seconds));
const bestOf = (some) => some.toSorted((a, b) => a.uncachedTokens - b.uncachedTokens)[0];
const compared = [
  ['the best fixed limit', bestOf(fixed)],
  ['the best one that keeps the engine busy', bestOf(fixed.filter(({ seconds }) => seconds <= SLOWEST * fastest))],
];
console.log('\nUncached tokens a request less, as installed and with a fixed limit');
for (const base of ['exact, unlimited', 'retrieval, unlimited']) {
  for (const [what, best] of compared) {
    if (best === undefined) continue;
    const gains = [learned, best].map(({ uncachedTokens }) => named(base).uncachedTokens - uncachedTokens);
    const share = ((100 * gains[0]) / gains[1]).toFixed(0);
    console.log(
      `than ${base}: ${gains[0].toFixed(0)}, with ${what} (${best.limit}) ${gains[1].toFixed(0)}: ${share} %`,
    );
  }
}
if (values.json !== undefined) writeFileSync(values.json, JSON.stringify(rows, undefined, 2));
