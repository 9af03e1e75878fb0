// Order and replica decided together, beside routers that decide by themselves: replicas with caches of vLLM's kind, in
// virtual time; requests come at random. `node bench/fleet.js [--workload sessions] [--replicas 4] [--blocks 1500]
// [--loads 0.5,0.8,1,1.2] [--seeds 3] [--json FILE]`, after a build.
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import {
  closedLoopClients,
  createWorkload,
  poissonClients,
  ROUTERS,
  simulateServer,
  VllmBlockCache,
} from '../dist/index.js';

const { values } = parseArgs({
  options: {
    replicas: { type: 'string', default: '4' },
    workload: { type: 'string', default: 'sessions' },
    seeds: { type: 'string', default: '3' },
    blocks: { type: 'string', default: '1500' },
    loads: { type: 'string', default: '0.5,0.8,1,1.2' },
    json: { type: 'string' },
  },
});
const replicas = Number(values.replicas);
const loads = values.loads.split(',').map(Number);

/** What is compared: an order, and a router that may know what each replica holds. */
const LANES = [
  ['retrieval', 'random'],
  ['retrieval', 'round-robin'],
  ['retrieval', 'least-loaded'],
  ['retrieval', 'session-hash'],
  ['retrieval', 'prefix-hash'],
  ['retrieval', 'two-mode'],
  ['retrieval', 'weighted-score'],
  ['retrieval', 'cache-aware'],
  ['retrieval', 'cache-pressure'],
  ['exact', 'least-loaded'],
  ['exact', 'session-hash'],
  ['exact', 'two-mode'],
  ['exact', 'weighted-score'],
  ['exact', 'cache-aware'],
  ['exact', 'cache-pressure'],
  ['foresight', 'cache-pressure'],
];

const server = {
  createCache: () => new VllmBlockCache({ blocks: Number(values.blocks) }),
  replicas,
  maxBatch: 16,
  stepTokens: 2_048,
  chunked: true,
  queue: 16,
  answerTokens: () => 32,
};

/** Requests a second that the fleet can just serve in retrieval order, each in turn. */
function capacity(workload) {
  const clients = closedLoopClients({ clients: 16 * replicas, thinkMs: 0, seed: 0 });
  const { outcomes } = simulateServer(workload, 'retrieval', clients, { ...server, queue: 0 });
  return (1_000 * outcomes.length) / outcomes.reduce((last, { doneMs }) => Math.max(last, doneMs), 0);
}

const mean = (numbers) => numbers.reduce((sum, number) => sum + number, 0) / numbers.length;

function figures({ outcomes, replicas: runs }) {
  const counted = outcomes.slice(Math.floor(outcomes.length / 5));
  const ttft = counted.map(({ ttftMs }) => ttftMs).toSorted((a, b) => a - b);
  const most = runs.reduce((largest, { requests }) => Math.max(largest, requests), 0);
  return {
    uncached: mean(counted.map(({ promptTokens, cachedTokens }) => promptTokens - cachedTokens)),
    ttftMs: mean(ttft),
    p99Ms: ttft[Math.floor(0.99 * ttft.length)],
    imbalance: (most * runs.length) / outcomes.length,
  };
}

const rows = [];
for (const load of loads) {
  for (const [policy, router] of LANES) {
    const runs = Array.from({ length: Number(values.seeds) }, (_, place) => {
      const workload = createWorkload(values.workload, { seed: 2_000 + place });
      const clients = poissonClients({ perSecond: load * capacity(workload), seed: place });
      return figures(simulateServer(workload, policy, clients, { ...server, router: ROUTERS[router] }));
    });
    const over = (key) => mean(runs.map((run) => run[key]));
    rows.push({
      load,
      policy,
      router,
      uncached: over('uncached'),
      ttftMs: over('ttftMs'),
      p99Ms: over('p99Ms'),
      imbalance: over('imbalance'),
    });
  }
}

console.log(`${values.workload}, ${replicas} replicas of ${values.blocks} blocks, ${values.seeds} seeds\n`);
console.log('load  order      router           uncached   TTFT mean       p99   imbalance');
let last;
for (const row of rows) {
  if (last !== undefined && last !== row.load) console.log();
  last = row.load;
  console.log(
    String(row.load).padEnd(5),
    row.policy.padEnd(10),
    row.router.padEnd(16),
    row.uncached.toFixed(0).padStart(8),
    `${row.ttftMs.toFixed(0)} ms`.padStart(11),
    `${row.p99Ms.toFixed(0)} ms`.padStart(9),
    row.imbalance.toFixed(2).padStart(11),
  );
}
if (values.json !== undefined) writeFileSync(values.json, JSON.stringify(rows, undefined, 2));
