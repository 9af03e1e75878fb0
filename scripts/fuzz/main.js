// Coverage-guided fuzzing of everything that reads what others wrote.
//
//   npm run fuzz -- --target sse --seconds 60     search for new inputs, and keep those that reach new branches
//   npm run fuzz -- --runs 3000                   every target in turn: the corpus, then so many new inputs
//   npm run fuzz -- --executions 10000000         every target for some seconds, again until there were so many
//   npm run fuzz -- --target sse --input FILE     one input alone
//
// An input that breaks a target's promise is written to a file, and the exit code is 1. See README.md beside this file.
import './coverage.js';
import { hash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { randomSource } from '../../packages/core/bench/random-source.js';
// This file alone: what imports core would load it before it is instrumented.
import { timeLeft } from '../../packages/lab/dist/time-left.js';
import { corpusInputs, lineOf, writeCorpus } from './corpus.js';
import { Coverage } from './coverage.js';
import { Mutator } from './mutate.js';
import { TARGETS } from './targets.js';
import { watchForHang } from './watchdog.js';

/** Inputs that a run may keep in memory. */
const MAX_KEPT = 4_000;
/** Bytes of a target's corpus. */
const CORPUS_BYTES = 20_000;
/** Seconds of each target in turn, where only the executions of all are given. */
const TURN_SECONDS = '20';
/** No input of a few kilobytes may take longer than this, in milliseconds of processor time. */
const MAX_CPU_MS = 1_000;

const { values } = parseArgs({
  options: {
    target: { type: 'string', multiple: true, default: Object.keys(TARGETS) },
    seconds: { type: 'string' },
    runs: { type: 'string' },
    executions: { type: 'string' },
    seed: { type: 'string', default: '1' },
    input: { type: 'string' },
    /** Writes the inputs that are worth keeping back to the corpus, the fewest that reach all. */
    save: { type: 'boolean', default: false },
  },
});

for (const name of values.target) {
  if (TARGETS[name] === undefined) throw new Error(`no target ${name}; there are ${Object.keys(TARGETS).join(', ')}`);
}
const wanted = Number(values.executions ?? 0);
if (wanted > 0) values.seconds ??= TURN_SECONDS;
const watchdog = watchForHang();
const record = new Map(values.target.map((name) => [name, { executions: 0, branches: 0 }]));
let executions = 0;
// Another seed each time, on top of what the times before have kept.
for (let turn = 0; turn === 0 || executions < wanted; turn++) {
  for (const name of values.target) {
    const { count, branches } = await fuzz(name, Number(values.seed) + turn);
    const target = record.get(name);
    target.executions += count;
    target.branches = Math.max(target.branches, branches);
    executions += count;
  }
}
if (wanted > 0) {
  const rows = [...record].map(([name, found]) => `| \`${name}\` | ${whole(found.executions)} | ${found.branches} |`);
  process.stdout.write(
    `${['| target | executions | branches reached |', '| --- | --: | --: |', ...rows].join('\n')}\n`,
  );
}
if (values.target.length > 1) process.stdout.write(`${executions} executions in all\n`);
watchdog.end();

function whole(count) {
  return new Intl.NumberFormat('en').format(count);
}

async function fuzz(name, seed) {
  const { load, tokens = [], maxBytes = 4_096 } = TARGETS[name];
  const { run, seeds = [] } = await load();
  const coverage = new Coverage();
  const kept = [];
  let count = 0;
  const tryOne = async (input) => {
    watchdog.running(name, input);
    count++;
    coverage.begin();
    const began = performance.now();
    try {
      const result = run(input);
      if (result !== undefined) await result;
      checkPrototypes();
    } catch (error) {
      fail(name, input, error);
    }
    const added = coverage.take();
    if (performance.now() - began > MAX_CPU_MS) await checkTime(name, run, input);
    if (added > 0 && kept.length < MAX_KEPT) kept.push(input);
    return added;
  };

  if (values.input !== undefined) {
    await tryOne(readFileSync(values.input));
    process.stdout.write(`${name}: nothing wrong with ${values.input}\n`);
    return { count, branches: coverage.branches };
  }
  // The shortest first: what a longer one reaches beyond it is then what is its own.
  const known = [...seeds.map((seed) => Buffer.from(seed)), ...corpusInputs(name)];
  for (const input of known.sort((a, b) => a.length - b.length)) await tryOne(input);
  const ofCorpus = coverage.branches;
  const random = randomSource(seed);
  const mutator = new Mutator({ random, tokens, maxBytes });
  const runs = Number(values.runs ?? Number.POSITIVE_INFINITY);
  const until = values.seconds === undefined ? Number.POSITIVE_INFINITY : performance.now() + 1_000 * values.seconds;
  const choose = () => kept[Math.floor(random() * kept.length)] ?? Buffer.alloc(0);
  if (values.runs !== undefined || values.seconds !== undefined) {
    const began = performance.now();
    for (let done = 0; done < runs && (done % 64 !== 0 || performance.now() < until); done++) {
      if (done % 4_096 === 0) sayTimeLeft(name, done, { runs, began, until });
      await tryOne(mutator.mutate(choose(), choose()));
    }
    sayTimeLeft();
  }
  if (values.save) writeCorpus(name, await minimised(kept, tryOne, coverage));
  const { branches, features } = coverage;
  process.stdout.write(
    `${name}: ${count} executions, ${branches} branches (${ofCorpus} by the corpus), ${features} features, ` +
      `${kept.length} inputs\n`,
  );
  return { count, branches };
}

/** On a line of the terminal that the next one replaces; the whole search, of all targets that are still to come. */
function sayTimeLeft(name, done, { runs, began, until } = {}) {
  if (!process.stderr.isTTY) return;
  if (name === undefined) {
    process.stderr.write('\r\u001b[2K');
    return;
  }
  const now = performance.now();
  const targets = values.target.length - values.target.indexOf(name);
  const left =
    until < Number.POSITIVE_INFINITY
      ? timeLeft(now - began, now - began, (until - began) * targets)
      : timeLeft(now - began, done, runs * targets);
  process.stderr.write(`\r\u001b[2K  ${name}  ${done} inputs  ${left}`);
}

/** The shortest inputs that reach all branches, and as many of those that reach them more often as there is room. */
async function minimised(kept, tryOne, coverage) {
  const byLength = [...kept].sort((a, b) => a.length - b.length);
  const needed = [];
  const others = [];
  coverage.forget();
  for (const input of byLength) {
    const before = coverage.branches;
    const added = await tryOne(input);
    if (coverage.branches > before) needed.push(input);
    else if (added > 0) others.push(input);
  }
  let room = CORPUS_BYTES - needed.reduce((sum, input) => sum + lineOf(input).length, 0);
  for (const input of others) {
    room -= lineOf(input).length;
    if (room > 0) needed.push(input);
  }
  return needed;
}

/** Nothing may ever become a member of every object. */
function checkPrototypes() {
  for (const key in []) throw new Error(`a prototype has the member ${key}`);
}

/** Waiting for the processor is not the target's fault: what took long is asked again, and its own time counted. */
async function checkTime(name, run, input) {
  const before = process.cpuUsage();
  await run(input);
  const { user, system } = process.cpuUsage(before);
  const ms = (user + system) / 1_000;
  if (ms > MAX_CPU_MS) fail(name, input, new Error(`${input.length} bytes took ${ms} ms`));
}

function fail(name, input, error) {
  const file = join(tmpdir(), `fuzz-${name}-${hash('sha1', input).slice(0, 12)}`);
  writeFileSync(file, input);
  process.stderr.write(`${name}: ${error?.stack ?? error}\nThe input (${input.length} bytes) is in ${file}\n`);
  process.exit(1);
}
