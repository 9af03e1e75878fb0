/**
 * What it is worth that gateways tell each other what they sent: the same engines behind one gateway, and behind
 * several of which each gets its share of the requests in turn and hears of the others after a while, or never. Tokens
 * that the engines compute for a request.
 *
 * `npm run bench:gateways -w packages/lab` (about a minute).
 */
import { parseArgs } from 'node:util';
import {
  createWorkload,
  estimate,
  poissonClients,
  ROUTERS,
  sessionsTrace,
  simulateServer,
  toWorkload,
  VllmBlockCache,
} from '../dist/index.js';

const { values } = parseArgs({
  options: {
    gateways: { type: 'string', default: '2,4' },
    heard: { type: 'string', default: '0,100,1000' },
    seeds: { type: 'string', default: '5' },
    blocks: { type: 'string', default: '1500' },
  },
});
const seeds = Array.from({ length: Number(values.seeds) }, (_, place) => 3_000 + place);
const heardAfter = [...values.heard.split(',').map(Number), Number.POSITIVE_INFINITY];

const WORKLOADS = {
  sessions: (seed) => toWorkload('sessions', sessionsTrace(seed, { requests: 2_000, k: 5, sessions: 32 })),
  mixed: (seed) => createWorkload('mixed', { seed }),
  'multi-session-multihoprag': (seed) => createWorkload('multi-session-multihoprag', { seed }),
};
const REPLICAS = { 1: 8, 4: 24 };

function uncachedOf(workload, seed, { policy, replicas, gateways, heardAfterMs }) {
  const { outcomes } = simulateServer(workload, policy, poissonClients({ perSecond: REPLICAS[replicas], seed }), {
    createCache: () =>
      new VllmBlockCache({ blocks: Number(values.blocks) * (workload.name.startsWith('multi') ? 4 : 1) }),
    replicas,
    router: ROUTERS['cache-pressure'],
    maxBatch: 16,
    stepTokens: 2_048,
    chunked: true,
    queue: 16,
    answerTokens: () => 32,
    gateways,
    heardAfterMs,
  });
  return outcomes.reduce((sum, one) => sum + one.promptTokens - one.cachedTokens, 0) / outcomes.length;
}

console.log(
  'workload                   engines  order      gateways  hear after     uncached tokens   beside one gateway',
);
for (const [name, create] of Object.entries(WORKLOADS)) {
  for (const replicas of Object.keys(REPLICAS).map(Number)) {
    for (const policy of ['exact', 'foresight']) {
      const lanes = [{ gateways: 1, heardAfterMs: Number.POSITIVE_INFINITY }];
      for (const gateways of values.gateways.split(',').map(Number)) {
        for (const heardAfterMs of heardAfter) lanes.push({ gateways, heardAfterMs });
      }
      let alone;
      for (const lane of lanes) {
        const uncached = estimate(seeds.map((seed) => uncachedOf(create(seed), seed, { policy, replicas, ...lane })));
        alone ??= uncached.mean;
        const after = lane.heardAfterMs === Number.POSITIVE_INFINITY ? 'never' : `${lane.heardAfterMs} ms`;
        console.log(
          name.padEnd(26),
          String(replicas).padStart(7),
          '',
          policy.padEnd(10),
          String(lane.gateways).padStart(8),
          (lane.gateways === 1 ? '' : after).padStart(11),
          `${uncached.mean.toFixed(1)} (${uncached.se.toFixed(1)})`.padStart(19),
          `${(100 * (uncached.mean / alone - 1)).toFixed(1)} %`.padStart(20),
        );
      }
    }
  }
}
