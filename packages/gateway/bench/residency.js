// How well the gateway knows what the engine holds: tokens that it predicts to be cached beside those that the engine
// counts, request by request and by residency source, while the engine evicts and others use it, too.
// `node bench/residency.js [--requests 100] [--sources history,watermark,ttft,exact,modelled]
// [--json FILE]`, after a build. Needs `zeromq`, which the embedded engine brings; `modelled` needs a llama-server, and
// builds one where there is none (`packages/engine/bench/llama-server.js`).
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, request as startRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { spawnEngine } from '@warmpath/engine';
import { llamaServer, spawnLlamaServer } from '../../engine/bench/llama-server.js';
import { modelPath } from '../../engine/bench/random-model/dist/model-path.js';
import { startGateway } from '../dist/index.js';
import { draws, prose } from './draw.js';
import { freePort } from './processes.js';

const { values } = parseArgs({
  options: {
    requests: { type: 'string', default: '100' },
    sources: { type: 'string', default: 'history,watermark,ttft,exact' },
    json: { type: 'string' },
  },
});
const REQUESTS = Number(values.requests);
/** Of so many requests, one is somebody else's, who does not go through the gateway. */
const FOREIGN = 7;
const DOCUMENTS = 80;
const TOP = 5;
/** Tokens of a block in the engine's events. */
const BLOCK = 16;
const MODEL = 'random:1m';

/** Where blocks are that left the cells, and how much room there is. */
const SETTINGS = [
  { name: 'cells alone', options: { contextTokens: 4_096, hostTier: 0 } },
  { name: 'cells and host memory', options: { contextTokens: 2_048, hostTier: 4 * 1024 * 1024 } },
];

/** How a llama-server is started. */
const SERVERS = [
  { name: 'llama-server', flags: [] },
  { name: 'the same, 2 slots', flags: ['-np', '2'] },
];

/** What the gateway is let know: nothing but its own requests, cached tokens, times to the first token, events. */
const SOURCES = {
  history: { hidesCounts: true },
  watermark: {},
  ttft: { hidesCounts: true, streams: true },
  exact: { hearsEvents: true },
};

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

/** In front of an engine: knows what it counted last, and takes the count of cached tokens out where that is hidden. */
async function startWindow(url, hidesCounts) {
  const seen = { prompt: 0, cached: 0 };
  const read = (json) => {
    const body = JSON.parse(json);
    if (body.usage == null) return json;
    const { prompt_tokens: prompt, prompt_tokens_details: details } = body.usage;
    Object.assign(seen, { prompt, cached: details?.cached_tokens ?? 0 });
    if (hidesCounts) delete body.usage.prompt_tokens_details;
    return JSON.stringify(body);
  };
  const readEvents = (text) => text.replace(/^data: (\{.*\})$/gm, (_, json) => `data: ${read(json)}`);
  const server = createServer((request, response) => {
    const { method, headers } = request;
    const asked = startRequest(url + request.url, { method, headers }, (answer) => {
      const { 'content-length': _, ...rest } = answer.headers;
      response.writeHead(answer.statusCode, rest);
      const type = answer.headers['content-type'] ?? '';
      const isStream = type.startsWith('text/event-stream');
      const isJson = type.startsWith('application/json');
      let held = '';
      answer.setEncoding('utf8').on('data', (text) => {
        held += text;
        const end = isStream ? held.lastIndexOf('\n\n') + 2 : 0;
        if (end < 2) return;
        response.write(readEvents(held.slice(0, end)));
        held = held.slice(end);
      });
      answer.on('end', () => response.end(isJson ? read(held) : held));
    });
    request.pipe(asked);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    seen,
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

/** Sends one request; what was predicted of it, where it went through the gateway. */
async function post(url, body, streams = false) {
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      max_tokens: 1,
      temperature: 0,
      ...(streams && { stream: true, stream_options: { include_usage: true } }),
      ...body,
    }),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${response.status}: ${text}`);
  return Number(/predicted=(\d+)/.exec(response.headers.get('x-warmpath') ?? '')?.[1] ?? 0);
}

/** The requests one after another, through a gateway before that engine. */
async function play(engineUrl, upstream, { hidesCounts = false, streams = false } = {}) {
  const window = await startWindow(engineUrl, hidesCounts);
  let found;
  const isFound = new Promise((resolve) => {
    found = resolve;
  });
  const gateway = await startGateway(
    { server: { port: 0 }, upstream: { url: window.url, ...upstream }, log: { level: 'silent' } },
    { onEngine: found },
  );
  await isFound;
  try {
    const seen = [];
    for (const [number, context] of contexts.entries()) {
      if (number % FOREIGN === 0) {
        await post(engineUrl, { messages: [{ role: 'user', content: `${number} ${prose(next, 500)}` }] });
      }
      const messages = [{ role: 'user', content: `Question ${number}: ${prose(next, 6)}?` }];
      const predicted = await post(gateway.url, { messages, documents: context }, streams);
      seen.push({ ...window.seen, predicted });
    }
    return seen;
  } finally {
    await gateway.close();
    window.close();
  }
}

async function playEmbedded(options, source) {
  const folder = mkdtempSync(join(tmpdir(), 'warmpath-'));
  const kvEvents = { endpoint: `ipc://${folder}/live`, replayEndpoint: `ipc://${folder}/replay` };
  const engine = await spawnEngine({
    port: 0,
    model: await modelPath(MODEL),
    threads: 1,
    kvEvents: kvEvents.endpoint,
    kvEventsReplay: kvEvents.replayEndpoint,
    ...options,
  });
  try {
    const upstream = { dialect: 'embedded', ...(source.hearsEvents && { kvEvents }) };
    return await play(engine.url, upstream, source);
  } finally {
    await engine.stop();
    rmSync(folder, { recursive: true });
  }
}

async function playLlamaServer(path, flags) {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const given = ['-m', await modelPath(MODEL), '-t', '2', '--host', '127.0.0.1', '--port', String(port), ...flags];
  const child = spawnLlamaServer(path, given);
  try {
    while (!(await fetch(`${url}/health`).catch(() => undefined))?.ok) {
      if (child.exitCode !== null) throw new Error(`llama-server ended with ${child.exitCode}`);
      await sleep(100);
    }
    return await play(url, { dialect: 'llama-server' });
  } finally {
    child.kill('SIGKILL');
  }
}

const mean = (numbers) => numbers.reduce((sum, number) => sum + number, 0) / numbers.length;
const percent = (share) => `${(100 * share).toFixed(1)} %`;

/** The first fifth is left out: the engine is not full yet. */
function rowOf(setting, source, seen) {
  const late = seen.slice(Math.floor(REQUESTS / 5));
  const total = (key) => late.reduce((sum, one) => sum + one[key], 0);
  const errors = late.map(({ cached, predicted }) => predicted - cached);
  const sizes = errors.map(Math.abs).toSorted((a, b) => a - b);
  const quantile = (share) => sizes[Math.min(sizes.length - 1, Math.floor(share * sizes.length))];
  return {
    setting,
    source,
    meanError: mean(sizes),
    p50: quantile(0.5),
    p95: quantile(0.95),
    p99: quantile(0.99),
    most: sizes.at(-1),
    withinBlock: sizes.filter((size) => size <= BLOCK).length / sizes.length,
    tooHigh: errors.filter((error) => error > BLOCK).length / errors.length,
    tooLow: errors.filter((error) => error < -BLOCK).length / errors.length,
    predictedShare: total('predicted') / total('prompt'),
    cachedShare: total('cached') / total('prompt'),
    requests: seen,
  };
}

const rows = [];
for (const { name, options } of SETTINGS) {
  for (const source of values.sources.split(',').filter((each) => each in SOURCES)) {
    rows.push(rowOf(name, source, await playEmbedded(options, SOURCES[source])));
  }
}
if (values.sources.split(',').includes('modelled')) {
  const server = llamaServer();
  for (const { name, flags } of SERVERS) {
    rows.push(rowOf(name, 'modelled', await playLlamaServer(server, flags)));
  }
}

console.log(`\n${REQUESTS} requests of ${TOP} documents, one in ${FOREIGN} more by somebody else; tokens a request\n`);
console.log(
  'engine                 source      error: mean   p50   p95   p99   most   within a block   above   below   predicted   cached',
);
for (const row of rows) {
  console.log(
    row.setting.padEnd(22),
    row.source.padEnd(11),
    row.meanError.toFixed(1).padStart(11),
    ...[row.p50, row.p95, row.p99].map((tokens) => String(tokens).padStart(5)),
    String(row.most).padStart(6),
    percent(row.withinBlock).padStart(16),
    percent(row.tooHigh).padStart(7),
    percent(row.tooLow).padStart(7),
    percent(row.predictedShare).padStart(11),
    percent(row.cachedShare).padStart(8),
  );
}
if (values.json !== undefined) writeFileSync(values.json, JSON.stringify(rows, undefined, 2));
