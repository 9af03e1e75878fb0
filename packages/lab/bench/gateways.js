/**
 * What it is worth that gateways tell each other what they sent: the same engines behind one gateway, and behind two
 * of which each gets every other request and hears of the other after a while, or never.
 *
 * `npm run bench:gateways -w packages/lab` (about a minute; `-- --write` puts the table into docs/research/fleet.md).
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
} from '../dist/index.js';
import { fleetServer, writeFigures } from './fleet-server.js';
import * as tables from './gateways-tables.js';
import { rounded } from './page-tables.js';

const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '4' },
    json: { type: 'string' },
    write: { type: 'boolean', default: false },
  },
});
const seeds = Array.from({ length: Number(values.seeds) }, (_, place) => 3_000 + place);

const CASES = {
  sessions: {
    create: (seed) => toWorkload('sessions', sessionsTrace(seed, { requests: 2_000, k: 5, sessions: 32 })),
    blocks: 1_500,
  },
  mixed: { create: (seed) => createWorkload('mixed', { seed }), blocks: 1_500 },
  // Fifteen passages of a thousand tokens.
  'multi-session-multihoprag': {
    create: (seed) => createWorkload('multi-session-multihoprag', { seed }),
    blocks: 6_000,
  },
};
/** Requests a second, by the number of engines. */
const PER_SECOND = { 1: 8, 4: 24 };

function uncachedOf(workload, seed, { policy, replicas, blocks, gateways, heardAfterMs }) {
  const clients = poissonClients({ perSecond: PER_SECOND[replicas], seed });
  const { outcomes } = simulateServer(workload, policy, clients, {
    ...fleetServer({ replicas, blocks }),
    router: ROUTERS['cache-pressure'],
    gateways,
    ...(heardAfterMs !== null && { heardAfterMs }),
  });
  return outcomes.reduce((sum, one) => sum + one.promptTokens - one.cachedTokens, 0) / outcomes.length;
}

const cells = {};
for (const [name, { create, blocks }] of Object.entries(CASES)) {
  const workloads = seeds.map(create);
  for (const replicas of Object.keys(PER_SECOND).map(Number)) {
    for (const policy of ['exact', 'foresight']) {
      const row = tables.LANES.map((lane) => {
        const settings = { policy, replicas, blocks, ...lane };
        return rounded(estimate(seeds.map((seed, place) => uncachedOf(workloads[place], seed, settings))));
      });
      cells[`${name}/${replicas}/${policy}`] = row;
      process.stderr.write(`${name}, ${replicas} engines, ${policy}: ${row.map(({ mean }) => mean.toFixed(0))}\n`);
    }
  }
}

console.log(`\n${tables.tablesOf(cells).gateways}`);
writeFigures({ seeds: seeds.join(), cells }, values, tables);
