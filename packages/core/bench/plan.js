/**
 * Plans batches: share of documents reused beside that of retrieval order, time, memory. Each run is a process of its
 * own, so that `rssMiB` is its peak. Usage: node bench/plan.js [--json] [--seeds 1,2,3]
 */
import { execFileSync } from 'node:child_process';
import { cpus } from 'node:os';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { planBatch } from '../dist/index.js';
import { topicContexts, zipfContexts } from './plan-workload.js';

const K = 15;
const WORKLOADS = {
  zipf: (seed) => zipfContexts({ count: 1000, k: K, documents: 350, seed }),
  topics: (seed) => topicContexts({ count: 1000, k: K, seed }),
  'zipf-100k': (seed) => zipfContexts({ count: 100_000, k: K, documents: 25_100, seed }),
};

/** Nodes of the trie of the contexts in retrieval order. */
function retrievalTrieNodes(contexts) {
  const children = new Map();
  for (const context of contexts) {
    let node = 0;
    for (const document of context) {
      const key = `${node} ${document}`;
      if (!children.has(key)) children.set(key, children.size + 1);
      node = children.get(key);
    }
  }
  return children.size;
}

const { values: options } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    seeds: { type: 'string', default: '1,2,3,4,5' },
    run: { type: 'string' },
  },
});

/** One plan, in this process. */
function run({ workload, seed }) {
  const contexts = WORKLOADS[workload](seed);
  const start = process.hrtime.bigint();
  const { documents, trieNodes, reuse } = planBatch(contexts);
  const ms = Number(process.hrtime.bigint() - start) / 1e6;
  const rssMiB = process.resourceUsage().maxRSS / 1024;
  const retrievalReuse = 1 - retrievalTrieNodes(contexts) / documents;
  return { contexts: contexts.length, documents, trieNodes, reuse, retrievalReuse, ms, rssMiB };
}

function runApart(what) {
  const args = [fileURLToPath(import.meta.url), '--run', JSON.stringify(what)];
  return JSON.parse(execFileSync(process.execPath, args, { encoding: 'utf8' }));
}

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

function runAll(seeds) {
  const results = [];
  for (const workload of Object.keys(WORKLOADS)) {
    const used = workload === 'zipf-100k' ? seeds.slice(0, 1) : seeds;
    const runs = used.map((seed) => runApart({ workload, seed }));
    const means = Object.fromEntries(Object.keys(runs[0]).map((key) => [key, mean(runs.map((each) => each[key]))]));
    results.push({ workload, seeds: used, ...means });
  }
  return results;
}

if (options.run !== undefined) {
  console.log(JSON.stringify(run(JSON.parse(options.run))));
} else {
  const results = runAll(options.seeds.split(',').map(Number));
  if (options.json) {
    console.log(JSON.stringify({ node: process.version, cpu: cpus()[0]?.model, results }, null, 2));
  } else {
    console.log(`planBatch, means over seeds (Node ${process.version}, ${cpus()[0]?.model})\n`);
    console.table(
      results.map(({ workload, trieNodes, reuse, retrievalReuse, ms, rssMiB }) => ({
        workload,
        trieNodes: Math.round(trieNodes),
        reuse: reuse.toFixed(4),
        'reuse in retrieval order': retrievalReuse.toFixed(4),
        ms: Math.round(ms),
        rssMiB: Math.round(rssMiB),
      })),
    );
  }
}
