// BM25 over many short passages: time to build, memory, time of a query; MiniSearch beside it on what it can hold.
// Words are drawn as they are frequent in a language (Zipf), queries as people ask: some frequent words, some rare.
import MiniSearch from 'minisearch';
import { Bm25 } from '../dist/lexical/bm25.js';
import { PostingsBuilder } from '../dist/lexical/postings.js';

const PASSAGES = Number(process.argv[2] ?? 1_000_000);
const SMALL = Math.min(PASSAGES, 50_000);
const VOCABULARY = 400_000;
const QUERIES = 500;

let state = 42;
const random = () => {
  state = (state + 0x6d2b79f5) | 0;
  let mixed = Math.imul(state ^ (state >>> 15), state | 1);
  mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
};

// The sum of 1 / rank up to each rank, to draw from.
const sums = new Float64Array(VOCABULARY);
for (let rank = 0; rank < VOCABULARY; rank++) sums[rank] = (sums[rank - 1] ?? 0) + 1 / (rank + 2.7);
const word = () => {
  const sought = random() * sums[VOCABULARY - 1];
  let low = 0;
  let high = VOCABULARY - 1;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (sums[middle] < sought) low = middle + 1;
    else high = middle;
  }
  return `w${low.toString(36)}`;
};
const sentence = (least, most) =>
  Array.from({ length: least + Math.floor(random() * (most - least + 1)) }, word).join(' ');

const median = (times, share = 0.5) => times.sort((a, b) => a - b)[Math.floor(times.length * share)];
const measure = (queries, search) => {
  for (const query of queries) search(query);
  const times = queries.map((query) => {
    const start = performance.now();
    search(query);
    return performance.now() - start;
  });
  return { p50: median(times), p99: median(times, 0.99) };
};
const megabytes = () => {
  globalThis.gc?.();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return (heapUsed + arrayBuffers) / 2 ** 20;
};
const print = (name, passages, buildMs, { p50, p99 }, memory) =>
  console.log(
    `${name.padEnd(24)} ${String(passages).padStart(9)} passages  built in ${(buildMs / 1000).toFixed(1).padStart(6)} s  ` +
      `query p50 ${p50.toFixed(2).padStart(7)} ms  p99 ${p99.toFixed(2).padStart(7)} ms  ${memory.toFixed(0).padStart(5)} MB`,
  );

const queries = Array.from({ length: QUERIES }, () => sentence(4, 8));
const texts = Array.from({ length: SMALL }, () => sentence(15, 40));

function own(count) {
  const before = megabytes();
  let spent = 0;
  const builder = new PostingsBuilder();
  for (let ordinal = 0; ordinal < count; ordinal++) {
    const text = texts[ordinal] ?? sentence(15, 40);
    const start = performance.now();
    builder.add(ordinal, text);
    spent += performance.now() - start;
  }
  const start = performance.now();
  const index = new Bm25(builder.build());
  spent += performance.now() - start;
  const times = measure(queries, (query) => index.search({ text: query }, 10));
  print('Warmpath', count, spent, times, megabytes() - before);
}

function miniSearch() {
  const before = megabytes();
  const start = performance.now();
  const index = new MiniSearch({ fields: ['text'] });
  for (const [id, text] of texts.entries()) index.add({ id, text });
  const built = performance.now() - start;
  const times = measure(queries.slice(0, 100), (query) => index.search(query));
  print('MiniSearch', SMALL, built, times, megabytes() - before);
}

own(SMALL);
miniSearch();
if (PASSAGES > SMALL) own(PASSAGES);
