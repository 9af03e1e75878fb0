/**
 * Order and replica decided together, beside the rules of other routers: fleets of simulated engines with caches of
 * vLLM's kind, in virtual time. A million documents in topics of Zipf popularity, conversations that stay with a topic
 * for a while, requests that come at random.
 *
 * `npm run bench:fleet -w packages/lab` (some minutes; `-- --quick` for fewer requests, `-- --write` to put the tables
 * into docs/research/fleet.md). How long it will take still is said on the way.
 */
import { parseArgs } from 'node:util';
import {
  closedLoopClients,
  poissonClients,
  ROUTERS,
  sessionsTrace,
  simulateServer,
  toWorkload,
} from '../dist/index.js';
import { fleetServer, writeFigures } from './fleet-server.js';
import * as tables from './fleet-tables.js';

const { values } = parseArgs({
  options: {
    replicas: { type: 'string', default: '8,64' },
    loads: { type: 'string' },
    requests: { type: 'string' },
    documents: { type: 'string', default: '1000000' },
    blocks: { type: 'string', default: '4096' },
    seed: { type: 'string', default: '2000' },
    quick: { type: 'boolean', default: false },
    json: { type: 'string' },
    write: { type: 'boolean', default: false },
  },
});
const fleets = values.replicas.split(',').map(Number);
const loads = (values.loads ?? (values.quick ? '0.8,1.2' : '0.5,0.8,1,1.2')).split(',').map(Number);
const seed = Number(values.seed);
/** Requests of a run for each replica of its fleet: the share of a large one is smaller, or it would take hours. */
const requestsOf = (replicas) =>
  Number(values.requests ?? (values.quick ? 200 : 600)) * (replicas <= 8 ? replicas : 8 * Math.sqrt(replicas / 8));

const TOPIC_DOCUMENTS = 25;
/** Conversations at once for each replica. */
const SESSIONS = 8;
/** Of a run, the part before which caches and histories are not yet as they will be. */
const WARM_UP = 1 / 4;

const serverOf = (replicas) => fleetServer({ replicas, blocks: Number(values.blocks) });

/** Requests a second that the fleet can just serve in retrieval order, each in turn. */
function capacityOf(workload, replicas) {
  const clients = closedLoopClients({ clients: 16 * replicas, thinkMs: 0, seed: 0 });
  const { outcomes } = simulateServer(workload, 'retrieval', clients, { ...serverOf(replicas), queue: 0 });
  return (1_000 * outcomes.length) / outcomes.reduce((last, { doneMs }) => Math.max(last, doneMs), 0);
}

const mean = (numbers) => numbers.reduce((sum, number) => sum + number, 0) / numbers.length;
const short = (number) => Number(number.toPrecision(6));

function figuresOf({ outcomes, replicas: runs }) {
  const counted = outcomes.slice(Math.floor(WARM_UP * outcomes.length));
  const ttft = counted.map(({ ttftMs }) => ttftMs).toSorted((a, b) => a - b);
  const most = runs.reduce((largest, { requests }) => Math.max(largest, requests), 0);
  return {
    uncached: short(mean(counted.map(({ promptTokens, cachedTokens }) => promptTokens - cachedTokens))),
    prompt: short(mean(counted.map(({ promptTokens }) => promptTokens))),
    ttftMs: short(mean(ttft)),
    p99Ms: short(ttft[Math.floor(0.99 * ttft.length)]),
    imbalance: short((most * runs.length) / outcomes.length),
  };
}

const runs = fleets.flatMap((replicas) =>
  loads.flatMap((load) => tables.LANES.map((lane) => ({ replicas, load, lane }))),
);
/** How many seconds a run of a fleet takes, by the runs so far; a fleet not yet seen counts as one so much larger. */
const began = performance.now();
let doneRequests = 0;
const allRequests = runs.reduce((sum, { replicas }) => sum + requestsOf(replicas), 0);

function tellProgress(done, { replicas, load, lane }) {
  const seconds = (performance.now() - began) / 1_000;
  const left = Math.round((seconds / doneRequests) * (allRequests - doneRequests));
  const name = `${replicas} replicas, load ${load}, ${lane.policy}, ${lane.router}`;
  process.stderr.write(`${done}/${runs.length} · ${name} · ${left} s left\n`);
}

const cells = {};
let prepared;
for (const [place, run] of runs.entries()) {
  const { replicas, load, lane } = run;
  if (prepared?.replicas !== replicas) {
    const topics = Math.round(Number(values.documents) / TOPIC_DOCUMENTS);
    const requests = Math.round(requestsOf(replicas));
    const trace = sessionsTrace(seed, { requests, k: 5, sessions: SESSIONS * replicas, topics });
    const workload = toWorkload('fleet', trace);
    prepared = { replicas, workload, perSecond: capacityOf(workload, replicas) };
  }
  const { workload, perSecond } = prepared;
  const clients = poissonClients({ perSecond: load * perSecond, seed });
  const options = { ...serverOf(replicas), router: ROUTERS[lane.router] };
  cells[`${replicas}/${load}/${lane.policy}/${lane.router}`] = figuresOf(
    simulateServer(workload, lane.policy, clients, options),
  );
  doneRequests += requestsOf(replicas);
  tellProgress(place + 1, run);
}

const settings = {
  documents: Number(values.documents),
  blocks: Number(values.blocks),
  requests: Object.fromEntries(fleets.map((replicas) => [replicas, Math.round(requestsOf(replicas))])),
  seed,
};
console.log(
  Object.entries(tables.tablesOf(cells))
    .map(([name, table]) => `\n${name}\n\n${table}`)
    .join('\n'),
);
writeFigures({ settings, cells }, values, tables);
