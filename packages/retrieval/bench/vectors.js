/**
 * Vector search over clustered vectors: time to build, p50 and p99 of a query at the recall that each setting reaches,
 * what stages cost, beside usearch (native, one thread) and a plain scan in JavaScript, in one run.
 * Usage: node bench/vectors.js [--size 100000] [--dimension 384] [--queries 1000] [--kinds hnsw,ivf,usearch,plain]
 *        [--json file]
 */
import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { buildVectorIndex, readVectorIndex, writeVectorIndex } from '../dist/index.js';
import { VectorIndex } from '../dist/vector/vector-index.js';

const K = 10;
const RECALL = 0.99;
const BREADTHS = [10, 16, 24, 32, 48, 64, 96, 128, 192, 256];
const PROBES = [1, 2, 4, 8, 16, 32, 64];
const { values: options } = parseArgs({
  options: {
    size: { type: 'string', default: '100000' },
    dimension: { type: 'string', default: '384' },
    queries: { type: 'string', default: '1000' },
    kinds: { type: 'string', default: 'hnsw,ivf,usearch,plain' },
    json: { type: 'string' },
  },
});
const size = Number(options.size);
const dimension = Number(options.dimension);
const queryCount = Number(options.queries);
const kinds = new Set(options.kinds.split(','));
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
const draw = () => {
  const centre = centres[Math.floor(random() * centres.length)];
  return Float32Array.from(centre, (value) => value + 0.8 * normal());
};

const rows = [];
const say = (row) => {
  rows.push(row);
  console.log(
    [
      row.what.padEnd(34),
      row.buildS === undefined ? '' : `build ${row.buildS.toFixed(1)} s`,
      row.recall === undefined ? '' : `recall@10 ${row.recall.toFixed(4)}`,
      row.p50Ms === undefined ? '' : `p50 ${row.p50Ms.toFixed(3)} ms  p99 ${row.p99Ms.toFixed(3)} ms`,
      row.note ?? '',
    ]
      .filter(Boolean)
      .join('  '),
  );
};
const at = (times, share) => times.sort((a, b) => a - b)[Math.floor(times.length * share)];
const seconds = (since) => (performance.now() - since) / 1000;
const MiB = (bytes) => `${Math.round(bytes / 2 ** 20)} MiB`;

console.log(
  `${size} x ${dimension}, cosine, k = ${K}, ${queryCount} queries; ${cpus()[0].model}, Node ${process.version}`,
);
let began = performance.now();
function* entries() {
  for (let i = 0; i < size; i++) yield { id: `${i}`, vector: draw() };
}
const exact = await buildVectorIndex(entries(), { dimension, kind: 'exact' });
const queries = Array.from({ length: queryCount }, draw);
console.log(`drawn in ${seconds(began).toFixed(1)} s`);

const lastOf = async (index, query) => {
  let last;
  for await (const stage of index.search(query, { k: K, signal })) last = stage;
  return last.ids;
};
const truth = [];
const scan = [];
for (const query of queries) {
  began = performance.now();
  truth.push(new Set(await lastOf(exact, query)));
  scan.push(performance.now() - began);
}
say({ what: 'exact scan, SIMD kernel', recall: 1, p50Ms: at(scan, 0.5), p99Ms: at(scan, 0.99) });

const recallOf = (found) =>
  found.reduce((sum, ids, i) => sum + ids.filter((id) => truth[i].has(id)).length, 0) / (K * found.length);

/** Every query once to warm up and for the recall, once to measure. */
async function measure(what, search, more = {}) {
  const found = [];
  for (const query of queries) found.push([...(await search(query))].map(String));
  const times = [];
  for (const query of queries) {
    const start = performance.now();
    await search(query);
    times.push(performance.now() - start);
  }
  const row = { what, recall: recallOf(found), p50Ms: at(times, 0.5), p99Ms: at(times, 0.99), ...more };
  say(row);
  return row;
}

const best = {};
const note = (name, row) => {
  if (row.recall >= RECALL && (best[name] === undefined || row.p50Ms < best[name].p50Ms)) best[name] = row;
};

if (kinds.has('plain')) {
  const { table } = exact.contents.rows;
  const floats = new Float32Array(size * dimension);
  for (let row = 0; row < size; row++) floats.set(table.row(row).subarray(0, dimension), row * dimension);
  const some = queries.slice(0, 20);
  const plain = (query) => {
    const scores = new Float32Array(size);
    for (let row = 0, from = 0; row < size; row++, from += dimension) {
      let sum = 0;
      for (let i = 0; i < dimension; i++) sum += query[i] * floats[from + i];
      scores[row] = sum;
    }
    const top = [];
    for (let row = 0; row < size; row++) {
      if (top.length === K && scores[row] <= scores[top[K - 1]]) continue;
      top.push(row);
      top.sort((a, b) => scores[b] - scores[a]);
      if (top.length > K) top.pop();
    }
    return top;
  };
  const times = some.map((query) => {
    const start = performance.now();
    plain(query);
    return performance.now() - start;
  });
  best.plain = { what: 'plain scan, JavaScript', recall: 1, p50Ms: at(times, 0.5), p99Ms: at(times, 0.99) };
  say(best.plain);
}

const folder = mkdtempSync(join(tmpdir(), 'warmpath-vectors-'));
if (kinds.has('hnsw')) {
  began = performance.now();
  const built = await buildVectorIndex(exact.entries(), { dimension, kind: 'hnsw' });
  say({ what: 'hnsw, 16 links, build breadth 100', buildS: seconds(began) });
  const { rows: stored, state: parts } = built.contents;
  for (const breadth of BREADTHS) {
    const index = new VectorIndex({ dimension, hnsw: { breadth } }, stored, parts);
    note('hnsw', await measure(`hnsw, breadth ${breadth}`, (query) => lastOf(index, query), { breadth }));
    if ((best.hnsw?.breadth ?? breadth) < breadth) break;
  }
  // What stages cost: the same search without any, by turns, as the machine may change its pace.
  const { breadth } = best.hnsw ?? { breadth: 96 };
  const staged = new VectorIndex({ dimension, hnsw: { breadth, stages: 4 } }, stored, parts);
  const single = new VectorIndex({ dimension, hnsw: { breadth, stages: 1 } }, stored, parts);
  const [withStages, without] = [[], []];
  for (let round = 0; round < 6; round++) {
    for (const [i, query] of queries.entries()) {
      const both = [
        [staged, withStages],
        [single, without],
      ];
      // The second one finds the rows in the processor's cache.
      for (const [index, times] of (round + i) % 2 === 0 ? both : both.reverse()) {
        const start = performance.now();
        await lastOf(index, query);
        times.push(performance.now() - start);
      }
    }
  }
  const overhead = at(withStages, 0.5) / at(without, 0.5) - 1;
  say({
    what: `4 stages instead of 1, breadth ${breadth}`,
    overhead,
    note: `${(100 * overhead).toFixed(1)} % more at p50`,
  });
  // At which stage the final set is there.
  const firsts = [0, 0, 0, 0];
  for (const query of queries) {
    const stages = [];
    for await (const stage of staged.search(query, { k: K, signal })) stages.push([...stage.ids].sort().join());
    firsts[stages.indexOf(stages.at(-1))]++;
  }
  say({
    what: 'final set first seen at stage 1/2/3/4',
    firsts,
    note: firsts.map((n) => `${((100 * n) / queryCount).toFixed(1)} %`).join(' / '),
  });
  const path = join(folder, 'hnsw');
  began = performance.now();
  await writeVectorIndex(built, path);
  const wroteS = seconds(began);
  began = performance.now();
  await readVectorIndex(path);
  say({
    what: 'file',
    note: `${MiB(statSync(path).size)}, written in ${wroteS.toFixed(2)} s, read in ${seconds(began).toFixed(2)} s`,
  });
}

if (kinds.has('ivf')) {
  began = performance.now();
  const built = await buildVectorIndex(exact.entries(), { dimension, kind: 'ivf' });
  say({ what: 'ivf', buildS: seconds(began) });
  const { rows: stored, state: parts } = built.contents;
  for (const probes of PROBES) {
    const index = new VectorIndex({ dimension, ivf: { probes } }, stored, parts);
    note('ivf', await measure(`ivf, ${probes} probes`, (query) => lastOf(index, query), { probes }));
    if (best.ivf !== undefined) break;
  }
}

if (kinds.has('usearch')) {
  const { Index, MetricKind, ScalarKind } = (await import('usearch')).default;
  const config = (expansion_search) => ({
    dimensions: dimension,
    metric: MetricKind.Cos,
    quantization: ScalarKind.F32,
    connectivity: 16,
    expansion_add: 100,
    expansion_search,
    multi: false,
  });
  const native = new Index(config(64));
  began = performance.now();
  const step = 1000;
  let row = 0;
  let [keys, floats] = [[], new Float32Array(step * dimension)];
  for (const { vector } of exact.entries()) {
    floats.set(vector, keys.length * dimension);
    keys.push(BigInt(row++));
    if (keys.length === step || row === size) {
      native.add(BigUint64Array.from(keys), floats.subarray(0, keys.length * dimension), 1);
      [keys, floats] = [[], new Float32Array(step * dimension)];
    }
  }
  say({ what: 'usearch, 16 links, build breadth 100', buildS: seconds(began) });
  const path = join(folder, 'usearch');
  native.save(path);
  for (const breadth of BREADTHS) {
    const index = new Index(config(breadth));
    index.load(path);
    note(
      'usearch',
      await measure(`usearch, breadth ${breadth}`, (query) => index.search(query, K, 1).keys, { breadth }),
    );
    if ((best.usearch?.breadth ?? breadth) < breadth) break;
  }
}
rmSync(folder, { recursive: true });

console.log(`\nAt recall@10 >= ${RECALL}:`);
for (const [name, { what, p50Ms }] of Object.entries(best)) {
  const beside = Object.entries(best)
    .filter(([other]) => other !== name)
    .map(([other, { p50Ms: theirs }]) => `${(theirs / p50Ms).toFixed(2)} x faster than ${other}`);
  console.log(`  ${what}: p50 ${p50Ms.toFixed(3)} ms; ${beside.join(', ')}`);
}
console.log(`peak memory ${MiB(process.resourceUsage().maxRSS * 1024)}`);
if (options.json !== undefined)
  writeFileSync(options.json, `${JSON.stringify({ size, dimension, rows, best }, undefined, 2)}\n`);
