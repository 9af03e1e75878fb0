/**
 * Times `arrange` on trees of served paths and compares it with a straightforward Algorithm 1.
 * Usage: node bench/run.js [--json]
 */
import { cpus } from 'node:os';
import { arrange, observe, ServedHistory } from '../dist/index.js';
import { StraightforwardTrie } from './straightforward.js';
import { contexts, documentsOf } from './workload.js';

const CASES = [
  { k: 5, paths: 10_000 },
  { k: 15, paths: 10_000, budgetMicroseconds: 25 },
  { k: 15, paths: 100_000, budgetMicroseconds: 50 },
];
const PREAMBLE = { key: 'preamble#0123456789abcdef', tokens: 40 };
const PATHS_PER_TOPIC = 50;
const REQUESTS = 20_000;

/**
 * Serves requests until the tree has the paths asked for; returns the history and the same paths as a trie of objects.
 */
function grow({ k, paths }) {
  const history = new ServedHistory({ tree: { maxNodes: 2 ** 22, maxBytes: 2 ** 30 } });
  const trie = new StraightforwardTrie();
  const topics = Math.max(1, Math.round(paths / PATHS_PER_TOPIC));
  let served = 0;
  let requests = 0;
  for (const context of contexts({ count: Number.POSITIVE_INFINITY, k, topics, seed: 1 })) {
    const arrangement = arrange(
      { documents: documentsOf(context), preamble: PREAMBLE, policy: 'exact' },
      history,
      requests,
    );
    if (arrangement.trace.cachedDocuments < k) served++;
    observe({ kind: 'dispatched', arrangement, now: requests }, history);
    trie.insert([PREAMBLE.key, ...arrangement.documents.map((document) => document.key)]);
    requests++;
    if (served === paths) break;
  }
  return { history, trie, topics, requests };
}

/**
 * Microseconds of every call, sorted. Each request's documents are prepared right before it is timed, as in a real
 * request.
 */
function time(call, stream) {
  const times = [];
  for (const context of stream) {
    const documents = documentsOf(context);
    const start = process.hrtime.bigint();
    call(documents);
    times.push(Number(process.hrtime.bigint() - start) / 1000);
  }
  return times.sort((a, b) => a - b);
}

const percentile = (sorted, share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];

/** Half of the calls take at most p50; what an empty call costs (the clock) is measured and taken off. */
function measure(call, stream, clock) {
  const times = time(call, stream);
  return { p50: Math.max(0, percentile(times, 0.5) - clock), p99: Math.max(0, percentile(times, 0.99) - clock) };
}

function runCase(bench) {
  const { history, trie, topics, requests } = grow(bench);
  const stream = (seed) => [...contexts({ count: REQUESTS, k: bench.k, topics, seed })];
  const calls = {
    exact: (documents) => arrange({ documents, preamble: PREAMBLE, policy: 'exact' }, history, 0),
    greedy: (documents) => arrange({ documents, preamble: PREAMBLE, policy: 'greedy' }, history, 0),
    straightforward: (documents) => trie.order(documents, PREAMBLE.key),
  };
  for (const call of Object.values(calls)) time(call, stream(100));
  const clock = percentile(
    time(() => undefined, stream(100)),
    0.5,
  );
  const result = { ...bench, requests, nodes: history.tree.nodes, mebibytes: history.tree.bytes / 2 ** 20, clock };
  let seed = 1000;
  for (const [name, call] of Object.entries(calls)) {
    globalThis.gc?.();
    result[name] = measure(call, stream(seed++), clock);
  }
  return { ...result, cachedDocuments: meanCachedDocuments(history, stream(seed)) };
}

/** What the microseconds buy: cached documents a request. */
function meanCachedDocuments(history, stream) {
  const sums = { exact: 0, greedy: 0 };
  for (const context of stream) {
    const documents = documentsOf(context);
    for (const policy of ['exact', 'greedy']) {
      sums[policy] += arrange({ documents, preamble: PREAMBLE, policy }, history, 0).trace.cachedDocuments;
    }
  }
  return { exact: sums.exact / stream.length, greedy: sums.greedy / stream.length };
}

const results = CASES.map(runCase);
if (process.argv.includes('--json')) {
  console.log(JSON.stringify({ node: process.version, cpu: cpus()[0]?.model, results }, null, 2));
} else {
  console.log(`arrange, microseconds a call (Node ${process.version}, ${cpus()[0]?.model})\n`);
  console.table(
    Object.fromEntries(
      results.map((result) => [
        `k=${result.k}, ${result.paths / 1000}k paths`,
        {
          'budget p50': result.budgetMicroseconds ?? '–',
          'exact p50': result.exact.p50.toFixed(2),
          'exact p99': result.exact.p99.toFixed(2),
          'greedy p50': result.greedy.p50.toFixed(2),
          'greedy p99': result.greedy.p99.toFixed(2),
          'Algorithm 1 p50': result.straightforward.p50.toFixed(2),
          'exact / Algorithm 1': (result.exact.p50 / result.straightforward.p50).toFixed(2),
          'greedy / Algorithm 1': (result.greedy.p50 / result.straightforward.p50).toFixed(2),
          'cached documents (exact, greedy)': `${result.cachedDocuments.exact.toFixed(2)}, ${result.cachedDocuments.greedy.toFixed(2)}`,
          nodes: result.nodes,
          MiB: result.mebibytes.toFixed(1),
        },
      ]),
    ),
  );
}
