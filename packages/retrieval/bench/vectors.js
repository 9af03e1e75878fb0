/**
 * Vector search over clustered vectors: time to fill an index, p50 and p99 of a query, recall@10 of each stage and the
 * time until it, beside a plain scan in JavaScript and usearch (native HNSW, one thread), in one run.
 * Usage: node bench/vectors.js [--size 100000] [--dimension 384] [--queries 200] [--usearch] [--json file]
 */
import { writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { parseArgs } from 'node:util';
import { VectorIndex } from '../dist/index.js';

const K = 10;
const PLAIN_QUERIES = 20;
const { values: options } = parseArgs({
  options: {
    size: { type: 'string', default: '100000' },
    dimension: { type: 'string', default: '384' },
    queries: { type: 'string', default: '200' },
    usearch: { type: 'boolean', default: false },
    json: { type: 'string' },
  },
});
const [size, dimension, queryCount] = [options.size, options.dimension, options.queries].map(Number);
const { signal } = new AbortController();

let state = 42;
const random = () => {
  state = (state + 0x6d2b79f5) | 0;
  let mixed = Math.imul(state ^ (state >>> 15), state | 1);
  mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
};
const normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
const centres = Array.from({ length: Math.ceil(size / 100) }, () => Float32Array.from({ length: dimension }, normal));
/** A vector of length one near a centre. */
const draw = () => {
  const vector = Float32Array.from(centres[Math.floor(random() * centres.length)], (value) => value + 0.8 * normal());
  const length = Math.hypot(...vector);
  return vector.map((value) => value / length);
};

const rows = [];
const at = (times, share) => times.sort((a, b) => a - b)[Math.floor(times.length * share)];
const seconds = (since) => (performance.now() - since) / 1000;
function report(what, { times, recall, fillS }) {
  const row = { what, recall, p50Ms: at(times, 0.5), p99Ms: at(times, 0.99), fillS };
  rows.push(row);
  const figures = `recall@${K} ${recall.toFixed(3)}  p50 ${row.p50Ms.toFixed(2)} ms  p99 ${row.p99Ms.toFixed(2)} ms`;
  console.log(`${what.padEnd(28)} ${figures}${fillS === undefined ? '' : `  filled in ${fillS.toFixed(1)} s`}`);
}

console.log(`${size} x ${dimension}, cosine, ${queryCount} queries; ${cpus()[0].model}, Node ${process.version}`);
const vectors = Array.from({ length: size }, draw);
const queries = Array.from({ length: queryCount }, draw);

let began = performance.now();
const index = new VectorIndex({ dimension });
await index.add(vectors.map((vector, i) => ({ id: `${i}`, vector })));
const fillS = seconds(began);
const stages = [];
for (const query of queries) {
  const start = performance.now();
  for await (const { ids, index: stage } of index.search(query, { k: K, signal })) {
    stages[stage] ??= { times: [], found: [] };
    stages[stage].times.push(performance.now() - start);
    stages[stage].found.push(ids);
  }
}
const truth = stages.at(-1).found.map((ids) => new Set(ids));
const recallOf = (found) =>
  found.reduce((sum, ids, i) => sum + ids.filter((id) => truth[i].has(`${id}`)).length, 0) / (K * found.length);
for (const [stage, { times, found }] of stages.entries()) {
  const isLast = stage === stages.length - 1;
  report(`Warmpath, stage ${stage + 1} of ${stages.length}`, {
    times,
    recall: recallOf(found),
    ...(isLast && { fillS }),
  });
}

const plain = (query) => {
  const best = [];
  for (const [row, vector] of vectors.entries()) {
    let score = 0;
    for (let i = 0; i < dimension; i++) score += query[i] * vector[i];
    if (best.length === K && score <= best[K - 1].score) continue;
    best.push({ row, score });
    best.sort((a, b) => b.score - a.score).splice(K);
  }
  return best.map(({ row }) => row);
};

const searches = [{ what: 'plain scan, JavaScript', search: plain, asked: queries.slice(0, PLAIN_QUERIES) }];
if (options.usearch) {
  const { Index, MetricKind, ScalarKind } = (await import('usearch')).default;
  const native = new Index({
    dimensions: dimension,
    metric: MetricKind.Cos,
    quantization: ScalarKind.F32,
    connectivity: 16,
    expansion_add: 100,
    expansion_search: 64,
    multi: false,
  });
  began = performance.now();
  for (const [row, vector] of vectors.entries()) native.add(BigInt(row), vector);
  const search = (query) => [...native.search(query, K, 1).keys];
  searches.push({ what: 'usearch, breadth 64', search, asked: queries, fillS: seconds(began) });
}
for (const { what, search, asked, fillS } of searches) {
  const times = [];
  const found = asked.map((query) => {
    const start = performance.now();
    const ids = search(query);
    times.push(performance.now() - start);
    return ids;
  });
  report(what, { times, recall: recallOf(found), fillS });
}
console.log(`peak memory ${Math.round(process.resourceUsage().maxRSS / 1024)} MiB`);
if (options.json !== undefined) {
  writeFileSync(options.json, `${JSON.stringify({ size, dimension, rows }, undefined, 2)}\n`);
}
