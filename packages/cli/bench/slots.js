// Orders on the lab's models of caches: tokens of a request that have to be computed, hints included, beside retrieval
// order, for every data set in a folder, every cache, and orders of its requests that nothing was tuned on. Each row
// says whether both policies computed less everywhere, or left the order alone. `node bench/slots.js --data FOLDER
// [--caches slots,radix,4096] [--seeds 0,11,12,13,14] [--top-k 5] [--limit 500] [--json FILE]`, after a build; seed 0
// is the order of the file. `warmpath lab calibrate` holds the models against a real engine.
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { readCache, readData, simulate } from '@warmpath/lab';
import { calibrateModel, calibrationRequests } from '../dist/lab/calibration.js';
import { readQuestionSource } from '../dist/lab/evaluation/question-source.js';

const { values } = parseArgs({
  options: {
    data: { type: 'string' },
    caches: { type: 'string', default: 'slots,radix,4096' },
    // Constants were chosen on seeds 1 to 4.
    seeds: { type: 'string', default: '0,11,12,13,14' },
    'top-k': { type: 'string', default: '5' },
    limit: { type: 'string', default: '500' },
    json: { type: 'string' },
  },
});
if (values.data === undefined) throw new Error('--data is needed: a folder of data sets');
const SEEDS = values.seeds.split(',').map(Number);
const CACHES = values.caches.split(',');
const [TOP_K, LIMIT] = [values['top-k'], values.limit].map(Number);
const POLICIES = ['retrieval', 'exact', 'foresight'];

/** Data sets whose questions come with passages; `mooncake` has prefixes alone, and nothing to put into an order. */
const QUESTION_SETS = ['multihop-rag', 'squad2', 'hotpotqa', 'mtrag-un/tasks.jsonl'];
/** Those that the lab reads as requests. */
const NQ_OPEN = 'nq-open/NQ-open.dev.jsonl';
const TRACES = 'paper-traces';

/** Rounding apart, as many tokens. */
const EQUAL = 1e-9;

/** The same order for the same seed; that of the file for 0. */
function shuffled(items, seed) {
  const all = [...items];
  if (seed === 0) return all;
  let state = Math.imul(seed, 2_654_435_761) >>> 0;
  for (let last = all.length - 1; last > 0; last--) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    const place = Math.floor((state / 2 ** 32) * (last + 1));
    [all[last], all[place]] = [all[place], all[last]];
  }
  return all;
}

/** `{name, requests, play}` of each data set that is there; `play` answers uncached tokens a request. */
async function* dataSets(folder) {
  for (const name of QUESTION_SETS.filter((each) => existsSync(join(folder, each)))) {
    const path = join(folder, name);
    const { questions, systemPrompt } = await readQuestionSource(path, { data: path, topK: TOP_K, seed: 42 });
    const play = (requests, policy, createCache) =>
      calibrateModel(requests, policy, { createCache, systemPrompt, mark: 'abcdef123456' }).uncachedTokens;
    yield { name, requests: calibrationRequests(questions), play };
  }
  const traces = existsSync(join(folder, TRACES)) ? readdirSync(join(folder, TRACES)).sort() : [];
  const read = [NQ_OPEN, ...traces.map((file) => join(TRACES, file))];
  for (const name of read.filter((each) => existsSync(join(folder, each)))) {
    const { workload } = await readData(join(folder, name), { topK: TOP_K });
    const play = (requests, policy, createCache) =>
      mean(
        simulate({ ...workload, requests }, policy, { cache: createCache(), hints: true }).map(
          ({ promptTokens, cachedTokens }) => promptTokens - cachedTokens,
        ),
      );
    yield { name, requests: workload.requests, play };
  }
}

const mean = (numbers) => numbers.reduce((sum, number) => sum + number, 0) / numbers.length;

/** What comes of the worst seed. */
function verdictOf(ratios) {
  const most = Math.max(...ratios);
  if (most > 1 + EQUAL) return 'MORE';
  return Math.min(...ratios) > 1 - EQUAL ? 'left alone' : 'less';
}

console.log('mean over the seeds; the ratio of the worst seed in brackets; uncached tokens of a request\n');
console.log(
  'data set                              cache   retrieval     exact              foresight           verdict: exact   foresight',
);
const rows = [];
for await (const { name, requests, play } of dataSets(values.data)) {
  for (const cache of CACHES) {
    const createCache = readCache(cache);
    const runs = SEEDS.map((seed) => {
      const played = shuffled(requests, seed).slice(0, LIMIT);
      const [retrieval, exact, foresight] = POLICIES.map((policy) => play(played, policy, createCache));
      return { seed, retrieval, exact, foresight };
    });
    const [exact, foresight] = ['exact', 'foresight'].map((policy) => {
      const ratios = runs.map((run) => run[policy] / run.retrieval);
      const shown = `${mean(runs.map((run) => run[policy])).toFixed(0)} (${Math.max(...ratios).toFixed(3)})`;
      return { shown, verdict: verdictOf(ratios), ratios };
    });
    rows.push({ name, cache, runs, exact: exact.verdict, foresight: foresight.verdict });
    console.log(
      name.padEnd(36),
      cache.padEnd(8),
      mean(runs.map(({ retrieval }) => retrieval))
        .toFixed(0)
        .padStart(8),
      exact.shown.padStart(18),
      foresight.shown.padStart(18),
      exact.verdict.padStart(19),
      foresight.verdict.padStart(11),
    );
  }
}
const more = rows.filter(({ exact, foresight }) => exact === 'MORE' || foresight === 'MORE');
console.log(
  more.length === 0
    ? `\nNowhere more than in retrieval order, in ${rows.length} rows of ${SEEDS.length} seeds.`
    : `\nMore than in retrieval order: ${more.map(({ name, cache }) => `${name} on ${cache}`).join(', ')}.`,
);
if (values.json !== undefined) writeFileSync(values.json, JSON.stringify(rows, undefined, 2));
