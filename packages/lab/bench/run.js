/**
 * How fast the server is simulated: an hour of virtual time, in requests a second of processor time (of all threads, so
 * that other work on the machine disturbs little).
 *
 * `npm run bench -w packages/lab` (with `-- --json` for raw figures).
 */
import {
  poissonClients,
  ROUTERS,
  RTX_4090,
  SglangRadixCache,
  serverFigures,
  sessionsTrace,
  simulateServer,
  toWorkload,
  VllmBlockCache,
} from '../dist/index.js';

const HOUR_MS = 3_600_000;
const SEED = 1;
/** Requests a second that arrive, near what one engine can serve of them. */
const PER_SECOND = 12;

const blocks = (count) => ({ createCache: () => new VllmBlockCache({ blocks: count }) });
const ONE = { ...blocks(8_192), queue: 16 };
const FLEET = {
  ...ONE,
  replicas: 4,
  router: ROUTERS['cache-aware'],
  maxBatch: 16,
  stepTokens: 2_048,
  chunked: true,
  answerTokens: () => 100,
};

const CASES = [
  { name: 'one engine, retrieval order', policy: 'retrieval', perSecond: PER_SECOND, options: ONE },
  { name: 'one engine, exact', policy: 'exact', perSecond: PER_SECOND, options: ONE },
  { name: 'one engine, foresight', policy: 'foresight', perSecond: PER_SECOND, options: ONE },
  {
    name: 'one engine, foresight, radix cache',
    policy: 'foresight',
    perSecond: PER_SECOND,
    options: { ...ONE, createCache: () => new SglangRadixCache({ tokens: 131_072 }) },
  },
  { name: 'four engines, batches of 16, 100 tokens answered, exact', policy: 'exact', perSecond: 20, options: FLEET },
];

const only = process.argv.find((argument) => argument.startsWith('--only='))?.slice(7);
const results = CASES.filter(({ name }) => only === undefined || name.startsWith(only)).map(
  ({ name, policy, perSecond, options }) => {
    const requests = Math.round((perSecond * HOUR_MS) / 1_000);
    const workload = toWorkload('sessions', sessionsTrace(SEED, { requests, k: 5 }));
    const started = process.cpuUsage();
    const run = simulateServer(workload, policy, poissonClients({ perSecond, seed: SEED }), {
      latency: RTX_4090,
      ...options,
    });
    const { user, system } = process.cpuUsage(started);
    const seconds = (user + system) / 1e6;
    const steps = run.replicas.reduce((sum, replica) => sum + replica.steps, 0);
    const { utilisation } = serverFigures(run);
    return { name, requests, steps, seconds, requestsPerSecond: requests / seconds, utilisation };
  },
);

if (process.argv.includes('--json')) {
  console.log(JSON.stringify({ node: process.version, results }));
} else {
  console.log(`An hour of virtual time, Node ${process.version}`);
  for (const { name, requests, steps, seconds, requestsPerSecond, utilisation } of results) {
    console.log(
      `  ${name}: ${requests} requests, ${steps} steps in ${seconds.toFixed(1)} s, ` +
        `${Math.round(requestsPerSecond)} requests a second (engines ${Math.round(100 * utilisation)} % busy)`,
    );
  }
}
