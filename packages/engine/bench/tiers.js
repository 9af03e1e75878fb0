// What tiers and replacement policies are worth on a real engine: RAGCache's workload in small, one request after the
// other.
//
// The trace is the lab's `ragcache-mmlu` (the paper's skew: 60 % of the requests go to 3 % of the documents; two
// documents a request, the second a neighbour of the first), of a smaller corpus, with all lengths divided by the same
// number: documents of 3,718 tokens on average in the paper and questions of about 100 become documents of 232 and
// questions of 6 on the demo model, 155 and 4 on the larger one, which takes ten times as long for a token. So most of
// a prompt is documents, as in the paper, and a corpus of half as many documents as requests lets the first half of the
// requests, which is not counted, warm the tiers. The working set is what a cache that never forgets would hold of the
// trace's documents, each in the context of what stands before it; the device holds a tenth of it. With a host tier,
// cells hold what runs and everything else lies in host memory, which is what the engine does by default.
//
// «4x pgdsf, restarted» has a disk tier too and is stopped and started again before the first request that counts; what
// comes back from its files counts as from the host.
//
// All configurations run side by side and take turns of ten requests: a slow moment of the machine meets all of them.
// Errors are standard errors over requests, paired: two configurations are compared request by request. TTFT is the
// engine's own, from its admission to the first token; CPU is that of the process that computes, with everything it
// does for a request.
//
// `node bench/tiers.js [--models demo,random:24m] [--requests 300,200] [--documents 150,100] [--shrink 16,24]
//   [--seeds 301+302,301] [--drift 0] [--policies pgdsf,gdsf,lru,lfu] [--json <file>] [--count]`; lists of models,
// requests, documents, shrinks and seeds go together. With `--count` nothing is computed: the cache alone runs, over a
// memory that holds nothing, so hit rates of many seeds take seconds; what prefill costs is a formula then. The sizes
// were chosen on seeds 1 to 40.
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { fitLine, pairedRatio } from './paired.js';
import { bytesPerToken, countRuns, measureRuns } from './tier-runs.js';
import { drawTrace } from './tier-trace.js';

const { values } = parseArgs({
  options: {
    models: { type: 'string', default: 'demo,random:24m' },
    requests: { type: 'string', default: '300,200' },
    documents: { type: 'string', default: '150,100' },
    shrink: { type: 'string', default: '16,24' },
    seeds: { type: 'string', default: '301+302,301' },
    drift: { type: 'string', default: '0' },
    policies: { type: 'string', default: 'pgdsf,gdsf,lru,lfu' },
    json: { type: 'string' },
    count: { type: 'boolean', default: false },
  },
});
/** Host tier in multiples of the device. */
const HOST_SIZES = [0, 1, 4];
/** Share of the requests that fill the tiers and are not counted. */
const WARM_UP_SHARE = 0.5;
const NO_CACHE = 'no cache';
const DEVICE_ONLY = '0x lru';

/** What belongs to the model at a place of the lists; a list that is shorter goes on with its first entry. */
function shapeOf(place) {
  const read = (list) => list.split(',')[place] ?? list.split(',')[0];
  return {
    requests: Number(read(values.requests)),
    documents: Number(read(values.documents)),
    shrink: Number(read(values.shrink)),
    seeds: read(values.seeds).split('+').map(Number),
    drift: Number(values.drift),
  };
}

function configurationsFor(contextTokens, tokenBytes) {
  const cached = HOST_SIZES.flatMap((size) =>
    values.policies.split(',').map((policy) => {
      const hostTier = Math.round(size * contextTokens * tokenBytes);
      return { name: `${size}x ${policy}`, policy, hostTier, salted: false, restarts: false };
    }),
  );
  const largest = cached.slice(-values.policies.split(',').length);
  const restarted = values.count
    ? []
    : largest.map((each) => ({ ...each, name: `${each.name}, restarted`, restarts: true }));
  // A salt of its own keeps each request from using what another has left.
  return [{ name: NO_CACHE, policy: 'lru', hostTier: 0, salted: true, restarts: false }, ...cached, ...restarted];
}

/** The counted requests of all seeds, by configuration. */
async function runModel(model, shape) {
  const tokenBytes = values.count ? 1 : await bytesPerToken(model);
  const bySeed = [];
  for (const seed of shape.seeds) {
    const drawn = drawTrace(seed, shape);
    const { workingSet, contextTokens } = drawn;
    process.stdout.write(`${model}, seed ${seed}: working set ${workingSet} tokens, ${contextTokens} cells\n`);
    const options = {
      configurations: configurationsFor(contextTokens, tokenBytes),
      warmUp: Math.ceil(WARM_UP_SHARE * drawn.trace.length),
    };
    bySeed.push(values.count ? countRuns(drawn, options) : await measureRuns(model, drawn, options));
  }
  return Object.fromEntries(Object.keys(bySeed[0]).map((name) => [name, bySeed.flatMap((runs) => runs[name])]));
}

const computedTokens = ({ prompt, device, host }) => prompt - device - host;

function table(runs) {
  return Object.entries(runs).map(([name, requests]) => {
    const [size] = name.split(' ');
    const total = (read) => requests.reduce((sum, request) => sum + read(request), 0);
    const percent = (read) => ((100 * total(read)) / total(({ prompt }) => prompt)).toFixed(1);
    const mean = (read) => (total(read) / requests.length).toFixed(2);
    const timesLessThan = (other, read) => {
      const { ratio, error } = pairedRatio((runs[other] ?? requests).map(read), requests.map(read));
      return `${ratio.toFixed(2)} ± ${error.toFixed(2)}`;
    };
    const ttft = ({ ttftMs }) => ttftMs;
    const alone = name === NO_CACHE ? NO_CACHE : name.replace(size, '0x').replace(', restarted', '');
    const lru = name === NO_CACHE ? NO_CACHE : `${size} lru`;
    return {
      configuration: name,
      'device %': percent(({ device }) => device),
      'host %': percent(({ host }) => host),
      'hit rate %': percent(({ device, host }) => device + host),
      'computed %': percent(computedTokens),
      'computed: x less than device only, LRU': timesLessThan(DEVICE_ONLY, computedTokens),
      'than LRU of this size': timesLessThan(lru, computedTokens),
      ...(!values.count && {
        'CPU ms': mean(({ cpuMs }) => cpuMs),
        'TTFT ms': mean(ttft),
        'TTFT: x less than device only, LRU': timesLessThan(DEVICE_ONLY, ttft),
        'than device only, same policy': timesLessThan(alone, ttft),
        'than LRU, same size': timesLessThan(lru, ttft),
        'than no cache': timesLessThan(NO_CACHE, ttft),
      }),
    };
  });
}

/** What a TTFT is made of, over all configurations. */
function sayLine(model, runs) {
  const points = Object.values(runs).flatMap((requests) =>
    requests.map((request) => [computedTokens(request), request.ttftMs]),
  );
  const { slope, fixed, explained } = fitLine(points);
  process.stdout.write(
    `${model}: a TTFT is ${fixed.toFixed(1)} ms and ${slope.toFixed(3)} ms for each computed token (r² ${explained.toFixed(2)})\n`,
  );
}

const raw = {};
for (const [place, model] of values.models.split(',').entries()) {
  const shape = shapeOf(place);
  const runs = await runModel(model, shape);
  raw[model] = { ...shape, runs };
  process.stdout.write(
    `${model}: ${shape.requests} requests, ${shape.documents} documents, lengths 1/${shape.shrink}, seeds ${shape.seeds.join(', ')}\n`,
  );
  console.table(table(runs));
  if (!values.count) {
    sayLine(model, runs);
  }
}
if (values.json !== undefined) {
  writeFileSync(values.json, JSON.stringify(raw));
}
