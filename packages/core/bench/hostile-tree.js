/**
 * Times `arrange` on a tree that was served to be slow: a quarter of a million nodes, all of documents that the
 * request holds, and no path that holds them all, so that a search could go on everywhere and finds no reason to stop.
 * The budget of operations ends it; what is left is checked against 2 ms. The same before an engine that keeps whole
 * prompts in slots: as many saved prompts as the gateway follows, which all begin as the request does and go on apart.
 *
 * What is timed is the CPU that the main thread itself takes, which is what holds up the event loop: neither what other
 * processes do nor V8's own threads count. Each call is made three times, thousands of calls apart. The least of the
 * three is what the call takes, for it takes the same steps every time; `single` is each time by itself, collection of
 * garbage on the main thread included, and the last column says in how many of the slowest thousandth there was one.
 * Usage: node --expose-gc bench/hostile-tree.js [--json]
 */
import { openSync, readSync } from 'node:fs';
import { cpus } from 'node:os';
import { PerformanceObserver, performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import { arrange, ServedHistory } from '../dist/index.js';
import { createPolicy, PromptSlots } from '../dist/internal.js';
import { randomSource } from './random-source.js';
import { documentsOf } from './workload.js';

const DOCUMENTS = 20;
const DEPTH = 16;
const NODES = 243_000;
const CALLS = 2_000;
const ROUNDS = 3;
/** V8 compiles beside us for that long, and its threads count. */
const WARM_UP = 2_000;
const LIMIT_MS = 2;
const PREAMBLE = { key: 'preamble#0123456789abcdef', tokens: 40 };

const random = randomSource(3);
const ids = Array.from({ length: DOCUMENTS }, (_, number) => `document-${number}`);
const documents = documentsOf(ids);

function shuffled(items) {
  const copy = [...items];
  for (let last = copy.length - 1; last > 0; last--) {
    const other = Math.floor(random() * (last + 1));
    [copy[last], copy[other]] = [copy[other], copy[last]];
  }
  return copy;
}

function hostileHistory() {
  const history = new ServedHistory({ tree: { maxNodes: 2 ** 20, maxBytes: 2 ** 28 } });
  for (let now = 0; history.tree.nodes < NODES; now++) {
    history.dispatched({ documents: shuffled(documents).slice(0, DEPTH), preamble: PREAMBLE }, now);
  }
  return history;
}

/** Ends so long that the engine takes none of the prompts for another: all are kept. */
const LONG = 100_000;
const SAVED_PROMPTS = 512;

function hostileSlots() {
  const slots = { prompts: new PromptSlots({ maxSaved: SAVED_PROMPTS }), name: 'bench' };
  const served = new ServedHistory({ slots });
  for (let now = 0; now < SAVED_PROMPTS + 8; now++) {
    const middle = shuffled(documents.slice(8)).slice(0, DEPTH - 8);
    const end = { ...documentsOf([`end-${now}`])[0], tokens: LONG };
    const given = [...documents.slice(0, 8), ...middle, end];
    const arrangement = arrange({ documents: given, preamble: PREAMBLE, policy: 'retrieval' }, served, now);
    served.dispatched(arrangement, now);
    served.completed(arrangement, now, {});
  }
  return served;
}

function percentile(sorted, share) {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
}

/**
 * Milliseconds of CPU of the main thread since its start (Linux); elsewhere of the whole process. The kernel writes a
 * running thread's time when someone asks for it, which `cpuUsage` does, else once a tick.
 */
function mainThreadClock() {
  const text = Buffer.alloc(128);
  let file;
  try {
    file = openSync('/proc/self/schedstat', 'r');
  } catch {}
  return () => {
    const { user, system } = process.cpuUsage();
    if (file === undefined) return (user + system) / 1e3;
    return Number.parseInt(text.latin1Slice(0, readSync(file, text, 0, text.length, 0)), 10) / 1e6;
  };
}

const cpuMs = mainThreadClock();

/** Starts and ends of collections, as `performance.now` has them. */
const collections = [];
new PerformanceObserver((list) => {
  for (const { startTime, duration } of list.getEntries()) collections.push([startTime, startTime + duration]);
}).observe({ entryTypes: ['gc'] });

/** Milliseconds of CPU of every call after a warm-up. */
async function time(history, { policy, waiting, limits, slots: most = DOCUMENTS }) {
  const requests = Array.from({ length: 2_000 }, () =>
    history.slots === undefined ? shuffled(documents) : [documents[0], ...shuffled(documents.slice(1, most))],
  );
  const queues = Array.from({ length: 20 }, () => Array.from({ length: waiting }, () => shuffled(documents)));
  const calls = Array.from({ length: ROUNDS * CALLS }, () => ({ ms: 0, from: 0, to: 0 }));
  for (let call = -WARM_UP; call < calls.length; call++) {
    const request = {
      documents: requests[(call + WARM_UP) % 2_000],
      preamble: PREAMBLE,
      policy,
      waiting: queues[(call + WARM_UP) % 20],
      ...limits,
    };
    const from = performance.now();
    const start = cpuMs();
    arrange(request, history, 0);
    const ms = cpuMs() - start;
    if (call >= 0) Object.assign(calls[call], { ms, from, to: performance.now() });
  }
  // What was collected is told between turns of the event loop.
  await delay(20);
  return calls;
}

/** The least of the rounds by call, every call by itself, and the collections in the slowest thousandth of them. */
function summary(calls) {
  const least = new Float64Array(CALLS).fill(Number.POSITIVE_INFINITY);
  for (const [call, { ms }] of calls.entries()) least[call % CALLS] = Math.min(least[call % CALLS], ms);
  least.sort();
  const single = calls.toSorted((one, other) => one.ms - other.ms);
  const slowest = single.slice(Math.floor(single.length * 0.999));
  const collected = slowest.filter(({ from, to }) => collections.some(([start]) => start >= from && start < to));
  return {
    p50: percentile(least, 0.5),
    p99: percentile(least, 0.99),
    p999: percentile(least, 0.999),
    most: least.at(-1),
    singleP999: slowest[0].ms,
    singleMost: slowest.at(-1).ms,
    slowest: slowest.length,
    collected: collected.length,
  };
}

const history = hostileHistory();
const unbounded = createPolicy('exact', { maxOperations: Number.POSITIVE_INFINITY });
const started = cpuMs();
arrange({ documents: shuffled(documents), preamble: PREAMBLE, policy: unbounded }, history, 0);
const withoutBudget = cpuMs() - started;

const slotCases = ['exact', 'foresight'].flatMap((policy) =>
  [DOCUMENTS, 8].flatMap((most) =>
    [{}, { maxShift: most - 1 }, { shiftPrice: 2 }].map((limits) => ({ policy, waiting: 0, limits, slots: most })),
  ),
);
const cases = ['greedy', 'exact', 'foresight'].flatMap((policy) =>
  (policy === 'foresight' ? [0, 1, 16, 64] : [0]).flatMap((waiting) =>
    [{}, { maxShift: DOCUMENTS - 1 }, { shiftPrice: 2 }].map((limits) => ({ policy, waiting, limits })),
  ),
);
const results = [];
const slots = hostileSlots();
for (const each of [...cases, ...slotCases]) {
  globalThis.gc?.();
  results.push({ ...each, ...summary(await time(each.slots === undefined ? history : slots, each)) });
}

if (process.argv.includes('--json')) {
  const machine = { node: process.version, cpu: cpus()[0]?.model };
  console.log(JSON.stringify({ ...machine, nodes: history.tree.nodes, withoutBudget, results }, null, 2));
} else {
  console.log(
    `arrange on ${history.tree.nodes} hostile nodes, ms of the main thread's CPU a call (Node ${process.version}, ${cpus()[0]?.model})`,
  );
  console.log(`one search of \`exact\` without a budget: ${withoutBudget.toFixed(1)} ms\n`);
  console.table(
    Object.fromEntries(
      results.map(({ policy, waiting, limits, slots: most, ...of }) => [
        [
          most === undefined ? `${policy}, ${waiting} waiting` : `${policy}, slots, ${most} documents`,
          ...Object.keys(limits),
        ].join(', '),
        {
          p50: of.p50.toFixed(2),
          p99: of.p99.toFixed(2),
          'p99.9': of.p999.toFixed(2),
          most: of.most.toFixed(2),
          'single p99.9': of.singleP999.toFixed(2),
          'single most': of.singleMost.toFixed(2),
          [`both p99.9 <= ${LIMIT_MS} ms`]: Math.max(of.p999, of.singleP999) <= LIMIT_MS ? 'yes' : 'NO',
          'GC in the slowest': `${of.collected} of ${of.slowest}`,
        },
      ]),
    ),
  );
}
