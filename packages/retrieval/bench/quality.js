/**
 * How well search finds what answers a question, on data sets in BEIR's layout: nDCG@10, recall@5 and @10 of a
 * collection as it is ingested, of BM25 over whole documents, and of peers over the same documents.
 * Peers that are not installed are left out:
 * npm install --no-save @orama/orama lunr wink-bm25-text-search wink-nlp-utils
 * Usage: node bench/quality.js [FOLDER...] [--json file]; the folders of $WARMPATH_DATA without one.
 */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { parseArgs } from 'node:util';
import { stemmer } from '@orama/stemmers/english';
import { stopwords } from '@orama/stopwords/english';
import MiniSearch from 'minisearch';
import { Bm25Retriever, Collections } from '../dist/index.js';

const K = 10;
const { values: options, positionals } = parseArgs({ allowPositionals: true, options: { json: { type: 'string' } } });
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
const textOf = ({ title, content }) => (title === undefined ? content : `${title}\n${content}`);

async function finalIds(retriever, text, k, idOf) {
  let ids = [];
  for await (const { candidates } of retriever.search({ text }, { k, signal })) ids = candidates.map(idOf);
  return [...new Set(ids)].slice(0, K);
}

/** A collection on disk, as it is ingested; documents in the order of their best passages. */
async function overCollection(folder, scratch) {
  const collections = new Collections(scratch);
  const collection = await collections.getOrMake('default', 'quality');
  const { errorCount } = await collection.ingest([folder]);
  if (errorCount > 0) throw new Error(`${errorCount} lines of ${folder} could not be read`);
  return {
    close: () => collections.close(),
    search: (text) => finalIds(collection.retriever, text, 5 * K, ({ metadata }) => metadata.source),
  };
}

/** BM25 as bm25s and rank_bm25 have it, in the form of Lucene, over English stems without stop words. */
function reference(documents) {
  const stops = new Set(stopwords);
  const termsOf = (text) =>
    (text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []).filter((word) => !stops.has(word)).map((word) => stemmer(word));
  const terms = documents.map((document) => termsOf(textOf(document)));
  const average = mean(terms.map(({ length }) => length));
  const postings = new Map();
  for (const [place, list] of terms.entries()) {
    for (const term of list) {
      if (!postings.has(term)) postings.set(term, new Map());
      postings.get(term).set(place, (postings.get(term).get(place) ?? 0) + 1);
    }
  }
  return (text) => {
    const scores = new Map();
    for (const term of termsOf(text)) {
      const holders = postings.get(term) ?? new Map();
      const weight = Math.log(1 + (documents.length - holders.size + 0.5) / (holders.size + 0.5));
      for (const [place, frequency] of holders) {
        const norm = 1.2 * (0.25 + (0.75 * terms[place].length) / average);
        scores.set(place, (scores.get(place) ?? 0) + (weight * frequency * 2.2) / (frequency + norm));
      }
    }
    const best = [...scores].sort(([a, scoreA], [b, scoreB]) => scoreB - scoreA || a - b);
    return best.slice(0, K).map(([place]) => documents[place].id);
  };
}

/** Each with the stems and stop words of English, where it has any. */
const PEERS = {
  MiniSearch(documents) {
    const index = new MiniSearch({ fields: ['title', 'content'] });
    index.addAll(documents);
    return (text) => index.search(text).map(({ id }) => id);
  },
  async Orama(documents) {
    const { create, insertMultiple, search } = await import('@orama/orama');
    const tokenizer = { language: 'english', stemming: true, stemmer, stopWords: stopwords };
    const schema = { id: 'string', title: 'string', content: 'string' };
    const index = await create({ schema, components: { tokenizer } });
    await insertMultiple(index, documents);
    return async (text) => {
      const asked = { term: text, properties: ['title', 'content'], limit: K, threshold: 1 };
      return (await search(index, asked)).hits.map(({ id }) => id);
    };
  },
  async lunr(documents) {
    const { default: lunr } = await import('lunr');
    const index = lunr((builder) => {
      builder.ref('id');
      builder.field('title');
      builder.field('content');
      for (const document of documents) builder.add(document);
    });
    return (text) => index.query((query) => query.term(lunr.tokenizer(text))).map(({ ref }) => ref);
  },
  async wink(documents) {
    const { default: bm25 } = await import('wink-bm25-text-search');
    const { default: nlp } = await import('wink-nlp-utils');
    const index = bm25();
    index.defineConfig({ fldWeights: { title: 1, content: 1 } });
    const { lowerCase, removeExtraSpaces, tokenize0 } = nlp.string;
    index.definePrepTasks([lowerCase, removeExtraSpaces, tokenize0, nlp.tokens.removeWords, nlp.tokens.stem]);
    for (const [place, { title = '', content }] of documents.entries()) index.addDoc({ title, content }, place);
    index.consolidate();
    return (text) => index.search(text, K).map(([place]) => documents[place].id);
  },
};

const results = [];
for (const folder of folders) {
  const { documents, queries } = readBeir(folder);
  const scratch = mkdtempSync(join(tmpdir(), 'warmpath-quality-'));
  const collection = await overCollection(folder, scratch);
  const whole = Bm25Retriever.over(documents);
  const searches = {
    collection: collection.search,
    'whole documents': (text) => finalIds(whole, text, K, ({ id }) => id),
    'reference BM25': reference(documents),
  };
  for (const [name, build] of Object.entries(PEERS)) {
    try {
      searches[name] = await build(documents);
    } catch (error) {
      if (error.code !== 'ERR_MODULE_NOT_FOUND') throw error;
      console.log(`${name} is not installed.`);
    }
  }
  console.log(`\n${basename(folder)}: ${documents.length} documents, ${queries.length} questions`);
  console.log('                     nDCG@10  recall@5  recall@10');
  for (const [name, search] of Object.entries(searches)) {
    const found = [];
    for (const { text, relevant } of queries) found.push({ ids: (await search(text)).slice(0, K), relevant });
    const row = {
      folder: basename(folder),
      name,
      ndcg10: mean(found.map(({ ids, relevant }) => ndcg(ids, relevant))),
      recall5: mean(found.map(({ ids, relevant }) => recall(ids, relevant, 5))),
      recall10: mean(found.map(({ ids, relevant }) => recall(ids, relevant, K))),
    };
    results.push(row);
    const figures = [row.ndcg10, row.recall5, row.recall10].map((value) => value.toFixed(4).padStart(8));
    console.log(`  ${name.padEnd(16)}  ${figures.join('  ')}`);
  }
  await collection.close();
  rmSync(scratch, { recursive: true, force: true });
}
if (options.json !== undefined) writeFileSync(options.json, `${JSON.stringify(results, undefined, 2)}\n`);
