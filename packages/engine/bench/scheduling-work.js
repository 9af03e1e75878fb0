// What scheduling costs a request (RAGCache §7.5 reports about 900 µs): choosing it from the queue, looking it up,
// taking and bringing back what is cached, making room by eviction, and putting what was computed into the tree. The
// real data structures on a memory that computes nothing; trees of device and host together of up to 100,000 nodes.
// `node bench/scheduling-work.js [--nodes 1000,10000,100000] [--waiting 8,64,256] [--requests 2000] [--policy pgdsf]`
import { parseArgs } from 'node:util';
import { replacementPolicy } from '@warmpath/core/internal';
import { PrefixCache } from '../dist/cache/prefix-cache.js';
import { GenerationTask } from '../dist/loop/task.js';
import { WaitingTasks } from '../dist/loop/waiting-tasks.js';
import { quantile, seeded } from './draw.js';

const { values } = parseArgs({
  options: {
    nodes: { type: 'string', default: '1000,10000,100000' },
    waiting: { type: 'string', default: '8,64,256' },
    requests: { type: 'string', default: '2000' },
    policy: { type: 'string', default: 'pgdsf' },
  },
});
const REQUESTS = Number(values.requests);
const SYSTEM_TOKENS = 40;
const DOCUMENT_TOKENS = 100;
const QUESTION_TOKENS = 20;
/** Cells of the device: some 200 documents. */
const CELLS = 20_480;
const SEQUENCES = 255;
const STATE_BYTES = 16;

const MEMORY = {
  copy: () => undefined,
  remove: () => undefined,
  save: () => new Uint8Array(STATE_BYTES),
  restore: () => true,
  slice: () => new Uint8Array(STATE_BYTES),
};
const COST = { prefillMs: (_cachedTokens, newTokens) => newTokens };
const LISTENER = { onText: () => undefined, onFinish: () => undefined, onError: () => undefined };

/** Nodes below some. */
function countNodes(nodes) {
  let count = 0;
  for (const node of nodes) {
    count += node.children.size + countNodes(node.children.values());
  }
  return count;
}

class Bench {
  #next = seeded(1);
  #asked = 0;

  constructor(nodes, waiting) {
    // Pairs of documents, one after the other: as many second documents as there are nodes.
    this.documents = Math.ceil(Math.sqrt(nodes));
    this.cache = new PrefixCache({
      memory: MEMORY,
      cells: CELLS,
      sequences: Array.from({ length: SEQUENCES }, (_, index) => index),
      policy: replacementPolicy(values.policy),
      cost: COST,
      host: { memory: MEMORY, capacityBytes: STATE_BYTES * nodes, clock: () => 0 },
    });
    this.queue = new WaitingTasks(this.cache, COST);
    for (let first = 0; first < this.documents; first++) {
      for (let second = 0; second < this.documents; second++) {
        this.serve(this.request(first, second));
      }
    }
    for (let index = 0; index < waiting; index++) {
      this.queue.push(this.draw());
    }
  }

  tokensOf(document) {
    return Array.from({ length: DOCUMENT_TOKENS }, (_, index) => 1000 + document + index);
  }

  request(first, second) {
    const system = Array.from({ length: SYSTEM_TOKENS }, (_, index) => index);
    const question = Array.from({ length: QUESTION_TOKENS }, (_, index) => 500_000 + this.#asked + index);
    this.#asked++;
    const prompt = [...system, ...this.tokensOf(first), ...this.tokensOf(second), ...question];
    const ends = [SYSTEM_TOKENS, SYSTEM_TOKENS + DOCUMENT_TOKENS, SYSTEM_TOKENS + 2 * DOCUMENT_TOKENS];
    const fields = { id: 'a', prompt, boundaries: ends, maxTokens: 1, seed: 0, stops: [] };
    return new GenerationTask({ ...fields, sampling: { temperature: 0, topP: 1 } }, LISTENER, 0);
  }

  /** Low numbers are asked for more often. */
  draw() {
    const document = () => Math.floor(this.documents * this.#next() ** 3);
    return this.request(document(), document());
  }

  serve(task) {
    const { tokens } = task;
    const lease = this.cache.acquire(tokens, tokens.length - 1, task.request.boundaries);
    this.cache.extend(lease, tokens, tokens.length - 1);
    const from = lease.length;
    if (!this.cache.grow(lease, tokens.length - from)) {
      throw new Error('There are no cells');
    }
    this.cache.commit(lease, tokens.slice(from));
    this.cache.release(lease);
  }

  /** Microseconds of each request: it is taken in, another one is chosen, and that one is served. */
  run(requests) {
    const micros = [];
    for (let index = 0; index < requests; index++) {
      const task = this.draw();
      const start = process.hrtime.bigint();
      this.queue.push(task);
      this.serve(this.queue.next());
      micros.push(Number(process.hrtime.bigint() - start) / 1000);
    }
    return micros;
  }
}

const rows = [];
for (const nodes of values.nodes.split(',').map(Number)) {
  for (const waiting of values.waiting.split(',').map(Number)) {
    const bench = new Bench(nodes, waiting);
    bench.run(REQUESTS);
    const micros = bench.run(REQUESTS);
    const { cachedCells, host, evictedTokens } = bench.cache.stats;
    rows.push({
      nodes: countNodes(bench.cache.roots),
      'tokens on device': cachedCells,
      'tokens on host': host.tokens,
      waiting,
      'p50 µs': quantile(micros, 0.5).toFixed(1),
      'p99 µs': quantile(micros, 0.99).toFixed(1),
      'mean µs': (micros.reduce((sum, value) => sum + value, 0) / micros.length).toFixed(1),
      'evicted a request': (evictedTokens / (bench.documents ** 2 + 2 * REQUESTS)).toFixed(0),
    });
  }
}
console.table(rows);
