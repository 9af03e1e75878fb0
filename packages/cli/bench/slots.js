// Orders before a llama-server in its default mode, on the lab's model of its cache: tokens of a request that have to
// be computed, hints included, beside retrieval order, for every data set in a folder and for orders of its questions
// that nothing was tuned on. `node bench/slots.js --data FOLDER [--seeds 0,11,12,13,14] [--top-k 5] [--limit 500]`,
// after a build; seed 0 is the order of the file. `warmpath lab calibrate` holds the model against a real server.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { readCache } from '@warmpath/lab';
import { calibrateModel, calibrationRequests } from '../dist/lab/calibration.js';
import { readQuestionSource } from '../dist/lab/evaluation/question-source.js';

const { values } = parseArgs({
  options: {
    data: { type: 'string' },
    // Constants were chosen on seeds 1 to 4.
    seeds: { type: 'string', default: '0,11,12,13,14' },
    'top-k': { type: 'string', default: '5' },
    limit: { type: 'string', default: '500' },
  },
});
if (values.data === undefined) throw new Error('--data is needed: a folder of data sets');
const SEEDS = values.seeds.split(',').map(Number);
const LIMIT = Number(values.limit);
const POLICIES = ['retrieval', 'exact', 'foresight'];

/** Data sets whose questions come with passages. */
const SETS = ['multihop-rag', 'squad2', 'hotpotqa', 'mtrag-un/tasks.jsonl'];

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

const mean = (numbers) => numbers.reduce((sum, number) => sum + number, 0) / numbers.length;

console.log('data set               seed  uncached: retrieval     exact  foresight   ratio: exact  foresight');
const worse = [];
for (const set of SETS) {
  const path = join(values.data, set);
  if (!existsSync(path)) continue;
  const source = await readQuestionSource(path, { data: path, topK: Number(values['top-k']), seed: 42 });
  const requests = calibrationRequests(source.questions);
  const ratios = { exact: [], foresight: [] };
  for (const seed of SEEDS) {
    const settings = { createCache: readCache('slots'), systemPrompt: source.systemPrompt, mark: 'abcdef123456' };
    const played = shuffled(requests, seed).slice(0, LIMIT);
    const [retrieval, exact, foresight] = POLICIES.map((policy) => calibrateModel(played, policy, settings));
    const ratio = (one) => one.uncachedTokens / retrieval.uncachedTokens;
    ratios.exact.push(ratio(exact));
    ratios.foresight.push(ratio(foresight));
    console.log(
      set.padEnd(22),
      String(seed).padStart(4),
      ...[retrieval, exact, foresight].map(({ uncachedTokens }, place) =>
        uncachedTokens.toFixed(0).padStart([20, 9, 10][place]),
      ),
      ratio(exact).toFixed(3).padStart(14),
      ratio(foresight).toFixed(3).padStart(10),
    );
  }
  for (const [policy, all] of Object.entries(ratios)) if (Math.max(...all) > 1) worse.push(`${set} (${policy})`);
  console.log(
    `${set.padEnd(22)} mean ${mean(ratios.exact).toFixed(3).padStart(57)} ${mean(ratios.foresight).toFixed(3).padStart(10)}`,
  );
}
console.log(
  worse.length === 0
    ? '\nNowhere more than in retrieval order.'
    : `\nMore than in retrieval order: ${worse.join(', ')}.`,
);
