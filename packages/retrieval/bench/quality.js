// How well search finds what answers a question, on data sets in BEIR's layout: nDCG@10, recall@5 and recall@10.
// Usage: node bench/quality.js [folder …]; without one, the folders of $WARMPATH_DATA.
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { Collections } from '../dist/index.js';

const root = process.env.WARMPATH_DATA;
const isBeir = (folder) => existsSync(join(folder, 'corpus.jsonl')) && existsSync(join(folder, 'qrels'));
const given = process.argv.slice(2);
const folders = (given.length > 0 ? given : root ? readdirSync(root).map((name) => join(root, name)) : []).filter(
  isBeir,
);
if (folders.length === 0) {
  console.error('Name folders in the layout of BEIR (corpus.jsonl, queries.jsonl, qrels), or set WARMPATH_DATA.');
  process.exit(2);
}

const lines = (file) => readFileSync(file, 'utf8').split('\n').filter(Boolean);

/** Documents in the order of their best passages. */
function documentsOf(candidates) {
  return [...new Set(candidates.map(({ metadata }) => metadata.source))];
}

async function evaluate(folder) {
  const scratch = mkdtempSync(join(tmpdir(), 'warmpath-quality-'));
  const collections = new Collections(scratch);
  try {
    const collection = await collections.getOrMake('default', 'quality');
    const { errorCount } = await collection.ingest([folder]);
    if (errorCount > 0) throw new Error(`${errorCount} lines of ${folder} could not be read`);
    const relevant = new Map();
    for (const line of lines(join(folder, 'qrels', 'test.tsv'))) {
      const [query, document, score] = line.split('\t');
      if (!(Number(score) > 0)) continue;
      if (!relevant.has(query)) relevant.set(query, new Map());
      relevant.get(query).set(document, Number(score));
    }
    const sums = { ndcg: 0, recall5: 0, recall10: 0 };
    const times = [];
    let count = 0;
    for (const line of lines(join(folder, 'queries.jsonl'))) {
      const { _id, text } = JSON.parse(line);
      const wanted = relevant.get(_id);
      if (wanted === undefined) continue;
      count++;
      const start = performance.now();
      let candidates = [];
      const signal = new AbortController().signal;
      for await (const stage of collection.retriever.search({ text }, { k: 50, signal })) candidates = stage.candidates;
      times.push(performance.now() - start);
      const found = documentsOf(candidates);
      const gain = (score, rank) => (2 ** score - 1) / Math.log2(rank + 2);
      const gained = found.slice(0, 10).reduce((sum, id, rank) => sum + gain(wanted.get(id) ?? 0, rank), 0);
      const best = [...wanted.values()].sort((a, b) => b - a).slice(0, 10);
      sums.ndcg += gained / best.reduce((sum, score, rank) => sum + gain(score, rank), 0);
      for (const k of [5, 10]) {
        sums[`recall${k}`] += found.slice(0, k).filter((id) => wanted.has(id)).length / wanted.size;
      }
    }
    const mean = (sum) => (sum / count).toFixed(3);
    times.sort((a, b) => a - b);
    console.log(
      `${basename(folder).padEnd(16)} ${String(count).padStart(5)} questions  ${String(collection.totals.passages).padStart(6)} passages  ` +
        `nDCG@10 ${mean(sums.ndcg)}  recall@5 ${mean(sums.recall5)}  recall@10 ${mean(sums.recall10)}  ` +
        `p50 ${times[Math.floor(times.length / 2)].toFixed(2)} ms`,
    );
  } finally {
    await collections.close();
    rmSync(scratch, { recursive: true, force: true });
  }
}

for (const folder of folders) await evaluate(folder);
