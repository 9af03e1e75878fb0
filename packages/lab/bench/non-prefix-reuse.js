/**
 * What reuse of documents at other places would save beside ordering: the tables of docs/research/non-prefix-reuse.md,
 * from simulations alone. Writes every figure to bench/non-prefix-figures.json, and the tables into the page. Some
 * minutes on one core.
 *
 *   npm run bench:non-prefix -w packages/lab                    everything but the data sets
 *   npm run bench:non-prefix -w packages/lab -- --data <folder> also those: multihop-rag, squad2, hotpotqa, mtrag-un
 *   npm run bench:non-prefix -w packages/lab -- --tables        only the tables, from the JSON
 */
import { readFile, writeFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import {
  createWorkload,
  estimate,
  GraftCache,
  readCache,
  readData,
  SglangRadixCache,
  simulate,
} from '../dist/index.js';
import { FIGURES_FILE, PAGE_FILE, POLICIES, tablesOf, VARIANTS } from './non-prefix-tables.js';
import { rounded, withTables } from './page-tables.js';

/** Nothing was chosen on these seeds. */
const SEEDS = [1_101, 1_102, 1_103];

const WORKLOADS = [
  'headline',
  'geospatial',
  'mixed',
  'two-phase',
  'true-zero',
  'sessions-settled',
  'zipf',
  'topics',
  'multi-session-multihoprag',
  'multi-turn',
];

/** Requests ahead that `foresight` may know of: those that could be waiting. */
const AHEAD = 8;

const DATA = [
  ['multihop-rag', 'MultiHop-RAG', 5, 1],
  ['multihop-rag', 'MultiHop-RAG', 10, 1],
  ['squad2', 'SQuAD 2.0', 5, 1],
  ['hotpotqa', 'HotpotQA', 5, 1],
  ['mtrag-un', 'MTRAG-UN', 5, 8],
  ['mtrag-un', 'MTRAG-UN', 10, 8],
];

/** Tokens on the device, and of documents kept in host memory beside it. */
const LIMITED = [
  ['sessions-settled', 5_280, 21_120],
  ['sessions-settled', 21_120, 84_480],
  ['geospatial', 5_280, 21_120],
  ['multi-session-multihoprag', 200_000, 200_000],
];

/** Matches to the token: what blocks cut off at the ends of documents is another matter. */
const prefixOf = (tokens) => new SglangRadixCache(tokens === undefined ? {} : { tokens });

const total = (outcomes, of) => outcomes.reduce((sum, outcome) => sum + (of(outcome) ?? 0), 0);
const savedShare = (outcomes) =>
  total(outcomes, (o) => o.cachedTokens + (o.graftedTokens ?? 0)) / total(outcomes, (o) => o.promptTokens);
const graftedShare = (outcomes) => total(outcomes, (o) => o.graftedTokens) / total(outcomes, (o) => o.promptTokens);

function run(workload, policy, cache) {
  return simulate(workload, policy, { queue: AHEAD, cache });
}

/** Tokens of documents that an earlier request had too, over all prompt tokens. */
function seenShare({ preamble, requests }) {
  const seen = new Set();
  let before = 0;
  let prompt = 0;
  for (const { documents, question } of requests) {
    prompt += preamble.tokens + question.tokens;
    for (const { key, tokens } of documents) {
      prompt += tokens;
      if (seen.has(key)) before += tokens;
      seen.add(key);
    }
  }
  return before / prompt;
}

const over = (workloads, of) => rounded(estimate(workloads.map(of)));

/** The columns of the first and third table: what is saved without grafts and with, and how much is approximate. */
function savedCell(workloads) {
  const kept = POLICIES.map((policy) => workloads.map((each) => run(each, policy, prefixOf())));
  const grafted = POLICIES.map((policy) =>
    workloads.map((each) => run(each, policy, new GraftCache({ prefix: prefixOf() }))),
  );
  const apart = POLICIES.map((policy) =>
    workloads.map((each) => run(each, policy, new GraftCache({ prefix: prefixOf(), sharesGrafted: false }))),
  );
  const each = (runs, of) => runs.map((outcomes) => rounded(estimate(outcomes.map(of))));
  return {
    seen: over(workloads, seenShare),
    prefix: each(kept, savedShare),
    grafts: each(grafted, savedShare),
    approximate: each(grafted, graftedShare),
    apart: each(apart, savedShare),
  };
}

const seeded = (name) => SEEDS.map((seed) => createWorkload(name, { seed }));

async function main() {
  const { values } = parseArgs({
    options: { data: { type: 'string' }, tables: { type: 'boolean', default: false } },
  });
  const known = JSON.parse(await readFile(FIGURES_FILE, 'utf8').catch(() => '{"cells":{}}')).cells;
  const cells = values.tables ? known : {};
  const cell = async (name, make) => {
    const started = performance.now();
    cells[name] = await make();
    process.stderr.write(`${name}  ${((performance.now() - started) / 1_000).toFixed(1)} s\n`);
  };
  if (!values.tables) {
    for (const name of WORKLOADS) await cell(`saved/${name}`, () => savedCell(seeded(name)));
    for (const [folder, title, topK, sessions] of DATA) {
      const name = `saved/${title}, ${topK} passages`;
      // The data sets are not in this repository: without them, their figures stay what they were.
      if (values.data === undefined) cells[name] = known[name];
      else await cell(name, async () => savedCell([await dataOf(`${values.data}/${folder}`, topK, sessions)]));
    }
    for (const name of ['geospatial', 'sessions-settled']) {
      await cell(`variants/${name}`, () => {
        const shares = Object.entries(VARIANTS).map(([variant, options]) => [
          variant,
          ['retrieval', 'exact'].map((policy) =>
            over(seeded(name), (each) =>
              savedShare(run(each, policy, new GraftCache({ prefix: prefixOf(), ...options }))),
            ),
          ),
        ]);
        return Object.fromEntries(shares);
      });
    }
    for (const [name, device, host] of LIMITED) {
      const label = `${name}, ${device.toLocaleString('en')} + ${host.toLocaleString('en')} tokens`;
      await cell(`limited/${label}`, () => [
        over(seeded(name), (each) => savedShare(run(each, 'exact', readCache(`tiered:${device}/${host}:lru`)()))),
        ...POLICIES.map((policy) =>
          over(seeded(name), (each) =>
            savedShare(run(each, policy, new GraftCache({ prefix: prefixOf(device), tokens: host }))),
          ),
        ),
      ]);
    }
    await writeFile(FIGURES_FILE, `${JSON.stringify({ seeds: SEEDS, cells }, null, 2)}\n`);
  }
  const page = await readFile(PAGE_FILE, 'utf8');
  await writeFile(PAGE_FILE, withTables(page, tablesOf(cells)));
}

async function dataOf(path, topK, sessions) {
  return (await readData(path, { topK, sessions })).workload;
}

await main();
