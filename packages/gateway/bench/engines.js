// Four embedded engines behind the gateway: order and engine decided together, beside routers that know no caches.
// Sessions ask about topics of Zipf popularity, each waits for its answer. Every lane has engines of its own.
// `node bench/engines.js [--engines 4] [--requests 160] [--sessions 8] [--json FILE]`, after a build.
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { spawnEngine } from '@warmpath/engine';
import { modelPath } from '../../engine/bench/random-model/dist/model-path.js';
import { startGateway } from '../dist/index.js';
import { draws, prose } from './draw.js';
import { askOver, summaryOf } from './load.js';

const { values } = parseArgs({
  options: {
    engines: { type: 'string', default: '4' },
    requests: { type: 'string', default: '160' },
    sessions: { type: 'string', default: '8' },
    json: { type: 'string' },
  },
});
const [ENGINES, REQUESTS, SESSIONS] = [values.engines, values.requests, values.sessions].map(Number);
const TOPICS = 24;
const TOPIC_DOCUMENTS = 10;
const TOP = 5;
/** Of so many requests of a session, one turns to another topic. */
const TURN = 8;
const ANSWER_TOKENS = 4;
const ENGINE = { threads: 1, contextTokens: 4_096, hostTier: 0 };

/** The order of documents, and who chooses the engine. */
const LANES = [
  ['retrieval', 'round robin'],
  ['retrieval', 'session hash'],
  ['exact', 'round robin'],
  ['exact', 'session hash'],
  ['retrieval', 'gateway'],
  ['exact', 'gateway'],
];

const next = draws();
const documents = Array.from({ length: TOPICS * TOPIC_DOCUMENTS }, (_, number) => ({
  id: `document-${number}`,
  content: prose(next, 40 + next(60)),
}));
const requests = workload();

/** What each session asks, one after the other: documents of its topic, popular ones first, with some noise. */
function workload() {
  const topics = Array.from({ length: SESSIONS }, zipf);
  return Array.from({ length: REQUESTS }, (_, number) => {
    const session = next(SESSIONS);
    if (next(TURN) === 0) topics[session] = zipf();
    const scored = Array.from({ length: TOPIC_DOCUMENTS }, (_, rank) => ({ rank, score: rank + next(6) }));
    const ranks = scored.toSorted((a, b) => a.score - b.score).slice(0, TOP);
    return {
      session,
      question: `Question ${number}: ${prose(next, 8)}?`,
      documents: ranks.map(({ rank }) => documents[topics[session] * TOPIC_DOCUMENTS + rank]),
    };
  });
}

function zipf() {
  return Math.floor((TOPICS + 1) ** (next(1_000_000) / 1_000_000)) - 1;
}

async function run([policy, router]) {
  const model = await modelPath('random:1m');
  const engines = await Promise.all(Array.from({ length: ENGINES }, () => spawnEngine({ port: 0, model, ...ENGINE })));
  const common = { server: { port: 0 }, arrange: { policy }, log: { level: 'silent' } };
  const urls = engines.map(({ url }) => url);
  const gateways =
    router === 'gateway'
      ? [await startGateway({ ...common, engines: urls.map((url, number) => ({ name: `engine-${number}`, url })) })]
      : await Promise.all(urls.map((url) => startGateway({ ...common, upstream: { url } })));
  try {
    let turn = 0;
    const gatewayFor = ({ session }) => {
      if (router === 'gateway') return gateways[0];
      return gateways[router === 'round robin' ? turn++ % ENGINES : (session * 7) % ENGINES];
    };
    const answers = [];
    await Promise.all(
      Array.from({ length: SESSIONS }, async (_, session) => {
        for (const request of requests) {
          if (request.session === session) answers.push(await askOver(gatewayFor(request).url, request, ANSWER_TOKENS));
        }
      }),
    );
    return summaryOf(answers);
  } finally {
    for (const gateway of gateways) await gateway.close();
    for (const engine of engines) await engine.stop();
  }
}

console.log(`\n${ENGINES} engines, ${SESSIONS} sessions, ${REQUESTS} requests of ${TOP} documents; of a request\n`);
console.log('order      engine by      uncached tokens   cached   TTFT mean      p50      p99 ms');
const rows = [];
for (const lane of LANES) {
  const row = { policy: lane[0], router: lane[1], ...(await run(lane)) };
  rows.push(row);
  const times = [row.ttftMean, row.ttftP50, row.ttftP99].map((ms) => ms.toFixed(0));
  console.log(
    row.policy.padEnd(10),
    row.router.padEnd(14),
    row.uncachedTokens.toFixed(0).padStart(15),
    `${(100 * row.cachedShare).toFixed(1)} %`.padStart(8),
    times[0].padStart(11),
    times[1].padStart(8),
    times[2].padStart(8),
  );
}
if (values.json !== undefined) writeFileSync(values.json, JSON.stringify(rows, undefined, 2));
