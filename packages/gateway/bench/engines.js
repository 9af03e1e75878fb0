// Four embedded engines behind the gateway: order and engine decided together, beside the lab's routers, which choose
// the engine before the order is decided by a gateway of that engine alone. Sessions ask about topics of Zipf
// popularity, each waits for its answer. Every lane has engines of its own. `node bench/engines.js [--engines 4]
// [--requests 160] [--sessions 8] [--policies retrieval,exact] [--routers random,…,gateway] [--json FILE]`, after a
// build.
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { arrange, estimateTokens, observe, prepareDocuments, ServedHistory } from '@warmpath/core';
import { spawnEngine } from '@warmpath/engine';
import { modelPath } from '../../engine/bench/random-model/dist/model-path.js';
import { ROUTERS } from '../../lab/dist/index.js';
import { startGateway } from '../dist/index.js';
import { draws, prose } from './draw.js';
import { askOver, SYSTEM, summaryOf } from './load.js';

/** One gateway before all engines: it arranges the documents for each and chooses. */
const TOGETHER = 'gateway';
/** All but the gateway's own rule. */
const BASELINES = Object.keys(ROUTERS).filter((name) => name !== 'cache-pressure');

const { values } = parseArgs({
  options: {
    engines: { type: 'string', default: '4' },
    requests: { type: 'string', default: '160' },
    sessions: { type: 'string', default: '8' },
    policies: { type: 'string', default: 'retrieval,exact' },
    routers: { type: 'string', default: [...BASELINES, TOGETHER].join() },
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

/**
 * Chooses gateways of single engines by one of the lab's routers. What it knows of their caches is what a router before
 * them can know: the prompts that it sent there, in the order that they got there, and what was counted of them.
 */
function routed(name, policy, gateways) {
  const router = ROUTERS[name]();
  const engines = gateways.map(() => ({ history: new ServedHistory(), requests: 0, pendingTokens: 0 }));
  const preamble = { key: SYSTEM, tokens: estimateTokens(SYSTEM) };
  let number = 0;
  return async (request, ask) => {
    const now = performance.now();
    const { documents } = prepareDocuments(request.documents);
    const arrangements = engines.map(({ history }) =>
      arrange({ documents, preamble, policy, hints: false }, history, now),
    );
    const questionTokens = estimateTokens(request.question);
    const promptTokens = documents.reduce((sum, { tokens }) => sum + tokens, preamble.tokens + questionTokens);
    const loads = engines.map(({ requests, pendingTokens }, place) => {
      const cachedTokens = router.readsCaches ? arrangements[place].predictedCachedTokens : 0;
      return { requests, pendingTokens, newTokens: promptTokens - cachedTokens };
    });
    const session = String(request.session);
    const place = router.choose(loads, { number: number++, request: { documents, session }, promptTokens });
    const [engine, arrangement] = [engines[place], arrangements[place]];
    const { newTokens } = loads[place];
    observe({ kind: 'dispatched', arrangement, now }, engine.history);
    engine.requests++;
    engine.pendingTokens += newTokens;
    const answer = await ask(gateways[place]);
    engine.requests--;
    engine.pendingTokens -= newTokens;
    const counted = { promptTokens: answer.prompt, cachedTokens: answer.cached };
    observe({ kind: 'completed', arrangement, now: performance.now(), ...counted }, engine.history);
    return answer;
  };
}

async function run(policy, router) {
  const model = await modelPath('random:1m');
  const engines = await Promise.all(Array.from({ length: ENGINES }, () => spawnEngine({ port: 0, model, ...ENGINE })));
  const common = { server: { port: 0 }, arrange: { policy }, log: { level: 'silent' } };
  const urls = engines.map(({ url }) => url);
  const gateways =
    router === TOGETHER
      ? [await startGateway({ ...common, engines: urls.map((url, number) => ({ name: `engine-${number}`, url })) })]
      : await Promise.all(urls.map((url) => startGateway({ ...common, upstream: { url } })));
  const serve = router === TOGETHER ? (_, ask) => ask(gateways[0]) : routed(router, policy, gateways);
  try {
    const answers = [];
    await Promise.all(
      Array.from({ length: SESSIONS }, async (_, session) => {
        for (const request of requests.filter((each) => each.session === session)) {
          answers.push(await serve(request, ({ url }) => askOver(url, request, ANSWER_TOKENS)));
        }
      }),
    );
    return summaryOf(answers);
  } finally {
    for (const gateway of gateways) await gateway.close();
    for (const engine of engines) await engine.stop();
  }
}

const percent = (share) => `${(100 * share).toFixed(1)} %`;

console.log(`\n${ENGINES} engines, ${SESSIONS} sessions, ${REQUESTS} requests of ${TOP} documents; of a request\n`);
console.log('order      engine by        uncached tokens   cached   TTFT mean      p50      p99 ms');
const rows = [];
for (const policy of values.policies.split(',')) {
  for (const router of values.routers.split(',')) {
    const row = { policy, router, ...(await run(policy, router)) };
    rows.push(row);
    const times = [row.ttftMean, row.ttftP50, row.ttftP99].map((ms) => ms.toFixed(0));
    console.log(
      row.policy.padEnd(10),
      row.router.padEnd(16),
      row.uncachedTokens.toFixed(0).padStart(15),
      percent(row.cachedShare).padStart(8),
      times[0].padStart(11),
      times[1].padStart(8),
      times[2].padStart(8),
    );
  }
}
const together = rows.findLast(({ router }) => router === TOGETHER);
for (const policy of together === undefined ? [] : values.policies.split(',')) {
  const baselines = rows.filter((row) => row.policy === policy && row.router !== TOGETHER);
  const [least] = baselines.toSorted((a, b) => a.uncachedTokens - b.uncachedTokens);
  if (least === undefined) continue;
  const saved = percent(1 - together.uncachedTokens / least.uncachedTokens);
  console.log(
    `\n${together.policy}, ${TOGETHER}: ${saved} fewer uncached tokens than ${policy}, ${least.router}, the least of that`,
    `order; p99 ${(together.ttftP99 / least.ttftP99).toFixed(2)} of its.`,
  );
}
if (values.json !== undefined) writeFileSync(values.json, JSON.stringify(rows, undefined, 2));
