/**
 * Makes the tables of docs/research/foresight.md anew: runs the simulations, writes every figure to
 * bench/foresight-figures.json, and the tables into the page. Some minutes on one core.
 *
 *   npm run figures -w packages/lab                    everything but the data sets
 *   npm run figures -w packages/lab -- --data <folder> also those: folders multihop-rag, squad2, hotpotqa, mtrag-un
 *   npm run figures -w packages/lab -- --resume        only what the JSON does not hold yet
 *   npm run figures -w packages/lab -- --tables        nothing: only the tables, from the JSON
 *   npm run figures -w packages/lab -- --check         the first seed of every workload, beside what the JSON has of it
 *
 * Seeds are named and apart: constants were chosen on the tuning seeds, versions were compared on the validation
 * seeds, and on the test seeds nothing was looked at before the figures were made.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { createWorkload, estimate, mean, readCache, readData, simulate } from '../dist/index.js';
import { FIGURES_FILE, PAGE_FILE, tablesOf } from './foresight-tables.js';
import { rounded, withTables } from './page-tables.js';

const SEEDS = {
  tuning: { first: 1, last: 40 },
  validation: { first: 201, last: 430 },
  test: { first: 1_001, last: 1_030 },
};

/** Workloads and how many test seeds each takes: fewer where a run has a thousand requests and more. */
const WORKLOADS = {
  headline: 30,
  geospatial: 30,
  mixed: 30,
  'two-phase': 30,
  'overlap-0.0-200': 30,
  'true-zero': 30,
  'k-3': 30,
  'k-7': 30,
  'headline-2000': 10,
  sessions: 10,
  'sessions-settled': 10,
  zipf: 5,
  topics: 5,
  'multi-turn': 5,
  hybrid: 5,
};

/** Of a thousand tokens a document: a cache of the radix tree is exact to the token, and much the faster one. */
const LONG = new Set(['multi-turn', 'hybrid']);

const CONDITIONS = [
  ...[0, 1, 8, 32].map((queue) => ({ lengths: 'equal', queue })),
  ...[0, 8].map((queue) => ({ lengths: 'unequal', queue })),
];

const LIMITED = [
  ['sessions-settled', 330],
  ['sessions-settled', 1_320],
  ['sessions', 330],
  ['sessions', 1_320],
  ['geospatial', 330],
  ['mixed', 330],
];

const DATA = [
  ['multihop-rag', 'MultiHop-RAG'],
  ['squad2', 'SQuAD 2.0'],
  ['hotpotqa', 'HotpotQA'],
  ['mtrag-un', 'MTRAG-UN, 8 at a time'],
];

const FIT_SEEDS = [1, 2, 3, 4, 5];

function testSeeds(count) {
  return Array.from({ length: count }, (_, place) => SEEDS.test.first + place);
}

const documentShare = (outcomes) =>
  mean(outcomes.map((o) => (o.documents === 0 ? 0 : o.cachedDocuments / o.documents)));
const sum = (values) => values.reduce((total, value) => total + value, 0);
const tokenShare = (outcomes) => sum(outcomes.map((o) => o.cachedTokens)) / sum(outcomes.map((o) => o.promptTokens));

/** The figures, kept as they come, so that a run that is stopped is gone on with by `--resume`. */
class Figures {
  constructor(known) {
    this.cells = known;
  }

  async cell(name, make) {
    if (this.cells[name] !== undefined) return;
    const started = performance.now();
    this.cells[name] = await make();
    process.stderr.write(`${name}  ${((performance.now() - started) / 1_000).toFixed(1)} s\n`);
    await writeFile(FIGURES_FILE, `${JSON.stringify({ seeds: SEEDS, cells: this.cells }, null, 2)}\n`);
  }
}

/** What `exact` finds on one seed, and how much more `foresight`. */
function compareOn(name, seed, { lengths, queue }) {
  const share = lengths === 'equal' ? documentShare : tokenShare;
  const workload = createWorkload(name, { seed, lengths });
  const of = (policy) =>
    share(simulate(workload, policy, { queue, cache: readCache(LONG.has(name) ? 'radix' : 'unlimited')() }));
  const exact = of('exact');
  return { exact, difference: of('foresight') - exact };
}

/** `foresight` minus `exact` on the first seed, now and when the figures were made. */
function checkWorkloads(cells) {
  for (const name of Object.keys(WORKLOADS)) {
    for (const condition of CONDITIONS) {
      const label = `workload/${name}/${condition.lengths}/${condition.queue}`;
      const { difference } = compareOn(name, SEEDS.test.first, condition);
      const moved = difference - cells[label].first;
      const verdict = Math.abs(moved) < 1e-9 ? 'the same' : `moved by ${(100 * moved).toFixed(3)} points`;
      process.stdout.write(`${label}  ${(100 * difference).toFixed(3)}  ${verdict}\n`);
    }
  }
}

/** `foresight` minus `exact`, seed by seed, for each condition. */
async function runWorkloads(figures) {
  for (const [name, count] of Object.entries(WORKLOADS)) {
    for (const condition of CONDITIONS) {
      await figures.cell(`workload/${name}/${condition.lengths}/${condition.queue}`, () => {
        const runs = testSeeds(count).map((seed) => compareOn(name, seed, condition));
        const exact = runs.map((run) => run.exact);
        const differences = runs.map(({ difference }) => difference);
        return { exact: rounded(estimate(exact)), difference: rounded(estimate(differences)), first: differences[0] };
      });
    }
  }
}

async function runLimited(figures) {
  for (const [name, blocks] of LIMITED) {
    await figures.cell(`limited/${name}/${blocks}`, () => {
      const share = (policy, queue, reportsCachedTokens) =>
        rounded(
          estimate(
            testSeeds(5).map((seed) =>
              tokenShare(
                simulate(createWorkload(name, { seed }), policy, {
                  queue,
                  reportsCachedTokens,
                  cache: readCache(String(blocks))(),
                }),
              ),
            ),
          ),
        );
      return {
        exact: [share('exact', 0, false), share('exact', 0, true)],
        ahead: [share('foresight', 8, false), share('foresight', 8, true)],
      };
    });
  }
}

/** What `sessions-settled` was fitted to, on the seeds that it was fitted on. */
async function runFit(figures) {
  await figures.cell('fit', () => {
    const over = (share, policy, cache, reportsCachedTokens) =>
      mean(
        FIT_SEEDS.map((seed) =>
          share(
            simulate(createWorkload('sessions-settled', { seed }), policy, {
              cache: readCache(cache)(),
              reportsCachedTokens,
            }),
          ),
        ),
      );
    return {
      retrieval: over(documentShare, 'retrieval', 'unlimited', true),
      exact: over(documentShare, 'exact', 'unlimited', true),
      'exact/330': over(tokenShare, 'exact', '330', false),
      'exact/1320': over(tokenShare, 'exact', '1320', false),
    };
  });
}

async function runData(figures, folder) {
  for (const [name, title] of DATA) {
    for (const topK of [5, 10]) {
      await figures.cell(`data/${title}/${topK}`, async () => {
        const { workload } = await readData(`${folder}/${name}`, { topK, sessions: 8 });
        const share = (policy, queue) => tokenShare(simulate(workload, policy, { queue }));
        const exact = share('exact', 0);
        return { exact, none: share('foresight', 0) - exact, ahead: share('foresight', 8) - exact };
      });
    }
  }
}

async function main() {
  const { values } = parseArgs({
    options: {
      check: { type: 'boolean', default: false },
      data: { type: 'string' },
      resume: { type: 'boolean', default: false },
      tables: { type: 'boolean', default: false },
    },
  });
  const known = JSON.parse(await readFile(FIGURES_FILE, 'utf8').catch(() => '{"cells":{}}')).cells;
  if (values.check) return checkWorkloads(known);
  if (!values.tables) {
    // The data sets are not in this repository: without them, their figures stay what they were.
    const isKept = ([name]) => values.resume || (values.data === undefined && name.startsWith('data/'));
    const figures = new Figures(Object.fromEntries(Object.entries(known).filter(isKept)));
    await runWorkloads(figures);
    await runLimited(figures);
    await runFit(figures);
    if (values.data !== undefined) await runData(figures, values.data);
  }
  const { cells } = JSON.parse(await readFile(FIGURES_FILE, 'utf8'));
  const page = await readFile(PAGE_FILE, 'utf8');
  await writeFile(PAGE_FILE, withTables(page, tablesOf(cells)));
}

await main();
