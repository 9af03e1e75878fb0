/**
 * How well search finds what answers a question, on data sets in BEIR's layout: nDCG@10, recall@5 and @10 of a
 * collection as it is ingested (words, passages), and over whole documents with the hashed TF-IDF embedding of BM25,
 * vectors and both fused; at which stage the final set is there.
 * Usage: node bench/quality.js [FOLDER...] [--dimension 1024] [--json file]; the folders of $WARMPATH_DATA without one.
 */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { parseArgs } from 'node:util';
import {
  Bm25Retriever,
  Collections,
  HashedTfIdf,
  HybridRetriever,
  VectorIndex,
  VectorRetriever,
} from '../dist/index.js';

const K = 10;
const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: { dimension: { type: 'string', default: '1024' }, json: { type: 'string' } },
});
const root = process.env.WARMPATH_DATA;
const named = positionals.length === 0 && root ? readdirSync(root).map((name) => join(root, name)) : positionals;
const folders = named.filter((folder) => existsSync(join(folder, 'corpus.jsonl')) && existsSync(join(folder, 'qrels')));
if (folders.length === 0)
  throw new Error(
    'Name folders in the BEIR layout: corpus.jsonl, queries.jsonl, qrels/test.tsv, or set WARMPATH_DATA.',
  );
const { signal } = new AbortController();
const lines = (path) => readFileSync(path, 'utf8').split('\n').filter(Boolean);

function readBeir(folder) {
  const documents = lines(join(folder, 'corpus.jsonl')).map((line) => {
    const { _id, title, text } = JSON.parse(line);
    return { id: _id, content: text, ...(title && { title }) };
  });
  const relevant = new Map();
  for (const line of lines(join(folder, 'qrels', 'test.tsv')).slice(1)) {
    const [query, document, score] = line.split('\t');
    if (!relevant.has(query)) relevant.set(query, new Map());
    if (Number(score) > 0) relevant.get(query).set(document, Number(score));
  }
  const queries = lines(join(folder, 'queries.jsonl'))
    .map((line) => JSON.parse(line))
    .filter(({ _id }) => relevant.get(_id)?.size > 0)
    .map(({ _id, text }) => ({ text, relevant: relevant.get(_id) }));
  return { documents, queries };
}

const gain = (score, rank) => (2 ** score - 1) / Math.log2(rank + 2);
function ndcg(ids, relevant) {
  const found = ids.slice(0, K).reduce((sum, id, rank) => sum + gain(relevant.get(id) ?? 0, rank), 0);
  const ideal = [...relevant.values()].sort((a, b) => b - a).slice(0, K);
  return found / ideal.reduce((sum, score, rank) => sum + gain(score, rank), 0);
}
const recall = (ids, relevant, k) => ids.slice(0, k).filter((id) => relevant.has(id)).length / relevant.size;
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** A collection on disk, as it is ingested; documents in the order of their best passages. */
async function overCollection(folder, scratch) {
  const collections = new Collections(scratch);
  const collection = await collections.getOrMake('default', 'quality');
  const { errorCount } = await collection.ingest([folder]);
  if (errorCount > 0) throw new Error(`${errorCount} lines of ${folder} could not be read`);
  return {
    close: () => collections.close(),
    async *search(query, { k, signal }) {
      for await (const stage of collection.retriever.search(query, { k: 5 * k, signal })) {
        const ids = [...new Set(stage.candidates.map(({ metadata }) => metadata.source))].slice(0, k);
        yield { ...stage, candidates: ids.map((id) => ({ id })) };
      }
    },
  };
}

const results = [];
for (const folder of folders) {
  const { documents, queries } = readBeir(folder);
  const scratch = mkdtempSync(join(tmpdir(), 'warmpath-quality-'));
  const collection = await overCollection(folder, scratch);
  const dimension = Number(options.dimension);
  const textOf = ({ title, content }) => (title === undefined ? content : `${title}\n${content}`);
  const embedder = HashedTfIdf.learn(documents.map(textOf), dimension);
  const entries = documents.map((document) => ({ id: document.id, vector: embedder.vector(textOf(document)) }));
  const byId = new Map(documents.map((document) => [document.id, document]));
  const index = new VectorIndex({ dimension, stagesFrom: 1 });
  await index.add(entries);
  const vectors = new VectorRetriever({ index, embedder, passages: (ids) => ids.map((id) => byId.get(id)) });
  const bm25 = Bm25Retriever.over(documents);
  const retrievers = {
    collection,
    'bm25 (whole)': bm25,
    vectors,
    'bm25 + vectors': new HybridRetriever({ lexical: bm25, dense: vectors }),
  };
  console.log(`\n${basename(folder)}: ${documents.length} passages, ${queries.length} questions, ${embedder.name}`);
  console.log('                 nDCG@10  recall@5  recall@10   p50 ms  final set at stage (share of questions)');
  for (const [name, retriever] of Object.entries(retrievers)) {
    const [ndcgs, recalls5, recalls10, firsts, times] = [[], [], [], [], []];
    for (const { text, relevant } of queries) {
      const stages = [];
      const start = performance.now();
      for await (const { candidates } of retriever.search({ text }, { k: K, signal })) {
        stages.push(candidates.map(({ id }) => id));
      }
      times.push(performance.now() - start);
      const ids = stages.at(-1);
      ndcgs.push(ndcg(ids, relevant));
      recalls5.push(recall(ids, relevant, 5));
      recalls10.push(recall(ids, relevant, K));
      const sets = stages.map((stage) => [...stage].sort().join('\n'));
      const first = sets.indexOf(sets.at(-1));
      firsts[first] = (firsts[first] ?? 0) + 1;
    }
    const shares = Array.from(firsts, (count = 0) => count / queries.length);
    const row = {
      folder: basename(folder),
      name,
      ndcg10: mean(ndcgs),
      recall5: mean(recalls5),
      recall10: mean(recalls10),
      p50Ms: times.sort((a, b) => a - b)[times.length >> 1],
      finalSetAtStage: shares,
    };
    results.push(row);
    console.log(
      [
        `  ${name.padEnd(14)}`,
        ...[row.ndcg10, row.recall5, row.recall10].map((value) => value.toFixed(3).padStart(7)),
        row.p50Ms.toFixed(2).padStart(7),
        `  ${shares.map((share, stage) => `${stage + 1}: ${(100 * share).toFixed(0)} %`).join(', ')}`,
      ].join('  '),
    );
  }
  await collection.close();
  rmSync(scratch, { recursive: true, force: true });
}
if (options.json !== undefined) writeFileSync(options.json, `${JSON.stringify(results, undefined, 2)}\n`);
