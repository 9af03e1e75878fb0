// What it costs to decide where a request goes, and in which order: every engine's best arrangement of 15 documents
// under its own residency, and core's rule over all of them. `node bench/routing.js [--engines 64] [--k 15]
// [--paths 2000] [--json FILE]`, after a build.
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { observe, ServedHistory } from '@warmpath/core';
import { EngineRouter, expectedCachedTokens } from '@warmpath/core/internal';
import { draws } from './draw.js';

const { values } = parseArgs({
  options: {
    engines: { type: 'string', default: '64' },
    k: { type: 'string', default: '15' },
    paths: { type: 'string', default: '2000' },
    json: { type: 'string' },
  },
});
const [ENGINES, K, PATHS] = [values.engines, values.k, values.paths].map(Number);
const DECISIONS = 4_000;
const DOCUMENTS = 20_000;
/** Documents of one topic, from which a request takes its own. */
const TOPIC = 40;

const next = draws();
const documents = Array.from({ length: DOCUMENTS }, (_, number) => {
  const id = `document-${number}`;
  const key = `${id}#0123456789abcdef`;
  return { id, label: id, title: undefined, content: '', metadata: undefined, key, tokens: 100 + next(200) };
});
const preamble = { key: 'system#0123456789abcdef', tokens: 200 };

/** Documents of a topic that is the likelier the lower its number. */
function context() {
  const topics = DOCUMENTS / TOPIC;
  const topic = Math.floor(topics ** (next(1_000_000) / 1_000_000)) - 1;
  const ranks = new Set();
  while (ranks.size < K) ranks.add(topic * TOPIC + next(TOPIC));
  return [...ranks].map((rank) => documents[rank]);
}

const histories = Array.from({ length: ENGINES }, () => new ServedHistory());
const pending = histories.map(() => 0);
const rule = new EngineRouter();

function decide(asked) {
  const reuse = expectedCachedTokens({ documents: asked, preamble }, 0);
  const promptTokens = asked.reduce((sum, { tokens }) => sum + tokens, preamble.tokens);
  const candidates = pending.map((pendingTokens, engine) => ({ engine, pendingTokens }));
  return rule.choose(candidates, promptTokens, (place) => promptTokens - reuse(histories[place]));
}

function serve(asked, engine) {
  const { order } = histories[engine].bestPath(asked, preamble, undefined);
  const places = [...new Set([...order, ...asked.keys()])];
  const arrangement = { documents: places.map((rank) => asked[rank]), preamble, order: places };
  observe({ kind: 'completed', arrangement, now: 0 }, histories[engine]);
}

function quantiles(micros) {
  const sorted = micros.toSorted((a, b) => a - b);
  const at = (share) => Number(sorted[Math.floor(share * (sorted.length - 1))].toFixed(1));
  return { p50: at(0.5), p90: at(0.9), p99: at(0.99) };
}

/** Decisions while so many tokens, at most, are pending on each engine. */
function measure(mostPending) {
  const micros = [];
  let asked = 0;
  for (let round = 0; round < DECISIONS; round++) {
    for (const engine of pending.keys()) pending[engine] = next(mostPending + 1);
    const wanted = context();
    const begin = performance.now();
    decide(wanted);
    const took = 1_000 * (performance.now() - begin);
    if (round >= DECISIONS / 10) micros.push(took);
    asked++;
  }
  return { mostPending, decisions: asked, ...quantiles(micros) };
}

for (let request = 0; request < ENGINES * PATHS; request++) {
  const asked = context();
  serve(asked, ENGINES < 8 ? request % ENGINES : decide(asked).place);
}
const nodes = Math.round(histories.reduce((sum, { tree }) => sum + tree.nodes, 0) / ENGINES);
const rows = [0, 5_000, 20_000].map(measure);
console.log(
  `\n${ENGINES} engines, ${PATHS} requests served by each (${nodes} nodes a tree), ${K} documents; microseconds a decision\n`,
);
console.log('pending tokens      p50       p90       p99');
for (const { mostPending, p50, p90, p99 } of rows) {
  const range = mostPending === 0 ? 'none' : `up to ${mostPending}`;
  console.log(range.padEnd(14), ...[p50, p90, p99].map((micros) => micros.toFixed(1).padStart(9)));
}
if (values.json !== undefined)
  writeFileSync(values.json, JSON.stringify({ engines: ENGINES, k: K, nodes, rows }, undefined, 2));
