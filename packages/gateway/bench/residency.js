// How well the gateway knows what the engine holds: tokens that it predicts to be cached beside those that the engine
// reports, by residency source, while the engine evicts and others use it, too. `node bench/residency.js
// [--requests 300] [--json FILE]`, after a build. Needs `zeromq`, which the embedded engine brings.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { spawnEngine } from '@warmpath/engine';
import { modelPath } from '../../engine/bench/random-model/dist/model-path.js';
import { startGateway } from '../dist/index.js';
import { draws, prose } from './draw.js';

const { values } = parseArgs({
  options: { requests: { type: 'string', default: '300' }, json: { type: 'string' } },
});
const REQUESTS = Number(values.requests);
/** Of so many requests, one is somebody else's, who does not go through the gateway. */
const FOREIGN = 7;
const DOCUMENTS = 80;
const TOP = 5;

/** Where blocks are that left the cells, and how much room there is. */
const SETTINGS = [
  { name: 'cells alone', options: { contextTokens: 4_096, hostTier: 0 } },
  { name: 'cells and host memory', options: { contextTokens: 2_048, hostTier: 4 * 1024 * 1024 } },
];

const next = draws();
const documents = Array.from({ length: DOCUMENTS }, (_, number) => ({
  id: `document-${number}`,
  content: prose(next, 40 + next(80)),
}));
/** Neighbours of a document that is the likelier the lower its number. */
const contexts = Array.from({ length: REQUESTS }, () => {
  const centre = Math.floor(DOCUMENTS ** (next(1_000_000) / 1_000_000)) - 1;
  const ranks = new Set();
  while (ranks.size < TOP) ranks.add((centre + next(9)) % DOCUMENTS);
  return [...ranks].map((rank) => documents[rank]);
});

async function post(url, body) {
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ max_tokens: 1, temperature: 0, ...body }),
  });
  const { usage } = await response.json();
  return {
    prompt: usage.prompt_tokens,
    cached: usage.prompt_tokens_details?.cached_tokens ?? 0,
    predicted: Number(/predicted=(\d+)/.exec(response.headers.get('x-warmpath') ?? '')?.[1] ?? 0),
  };
}

async function run(options, withEvents) {
  const folder = mkdtempSync(join(tmpdir(), 'warmpath-'));
  const [endpoint, replayEndpoint] = [`ipc://${folder}/live`, `ipc://${folder}/replay`];
  const engine = await spawnEngine({
    port: 0,
    model: await modelPath('random:1m'),
    kvEvents: endpoint,
    kvEventsReplay: replayEndpoint,
    ...options,
  });
  const gateway = await startGateway({
    server: { port: 0 },
    upstream: { url: engine.url, segments: true, ...(withEvents && { kvEvents: { endpoint, replayEndpoint } }) },
    log: { level: 'silent' },
  });
  try {
    const seen = [];
    for (const [number, context] of contexts.entries()) {
      if (number % FOREIGN === 0) {
        await post(engine.url, { messages: [{ role: 'user', content: `${number} ${prose(next, 500)}` }] });
      }
      const messages = [{ role: 'user', content: `Question ${number}: ${prose(next, 6)}?` }];
      seen.push(await post(gateway.url, { messages, documents: context }));
    }
    return seen;
  } finally {
    await gateway.close();
    await engine.stop();
    rmSync(folder, { recursive: true });
  }
}

const mean = (numbers) => numbers.reduce((sum, number) => sum + number, 0) / numbers.length;
const percent = (share) => `${(100 * share).toFixed(1)} %`;

const rows = [];
for (const { name, options } of SETTINGS) {
  for (const withEvents of [false, true]) {
    const seen = await run(options, withEvents);
    const late = seen.slice(Math.floor(REQUESTS / 5));
    const total = (key) => late.reduce((sum, one) => sum + one[key], 0);
    const errors = late.map(({ cached, predicted }) => Math.abs(cached - predicted));
    rows.push({
      setting: name,
      source: withEvents ? 'events' : 'history',
      meanError: mean(errors),
      p95Error: errors.toSorted((a, b) => a - b)[Math.floor(0.95 * errors.length)],
      predictedShare: total('predicted') / total('prompt'),
      cachedShare: total('cached') / total('prompt'),
    });
  }
}

console.log(`\n${REQUESTS} requests of ${TOP} documents, one in ${FOREIGN} more by somebody else; tokens a request\n`);
console.log('engine                 source    error mean    p95   predicted    cached');
for (const row of rows) {
  console.log(
    row.setting.padEnd(22),
    row.source.padEnd(9),
    row.meanError.toFixed(1).padStart(9),
    String(row.p95Error).padStart(7),
    percent(row.predictedShare).padStart(11),
    percent(row.cachedShare).padStart(9),
  );
}
if (values.json !== undefined) writeFileSync(values.json, JSON.stringify(rows, undefined, 2));
