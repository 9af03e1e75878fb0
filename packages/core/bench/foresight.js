/**
 * Times `arrange` with `foresight` on trees of 10,000 served paths, without and with eight waiting requests known.
 * Usage: node --expose-gc bench/foresight.js [--json]
 */
import { cpus } from 'node:os';
import { arrange, observe, ServedHistory } from '../dist/index.js';
import { contexts, documentsOf } from './workload.js';

const PATHS = 10_000;
const TOPICS = 200;
const REQUESTS = 5_000;
const WAITING = 8;
const PREAMBLE = { key: 'preamble#0123456789abcdef', tokens: 40 };
const CASES = [
  { k: 5, budgetMicroseconds: 25 },
  { k: 8, budgetMicroseconds: 120 },
  { k: 15, budgetMicroseconds: 200 },
  { k: 30, budgetMicroseconds: undefined },
];

/** A history with the paths asked for; requests keep coming after it, so the window of recent requests is full. */
function grow(k) {
  const history = new ServedHistory({ tree: { maxNodes: 2 ** 22, maxBytes: 2 ** 30 } });
  let served = 0;
  let now = 0;
  for (const context of contexts({ count: Number.POSITIVE_INFINITY, k, topics: TOPICS, seed: 1 })) {
    const arrangement = arrange({ documents: documentsOf(context), preamble: PREAMBLE, policy: 'exact' }, history, now);
    if (arrangement.trace.cachedDocuments < k) served++;
    observe({ kind: 'dispatched', arrangement, now }, history);
    now++;
    if (served === PATHS) return history;
  }
  return history;
}

/** Microseconds of every call, sorted. */
function time(call, stream) {
  const prepared = stream.map(documentsOf);
  const times = [];
  for (let i = 0; i + WAITING < stream.length; i++) {
    const documents = documentsOf(stream[i]);
    const waiting = prepared.slice(i + 1, i + 1 + WAITING);
    const start = process.hrtime.bigint();
    call(documents, waiting);
    times.push(Number(process.hrtime.bigint() - start) / 1000);
  }
  return times.sort((a, b) => a - b);
}

function runCase({ k, budgetMicroseconds }) {
  const history = grow(k);
  const stream = (seed) => [...contexts({ count: REQUESTS, k, topics: TOPICS, seed })];
  const calls = {
    exact: (documents) => arrange({ documents, preamble: PREAMBLE, policy: 'exact' }, history, 0),
    foresight: (documents) => arrange({ documents, preamble: PREAMBLE, policy: 'foresight' }, history, 0),
    waiting: (documents, waiting) =>
      arrange({ documents, preamble: PREAMBLE, policy: 'foresight', waiting }, history, 0),
  };
  const result = { k, budgetMicroseconds };
  for (const call of Object.values(calls)) time(call, stream(100));
  for (const [name, call] of Object.entries(calls)) {
    globalThis.gc?.();
    const times = time(call, stream(1000));
    result[name] = { p50: times[times.length >> 1], p99: times[Math.floor(times.length * 0.99)] };
  }
  return result;
}

const results = CASES.map(runCase);
if (process.argv.includes('--json')) {
  console.log(JSON.stringify({ node: process.version, cpu: cpus()[0]?.model, results }, null, 2));
} else {
  console.log(`arrange, microseconds a call (Node ${process.version}, ${cpus()[0]?.model})\n`);
  const show = ({ p50, p99 }) => `${p50.toFixed(1)}, ${p99.toFixed(1)}`;
  console.table(
    Object.fromEntries(
      results.map(({ k, budgetMicroseconds, exact, foresight, waiting }) => [
        `k=${k}, ${PATHS / 1000}k paths`,
        {
          'budget p50': budgetMicroseconds ?? 'none',
          'exact p50, p99': show(exact),
          'foresight p50, p99': show(foresight),
          [`with ${WAITING} waiting`]: show(waiting),
        },
      ]),
    ),
  );
}
