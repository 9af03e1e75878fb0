/**
 * What knowing the next turn of a conversation would be worth to an order, and what of it the past can tell: the trials
 * of docs/research/foresight.md («What did not help»), made again by one command.
 *
 *   npm run bench:prediction -w packages/lab -- [--data <folder>] [--seeds 4001..4006] [--json]
 *
 * The folder holds mtrag-un and mooncake.
 *
 * `foresight` is told of nobody, of the next turn of the request's own conversation (which nobody can know), or of the
 * request that a predictor expects there. The predictor sees what was served, and no more: which documents the
 * conversation had in its last turns (recency), which of them stayed from turn to turn so far, by rank and by turns in
 * a row (topic continuity), and which documents followed which (co-occurrence). All its tables are bounded.
 *
 * Its two settings (how likely a document must be to be told, and the weight of co-occurrence) are chosen on the tuning
 * seeds, or the first half of MTRAG's conversations; figures are of the test seeds, or the other half. Points of the
 * cached share, with the standard error over seeds, or over four parts of the conversations played alone.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { createPolicy } from '@warmpath/core/internal';
import { createWorkload, estimate, readData, readSeeds, SglangRadixCache, simulate } from '../dist/index.js';

const TUNING_SEEDS = [1, 2];
const MIN_CHANCES = [0, 0.35, 0.5, 0.65, 0.8];
const SUCCESSOR_WEIGHTS = [0, 0.25, 0.5, 1];
/** Part of what knowing is worth from which on prediction would be worth building. */
const BAR = 1 / 3;
const PARTS = 4;

/** Most entries of each table, and most documents that are remembered to have followed one. */
const MAX_ENTRIES = 4_096;
const MAX_SUCCESSORS = 32;
const MAX_STREAK = 3;
const RANKS = 8;

/** A map that forgets what was written longest ago. */
class Recent extends Map {
  constructor(most) {
    super();
    this.most = most;
  }

  set(key, value) {
    this.delete(key);
    super.set(key, value);
    if (this.size > this.most) this.delete(this.keys().next().value);
    return this;
  }
}

/** Expects the documents of the next turn of a conversation from what was served. */
class Predictor {
  constructor({ leastChance, successorWeight }) {
    this.leastChance = leastChance;
    this.successorWeight = successorWeight;
    /** By conversation: its last documents, and for how many turns each has been there. */
    this.turns = new Recent(MAX_ENTRIES);
    /** By document: how often it was followed, and by which. */
    this.followed = new Recent(MAX_ENTRIES);
    /** By turns in a row and rank: how often a document stayed, and how often it could have. */
    this.stayed = new Float64Array((MAX_STREAK + 1) * RANKS).fill(1);
    this.could = new Float64Array((MAX_STREAK + 1) * RANKS).fill(2);
  }

  /** Learns of a request, and returns the documents that are expected next, the likeliest first. */
  next({ session, documents }) {
    const before = this.turns.get(session) ?? [];
    this.#learn(before, documents);
    const streaks = new Map(before.map(({ document, streak }) => [document.key, streak]));
    const turn = documents.map((document, rank) => {
      const streak = streaks.has(document.key) ? Math.min(MAX_STREAK, streaks.get(document.key) + 1) : 0;
      return { document, rank: Math.min(rank, RANKS - 1), streak };
    });
    this.turns.set(session, turn);
    const chances = new Map();
    for (const { document, rank, streak } of turn) {
      const at = streak * RANKS + rank;
      chances.set(document.key, { document, chance: this.stayed[at] / this.could[at] });
    }
    if (this.successorWeight > 0) this.#addSuccessors(turn, chances);
    return [...chances.values()]
      .filter(({ chance }) => chance >= this.leastChance)
      .sort((a, b) => b.chance - a.chance)
      .map(({ document }) => document);
  }

  #learn(before, documents) {
    const now = new Set(documents.map(({ key }) => key));
    for (const { document, rank, streak } of before) {
      const at = streak * RANKS + rank;
      this.could[at]++;
      if (now.has(document.key)) this.stayed[at]++;
      const entry = this.followed.get(document.key) ?? { times: 0, by: new Recent(MAX_SUCCESSORS) };
      entry.times++;
      for (const next of documents)
        entry.by.set(next.key, { document: next, times: (entry.by.get(next.key)?.times ?? 0) + 1 });
      this.followed.set(document.key, entry);
    }
  }

  /** How often a document followed those of this turn, on average, is a second opinion on its chance. */
  #addSuccessors(turn, chances) {
    const weight = this.successorWeight;
    const means = new Map();
    for (const { document } of turn) {
      const entry = this.followed.get(document.key);
      for (const [key, { document: next, times }] of entry?.by ?? []) {
        const known = means.get(key) ?? { document: next, chance: 0 };
        known.chance += times / (entry.times + 1) / turn.length;
        means.set(key, known);
      }
    }
    for (const [key, { document, chance }] of means) {
      const own = chances.get(key)?.chance ?? 0;
      chances.set(key, { document, chance: (1 - weight) * own + weight * chance });
    }
  }
}

/** `foresight`, told of one more request beside those that wait. Without a conversation, nothing comes next. */
function foresightTold(workload, expect) {
  const foresight = createPolicy('foresight');
  return {
    name: 'foresight-told',
    arrange(context, view, number) {
      const expected = workload.requests[number].session === undefined ? [] : expect(number);
      const waiting = expected.length === 0 ? context.waiting : [...(context.waiting ?? []), expected];
      return foresight.arrange({ ...context, waiting }, view, number);
    },
  };
}

const sum = (values) => values.reduce((total, value) => total + value, 0);

/** Tokens found cached, of all of all prompts. */
function cachedShare(workload, policy) {
  const outcomes = simulate(workload, policy, { cache: new SglangRadixCache() });
  return sum(outcomes.map((each) => each.cachedTokens)) / sum(outcomes.map((each) => each.promptTokens));
}

function perfectly(workload) {
  const next = new Map();
  const coming = new Map();
  for (let number = workload.requests.length - 1; number >= 0; number--) {
    const { session, documents } = workload.requests[number];
    next.set(number, coming.get(session) ?? []);
    coming.set(session, documents);
  }
  return foresightTold(workload, (number) => next.get(number));
}

function predicting(workload, settings) {
  const predictor = new Predictor(settings);
  return foresightTold(workload, (number) => predictor.next(workload.requests[number]));
}

/** The settings that gain most on the workloads for tuning. */
function tuned(workloads) {
  const alone = workloads.map((workload) => cachedShare(workload, 'foresight'));
  const all = MIN_CHANCES.flatMap((leastChance) =>
    SUCCESSOR_WEIGHTS.map((successorWeight) => {
      const settings = { leastChance, successorWeight };
      const gains = workloads.map((workload, i) => cachedShare(workload, predicting(workload, settings)) - alone[i]);
      return { ...settings, gain: sum(gains) / gains.length };
    }),
  );
  return all.toSorted((a, b) => b.gain - a.gain)[0];
}

/** What knowing, and predicting, are worth on workloads that nothing was chosen on, in points. */
function measured(name, forTuning, forTest) {
  const settings = tuned(forTuning);
  const runs = forTest.map((workload) => {
    const alone = cachedShare(workload, 'foresight');
    const gain = (policy) => 100 * (cachedShare(workload, policy) - alone);
    return { alone: 100 * alone, known: gain(perfectly(workload)), predicted: gain(predicting(workload, settings)) };
  });
  const over = (of) => {
    const { mean, se } = estimate(runs.map(of));
    return { mean, se };
  };
  const known = over((run) => run.known);
  const predicted = over((run) => run.predicted);
  const part = predicted.mean / known.mean;
  return {
    name,
    settings,
    alone: over((run) => run.alone),
    known,
    predicted,
    part,
    isWorthIt: part >= BAR && predicted.mean > 2 * predicted.se,
  };
}

/** Conversations of a data set, in halves, the second in parts that are played alone. */
function conversationHalves(workload) {
  const sessions = [...new Set(workload.requests.map(({ session }) => session))];
  const only = (chosen) => {
    const kept = new Set(chosen);
    return { ...workload, requests: workload.requests.filter(({ session }) => kept.has(session)) };
  };
  const half = Math.floor(sessions.length / 2);
  const test = sessions.slice(half);
  const parts = Array.from({ length: PARTS }, (_, part) => only(test.filter((_session, i) => i % PARTS === part)));
  return { forTuning: [only(sessions.slice(0, half))], forTest: parts };
}

async function main() {
  const { values } = parseArgs({
    options: {
      data: { type: 'string' },
      seeds: { type: 'string', default: '4001..4006' },
      json: { type: 'boolean', default: false },
    },
  });
  const seeds = readSeeds(values.seeds);
  if (seeds.some((seed) => TUNING_SEEDS.includes(seed))) throw new Error('--seeds: the tuning seeds are 1 and 2');
  const results = [];
  for (const lengths of ['equal', 'unequal']) {
    const workloads = (of) => of.map((seed) => createWorkload('sessions-settled', { seed, lengths }));
    results.push(measured(`sessions-settled, ${lengths} lengths`, workloads(TUNING_SEEDS), workloads(seeds)));
  }
  const notes = [];
  const folder = (name) => (values.data === undefined ? undefined : join(values.data, name));
  const mtrag = folder('mtrag-un');
  if (mtrag === undefined || !existsSync(mtrag))
    notes.push('MTRAG-UN: not measured, `--data` names no folder with mtrag-un');
  else {
    for (const topK of [5, 10]) {
      const { workload } = await readData(mtrag, { topK, sessions: 8 });
      const { forTuning, forTest } = conversationHalves(workload);
      results.push(measured(`MTRAG-UN, ${topK} passages`, forTuning, forTest));
    }
  }
  const mooncake = folder('mooncake');
  if (mooncake === undefined || !existsSync(mooncake))
    notes.push('Mooncake: not measured, `--data` names no folder with mooncake');
  else {
    const { workload } = await readData(mooncake, {});
    const ordered = workload.requests.filter(({ documents }) => documents.length > 1).length;
    notes.push(
      `Mooncake: ${ordered} of ${workload.requests.length} requests have documents to order; the rest are recorded prefixes, so no prediction changes what an order reuses`,
    );
  }
  if (values.json)
    process.stdout.write(`${JSON.stringify({ seeds, tuningSeeds: TUNING_SEEDS, results, notes }, null, 2)}\n`);
  else print(results, notes);
}

function print(results, notes) {
  const points = ({ mean, se }) => `${mean < 0 ? '' : '+'}${mean.toFixed(2)} (${se.toFixed(2)})`;
  console.table(
    Object.fromEntries(
      results.map(({ name, alone, known, predicted, part, settings }) => [
        name,
        {
          'foresight %': alone.mean.toFixed(1),
          'next turn known': points(known),
          predicted: points(predicted),
          part: `${(100 * part).toFixed(0)} %`,
          'least chance': settings.leastChance,
          'co-occurrence': settings.successorWeight,
        },
      ]),
    ),
  );
  for (const note of notes) console.log(note);
  const worth = results.filter(({ isWorthIt }) => isWorthIt);
  if (worth.length === 0)
    console.log('\nNowhere does prediction reach a third of what knowing the next turn is worth.');
  for (const { name } of worth) console.log(`\n*** PREDICTION REACHES A THIRD OF WHAT KNOWING IS WORTH: ${name} ***`);
}

await main();
