/**
 * How near the offline optimum is known where it is not proven: the table of docs/research/offline-bracket.md. Writes
 * the figures to bench/offline-figures.json, and the table into the page.
 *
 *   npm run bench:offline -w packages/lab -- [--seconds 60] [--seeds 1001..1003] [--workload <name>]
 *   npm run bench:offline -w packages/lab -- --tables    only the table, from the JSON
 */
import { readFile, writeFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import {
  createWorkload,
  estimate,
  loadOfflineSolver,
  mean,
  readSeeds,
  SglangRadixCache,
  simulate,
} from '../dist/index.js';
import { FIGURES_FILE, PAGE_FILE, tablesOf } from './offline-tables.js';
import { rounded, withTables } from './page-tables.js';

/** Independent requests for 15 documents: what no solver proves in a minute. */
const WORKLOADS = ['zipf', 'topics', 'multi-session-multihoprag'];

/** Share of documents found cached, of the next eight requests those known that could be waiting. */
function share(workload, policy) {
  const outcomes = simulate(workload, policy, { queue: 8, cache: new SglangRadixCache() });
  return mean(outcomes.map(({ cachedDocuments, documents }) => cachedDocuments / documents));
}

async function main() {
  const { values } = parseArgs({
    options: {
      seconds: { type: 'string', default: '60' },
      seeds: { type: 'string', default: '1001..1003' },
      tables: { type: 'boolean', default: false },
      // One alone; the figures of the others stay what they were.
      workload: { type: 'string' },
    },
  });
  if (!values.tables) {
    const solve = await loadOfflineSolver();
    const cells = values.workload === undefined ? {} : JSON.parse(await readFile(FIGURES_FILE, 'utf8')).cells;
    for (const name of values.workload === undefined ? WORKLOADS : [values.workload]) {
      const runs = readSeeds(values.seeds).map((seed) => {
        const workload = createWorkload(name, { seed });
        const pairs = solve(workload, { seconds: 0 });
        const now = solve(workload, { seconds: Number(values.seconds) });
        return { exact: share(workload, 'exact'), foresight: share(workload, 'foresight'), pairs: pairs.high, ...now };
      });
      const over = (of) => rounded(estimate(runs.map(of)));
      cells[name] = {
        exact: over((run) => run.exact),
        foresight: over((run) => run.foresight),
        low: over((run) => run.low),
        high: over((run) => run.high),
        pairs: over((run) => run.pairs),
        width: over((run) => run.high - run.low),
        seconds: Number(values.seconds),
        seeds: values.seeds,
      };
      process.stderr.write(`${name}  ${JSON.stringify(cells[name])}\n`);
    }
    await writeFile(FIGURES_FILE, `${JSON.stringify({ cells }, null, 2)}\n`);
  }
  const { cells } = JSON.parse(await readFile(FIGURES_FILE, 'utf8'));
  const page = await readFile(PAGE_FILE, 'utf8');
  await writeFile(PAGE_FILE, withTables(page, tablesOf(cells)));
}

await main();
