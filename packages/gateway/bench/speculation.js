// Generation that starts before a search is over, beside generation that waits for it: on the embedded engine and in
// simulation, at loads from low to saturated. Documents, questions and the candidates of stages are real (lists of
// hashed TF-IDF vectors of a BEIR folder); when each stage comes is paced: a search takes 50 to 500 ms in 4 to 8
// stages, as RAGCache's do. Both lanes have an engine and a gateway of their own and take turns, block by block.
// `node bench/speculation.js --data FOLDER [--model random:24m] [--requests 30] [--rounds 2] [--k 6]
//    [--loads .2,.5,.8,1.2] [--wasted .1] [--json FILE]`, after a build; `npm run bench:speculation` builds first.
import { subscribe } from 'node:diagnostics_channel';
import { readFileSync, writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { estimateTokens } from '@warmpath/core';
import { SpeculationGate } from '@warmpath/core/internal';
import { spawnEngine } from '@warmpath/engine';
import { HashedTfIdf, VectorIndex, VectorRetriever } from '@warmpath/retrieval';
import { modelPath } from '../../engine/bench/random-model/dist/model-path.js';
import { labDocument, readCache } from '../../lab/dist/index.js';
import { SpeculationRun } from '../../papers/dist/ragcache/speculation-run.js';
import { OpenCollections } from '../dist/collections/open-collections.js';
import { startGateway } from '../dist/index.js';
import { draws } from './draw.js';

const { values } = parseArgs({
  options: {
    data: { type: 'string', default: process.env.WARMPATH_DATA && join(process.env.WARMPATH_DATA, 'multihop-rag') },
    model: { type: 'string', default: 'random:24m' },
    requests: { type: 'string', default: '30' },
    rounds: { type: 'string', default: '2' },
    k: { type: 'string', default: '6' },
    wasted: { type: 'string', default: '.1' },
    loads: { type: 'string', default: '.2,.5,.8,1.2' },
    json: { type: 'string' },
  },
});
if (values.data === undefined) throw new Error('Name a BEIR folder with --data, or set WARMPATH_DATA.');
const [REQUESTS, ROUNDS, K] = [values.requests, values.rounds, values.k].map(Number);
const LOADS = values.loads.split(',').map(Number);
const [SHORTEST_MS, LONGEST_MS] = [50, 500];
const [FEWEST_STAGES, MAX_STAGES] = [4, 8];
/** Searches before anything is measured. */
const LEARNED = 24;
const SYSTEM = 'Answer the question from the documents alone, in one sentence, and name the documents that say it.';
/** The share of prefill that each lane may waste. */
const LANES = { waiting: 0, speculating: Number(values.wasted) };
/** Other prompts beside which the gateway speculates no more (`answer-in-stages.ts`). */
const MAX_PREFILLING = 1;

const next = draws();
const chance = () => next(1_000_000) / 1_000_000;
const lines = (name) =>
  readFileSync(join(values.data, name), 'utf8')
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line));
const documents = lines('corpus.jsonl').map(({ _id, title, text }) => ({ id: _id, title, content: text }));
const questions = lines('queries.jsonl').map(({ text }) => text);
const byId = new Map(documents.map((document) => [document.id, document]));

/** The stages of each question, as the index finds them, spread over the number of stages that was drawn for it. */
async function searches() {
  const dimension = 1024;
  const textOf = ({ title, content }) => `${title ?? ''}\n${content}`;
  const embedder = HashedTfIdf.learn(documents.map(textOf), dimension);
  const entries = documents.map((document) => ({ id: document.id, vector: embedder.vector(textOf(document)) }));
  const index = new VectorIndex({ dimension, stagesFrom: 1 });
  await index.add(entries);
  const retriever = new VectorRetriever({ index, embedder, passages: (ids) => ids.map((id) => byId.get(id)) });
  const found = new Map();
  for (const text of questions) {
    const stages = [];
    const { signal } = new AbortController();
    for await (const { candidates } of retriever.search({ text }, { k: K, signal })) stages.push(candidates);
    if (stages.at(-1).length < K) continue;
    const count = FEWEST_STAGES + next(MAX_STAGES - FEWEST_STAGES + 1);
    const totalMs = SHORTEST_MS * (LONGEST_MS / SHORTEST_MS) ** chance();
    const paced = Array.from({ length: count }, (_, stage) => ({
      atMs: (totalMs * (stage + 1)) / count,
      candidates: stages[Math.floor(((stage + 1) * stages.length) / count) - 1] ?? stages[0],
    }));
    found.set(text, paced);
  }
  return found;
}

const isSameSet = (one, other) => one.every(({ id }) => other.some((each) => each.id === id));
const paced = await searches();
const asked = [...paced.keys()];

/** A retriever whose stages are real and come when they are due. */
const pacedRetriever = {
  async *search({ text }, { signal }) {
    const stages = paced.get(text);
    const begin = performance.now();
    for (const [index, { atMs, candidates }] of stages.entries()) {
      await wait(Math.max(0, begin + atMs - performance.now()), undefined, { signal });
      yield { candidates, index, final: index === stages.length - 1 };
    }
  },
};
OpenCollections.prototype.searchable = async () => ({ retriever: pacedRetriever });

/** When the prompt of a request last went out to the engine: that of the answer. */
const sentAt = new Map();
subscribe('undici:request:create', ({ request }) => {
  const { headers, path } = request;
  if (path !== '/v1/chat/completions') return;
  const at = headers.findIndex?.((name, place) => place % 2 === 0 && String(name).toLowerCase() === 'x-request-id');
  if (at >= 0) sentAt.set(String(headers[at + 1]), performance.now());
});

async function openLane(name) {
  const model = await modelPath(values.model);
  const engine = await spawnEngine({ port: 0, model, contextTokens: 16_384, hostTier: 0 });
  const gateway = await startGateway(
    {
      server: { port: 0 },
      upstream: { url: engine.url },
      collections: { folder: '/nonexistent' },
      log: { level: 'silent' },
    },
    { wastedShare: LANES[name] },
  );
  const metric = async (url, metricName) =>
    Number(
      new RegExp(`^${metricName}(?:\\{[^}]*\\})? (\\S+)$`, 'm').exec(
        await (await fetch(`${url}/metrics`)).text(),
      )?.[1] ?? 0,
    );
  return {
    name,
    gateway,
    prefilled: () => metric(engine.url, 'warmpath_engine_prefill_tokens_total'),
    close: async () => {
      await gateway.close();
      await engine.stop();
    },
  };
}

let requestNumber = 0;
async function ask({ gateway }, text, documents) {
  const id = `request-${requestNumber++}`;
  const begin = performance.now();
  const response = await fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-request-id': id },
    body: JSON.stringify({
      messages: [
        { role: 'system', content: SYSTEM },
        { role: 'user', content: text },
      ],
      ...(documents ? { documents } : { warmpath: { retrieval: { collection: 'paced', k: K } } }),
      max_tokens: 4,
      temperature: 0,
      stream: true,
    }),
  });
  if (response.status !== 200) throw new Error(await response.text());
  let ttftMs;
  let body = '';
  for await (const chunk of response.body) {
    body += Buffer.from(chunk).toString();
    if (ttftMs === undefined && /"content":"[^"]/.test(body)) ttftMs = performance.now() - begin;
  }
  const outcome = /speculation=(\w+)/.exec(response.headers.get('x-warmpath'))?.[1];
  // Time of the prompt's going out, and of its prefill.
  const sentMs = sentAt.get(id) - begin;
  sentAt.delete(id);
  return { ttftMs: ttftMs ?? performance.now() - begin, notOverlappedMs: sentMs, outcome };
}

/** Requests of one block, each at its time, whatever became of the others. */
async function runBlock(lane, block) {
  const before = await lane.prefilled();
  const begin = performance.now();
  const answers = await Promise.all(
    block.map(async ({ text, atMs }) => {
      await wait(Math.max(0, begin + atMs - performance.now()));
      return ask(lane, text);
    }),
  );
  return { answers, prefilledTokens: (await lane.prefilled()) - before };
}

const mean = (numbers) => numbers.reduce((sum, number) => sum + number, 0) / Math.max(1, numbers.length);

/** Milliseconds of a prefill by its tokens, from prompts of documents that no question brings. */
async function measureCost(lane) {
  const points = [];
  for (const [round, count] of [1, 2, 4, 6, 1, 3, 5, 8].entries()) {
    const fresh = Array.from({ length: count }, (_, place) => ({
      id: `cost-${round}-${place}`,
      content: `${round} ${place} ${documents[(round * 31 + place * 7) % documents.length].content}`,
    }));
    const before = await lane.prefilled();
    const { ttftMs, notOverlappedMs } = await ask(lane, `Question ${round}?`, fresh);
    points.push({ tokens: (await lane.prefilled()) - before, ms: ttftMs - notOverlappedMs });
  }
  const [tokens, ms] = [mean(points.map((point) => point.tokens)), mean(points.map((point) => point.ms))];
  const slope =
    points.reduce((sum, point) => sum + (point.tokens - tokens) * (point.ms - ms), 0) /
    points.reduce((sum, point) => sum + (point.tokens - tokens) ** 2, 0);
  return { fixedMs: Math.max(0, ms - slope * tokens), msPerToken: slope };
}

/** The same block in the simulator: one prompt at a time, with the cost that was measured. */
const gates = Object.fromEntries(
  Object.entries(LANES).map(([name, wastedShare]) => [name, new SpeculationGate({ wastedShare })]),
);
function simulate(block, { fixedMs, msPerToken }, name) {
  const span = (id) => labDocument(id, estimateTokens(`${byId.get(id).title ?? ''}${byId.get(id).content}`));
  const workload = {
    name: 'paced',
    preamble: { key: 'system', tokens: estimateTokens(SYSTEM) },
    requests: block.map(({ text }, number) => ({
      documents: paced
        .get(text)
        .at(-1)
        .candidates.map(({ id }) => span(id)),
      question: { key: `question-${number}`, tokens: estimateTokens(text) },
    })),
  };
  const arrivals = block.map(({ text, atMs }, number) => ({
    arrivedMs: atMs,
    stages: paced.get(text).map((stage) => ({
      atMs: atMs + stage.atMs,
      candidates: { ...workload.requests[number], documents: stage.candidates.map(({ id }) => span(id)) },
    })),
  }));
  const cache = readCache('radix:16384')();
  const outcomes = new SpeculationRun(workload, arrivals, {
    cache,
    maxPending: LANES[name] > 0 ? MAX_PREFILLING : 0,
    cost: { prefillMs: (_cached, fresh) => fixedMs + msPerToken * fresh },
    copyMs: () => 0,
    agreement: 'set',
    gate: gates[name],
  }).run();
  return { answers: outcomes, wastedTokens: outcomes.reduce((sum, { wastedTokens }) => sum + wastedTokens, 0) };
}

for (const text of asked.slice(0, LEARNED)) {
  const sets = paced.get(text).map(({ candidates }) => candidates);
  const agreed = sets.slice(0, -1).map((set) => isSameSet(set, sets.at(-1)));
  for (const gate of Object.values(gates)) gate.observe({ agreed, promptTokens: 400, wastedTokens: 0 });
}

const lanes = await Promise.all(Object.keys(LANES).map(openLane));
const [waiting, speculating] = lanes;
const results = [];
try {
  // What a collection's searches are like is learned first, as the gate of the simulation learns it.
  for (const lane of lanes) {
    for (let at = 0; at < LEARNED; at += 4) await Promise.all(asked.slice(at, at + 4).map((text) => ask(lane, text)));
  }
  const cost = await measureCost(waiting);
  const promptTokens = mean(
    asked.map((text) =>
      paced
        .get(text)
        .at(-1)
        .candidates.reduce((sum, { content }) => sum + estimateTokens(content), 60),
    ),
  );
  const serviceMs = cost.fixedMs + cost.msPerToken * promptTokens;
  const early = [...paced.values()].map(
    (stages) => stages.findIndex(({ candidates }) => isSameSet(candidates, stages.at(-1).candidates)) / stages.length,
  );
  console.log(
    `\n${cpus()[0].model}, ${cpus().length} cores; ${values.model}; ${documents.length} documents, ${asked.length} questions, top ${K}`,
  );
  console.log(
    `prefill ${cost.fixedMs.toFixed(0)} ms + ${(1000 * cost.msPerToken).toFixed(0)} ms per 1,000 tokens; ` +
      `a prompt has ${promptTokens.toFixed(0)} tokens, ${serviceMs.toFixed(0)} ms; the final set is there after ` +
      `${(100 * mean(early)).toFixed(0)} % of a search`,
  );
  console.log(`${ROUNDS} blocks of ${REQUESTS} requests a load and lane\n`);
  console.log('                 search without overlap, ms          TTFT, ms             prefill     confirmed  wrong');
  console.log('load            waiting  speculating   ratio   waiting  speculating  ratio   in vain');
  let at = LEARNED;
  for (const load of LOADS) {
    const sums = { waiting: [], speculating: [] };
    const prefilled = { waiting: 0, speculating: 0 };
    const simulated = { waiting: [], speculating: [] };
    let simulatedWaste = 0;
    for (let round = 0; round < ROUNDS; round++) {
      let atMs = 0;
      const block = Array.from({ length: REQUESTS }, () => {
        atMs -= (serviceMs / load) * Math.log(1 - chance());
        return { text: asked[at++ % asked.length], atMs };
      });
      for (const lane of round % 2 === 0 ? [waiting, speculating] : [speculating, waiting]) {
        const { answers, prefilledTokens } = await runBlock(lane, block);
        sums[lane.name].push(...answers);
        prefilled[lane.name] += prefilledTokens;
      }
      for (const name of Object.keys(LANES)) {
        const { answers, wastedTokens } = simulate(block, cost, name);
        simulated[name].push(...answers);
        simulatedWaste += wastedTokens;
      }
    }
    const rows = [
      ['engine', sums, prefilled.speculating / prefilled.waiting - 1],
      ['simulated', simulated, simulatedWaste / (ROUNDS * REQUESTS * promptTokens)],
    ];
    for (const [where, answers, inVain] of rows) {
      const of = (name, value) => mean(answers[name].map(value));
      const row = {
        where,
        load,
        notOverlappedMs: Object.keys(LANES).map((name) => of(name, (answer) => answer.notOverlappedMs)),
        ttftMs: Object.keys(LANES).map((name) => of(name, (answer) => answer.ttftMs)),
        prefilledInVain: inVain,
        confirmed: of('speculating', ({ outcome }) => Number(outcome === 'confirmed')),
        wrong: of('speculating', ({ outcome }) => Number(outcome === 'wrong')),
      };
      results.push(row);
      const columns = ([one, other], places) => [
        one.toFixed(0).padStart(places[0]),
        other.toFixed(0).padStart(places[1]),
        (one / other).toFixed(2).padStart(places[2]),
      ];
      console.log(
        `${load.toFixed(2).padEnd(5)}${where.padEnd(10)}`,
        ...columns(row.notOverlappedMs, [7, 11, 8]),
        ...columns(row.ttftMs, [9, 11, 7]),
        `${(100 * inVain).toFixed(1)} %`.padStart(9),
        where === 'engine' ? `${(100 * row.confirmed).toFixed(0)} %`.padStart(10) : '',
        where === 'engine' ? `${(100 * row.wrong).toFixed(0)} %`.padStart(7) : '',
      );
    }
  }
} finally {
  for (const lane of lanes) await lane.close();
}
if (values.json !== undefined) writeFileSync(values.json, JSON.stringify(results, undefined, 2));
