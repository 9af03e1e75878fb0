// What vLLM computes of the same requests: straight to it, behind Warmpath, and as its peers arrange them. The counts
// are vLLM's own, and its prefix cache is emptied before each arm.
// `npm run bench:vllm -- FOLDER [--questions 200] [--concurrency 4] [--engine URL]… [--only WORDS] [--times]
// [--json FILE] [--write]`. FOLDER: a data set in BEIR's layout. `--engine`: a vLLM that runs
// and is idle, or two; left out, two are started that `test/vllm/setup.sh` has installed. `--times`: time to first
// token, which means nothing before the small model of that script. `--write`: puts the table into README.md.
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { cpus } from 'node:os';
import { setTimeout as wait } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { resolveConfig, startGateway } from '@warmpath/gateway';
import { Pool } from 'undici';
import { draws } from './draw.js';
import { quantile } from './load.js';
import { freePort, stopAll, temporaryFolder } from './processes.js';
import { describeEngine, PORTS_EACH, play, resetCache, startVllm } from './vllm-engine.js';
import { contextPilotPrompts, isDynamoThere, startDynamo, startVllmRouter } from './vllm-peers.js';
import { inRandomOrder, inRetrievalOrder, inText, planned, readRequests, withField } from './vllm-requests.js';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    questions: { type: 'string', default: '200' },
    concurrency: { type: 'string', default: '4' },
    engine: { type: 'string', multiple: true },
    only: { type: 'string', default: '' },
    times: { type: 'boolean', default: false },
    json: { type: 'string' },
    write: { type: 'boolean', default: false },
  },
});
const [folder] = positionals;
if (folder === undefined) throw new Error('usage: vllm.js FOLDER');

/** Prompts from which a gateway learns what is a program's text and what is a document. */
const LEARNED = 200;
const README = new URL('../../../README.md', import.meta.url);
const TABLE = /\| before vLLM \|.*(?:\n\|.*)*/;

const DIRECT = 'retrieval order';
const IN_TEXT = 'documents in the text, retrieval order';
const PILOT_UNMOVED = 'ContextPilot, its prompt unmoved';
const ROUTED = 'two engines, vllm-router, retrieval order';
const MOCKED = 'two mock engines of Dynamo, its router, retrieval order';

const requests = await readRequests(folder, Number(values.questions));
const engines = await theEngines();
const described = await Promise.all(engines.map(describeEngine));
const { model, cacheTokens } = described[0];
const arms = await theArms();
const rows = [];
for (const arm of arms.filter(({ name }) => name.toLowerCase().includes(values.only.toLowerCase()))) {
  const row = await runArm(arm);
  rows.push(row);
  process.stderr.write(`${row.name}: ${row.promptTokens} prompt tokens, ${row.computedTokens} computed\n`);
}
const figures = { machine: machine(), engine: { model, cacheTokens }, concurrency: Number(values.concurrency), rows };
process.stdout.write(`${tableOf(figures)}\n`);
if (values.json !== undefined) writeFileSync(values.json, `${JSON.stringify(figures, undefined, 2)}\n`);
if (values.write) {
  const text = readFileSync(README, 'utf8');
  writeFileSync(
    README,
    text.replace(TABLE, () => readmeTable(figures)),
  );
}
stopAll();
process.exit(rows.some(({ failed }) => failed > 0) ? 1 : 0);

/** Those of the command line, or two that are started. */
async function theEngines() {
  if (values.engine === undefined) {
    const port = await freePort();
    return Promise.all([startVllm(port), startVllm(port + PORTS_EACH)]);
  }
  return values.engine.map((url) => ({ url: url.replace(/\/$/, '') }));
}

/**
 * What is compared. `of`: the arm with the same prompts, unmoved. `open` starts what stands before the engines; left
 * out, requests go straight to the first engine.
 */
async function theArms() {
  const field = requests.map(withField);
  const [one] = engines;
  const alone = (arrange) => () => gateway({ upstream: { url: one.url }, arrange });
  const { hints } = resolveConfig({ upstream: { url: one.url } }).arrange;
  const otherHints = hints ? 'no hints' : 'with hints';
  const list = [
    { name: DIRECT, of: DIRECT, sent: requests.map(inRetrievalOrder) },
    { name: 'random order', of: DIRECT, sent: requests.map(inRandomOrder(draws())) },
    { name: 'Warmpath, field `documents`', of: DIRECT, sent: field, open: alone({}) },
    { name: `Warmpath, field \`documents\`, ${otherHints}`, of: DIRECT, sent: field, open: alone({ hints: !hints }) },
    { name: 'Warmpath, field `documents`, no KV events', of: DIRECT, sent: field, open: openWithoutEvents },
  ];
  for (const isHinted of [hints, !hints]) {
    const sent = planned(requests, { capacity: cacheTokens, hints: isHinted });
    list.push({ name: `Warmpath, planned batch${isHinted === hints ? '' : `, ${otherHints}`}`, of: DIRECT, sent });
  }
  const texts = requests.map(inText);
  list.push({ name: IN_TEXT, of: IN_TEXT, sent: texts });
  list.push({ name: 'Warmpath, documents in the text, allowed', of: IN_TEXT, sent: texts, open: openAllowed });
  const pilot = await contextPilotPrompts(requests);
  if (pilot !== undefined) {
    list.push({ name: PILOT_UNMOVED, of: PILOT_UNMOVED, sent: pilot.unmoved });
    list.push({ name: 'ContextPilot, `optimize`', of: PILOT_UNMOVED, sent: pilot.online });
    list.push({ name: 'ContextPilot, `optimize_batch`', of: PILOT_UNMOVED, sent: pilot.offline });
  }
  return engines.length < 2 ? list : [...list, ...(await armsOfTwo(field))];
}

/** Two engines behind vLLM's router, alone and with a gateway before it, and behind a gateway. */
async function armsOfTwo(field) {
  const of = ROUTED;
  const list = [];
  const named = engines.map(({ url }, place) => ({ name: `engine-${place + 1}`, url }));
  const router = await startVllmRouter(engines);
  if (router !== undefined) {
    const before = () => gateway({ upstream: { url: router.url, dialect: 'vllm' } });
    list.push({
      name: ROUTED,
      of,
      sent: requests.map(inRetrievalOrder),
      open: () => ({ url: router.url }),
      isOfTwo: true,
    });
    list.push({ name: 'two engines, Warmpath before vllm-router', of, sent: field, open: before, isOfTwo: true });
  }
  const open = () => gateway({ engines: named });
  list.push({ name: 'two engines, Warmpath', of, sent: field, open, isOfTwo: true });
  if (!isDynamoThere()) return list;
  const unmoved = requests.map(inRetrievalOrder);
  list.push({ name: MOCKED, of: MOCKED, sent: unmoved, open: () => startDynamo(model), isMocked: true });
  return [
    ...list,
    {
      name: 'two mock engines of Dynamo, Warmpath before its router',
      of: MOCKED,
      sent: field,
      open: beforeDynamo,
      isMocked: true,
    },
  ];
}

async function beforeDynamo() {
  const dynamo = await startDynamo(model);
  const started = await gateway({ upstream: { url: dynamo.url, dialect: 'vllm' } });
  const close = async () => {
    await started.close();
    dynamo.close();
  };
  return { url: started.url, close };
}

async function runArm({ name, of, sent, open, isOfTwo = false, isMocked = false }) {
  const used = isMocked ? [] : isOfTwo ? engines : engines.slice(0, 1);
  await Promise.all(used.map(resetCache));
  const { url, close } = open === undefined ? used[0] : await open();
  const played = await play(sent, { url, engines: used, model, concurrency: Number(values.concurrency) });
  await close?.();
  return { name, of, ...played };
}

/** A gateway that has found its engines. */
async function gateway(config, parts = {}) {
  const count = config.engines?.length ?? 1;
  const reports = [];
  let found = () => {};
  const areFound = new Promise((resolve) => {
    found = resolve;
  });
  const started = await startGateway(
    { server: { port: 0 }, log: { level: 'silent' }, ...config },
    { ...parts, onEngine: (report) => report.state === 'up' && reports.push(report) === count && found() },
  );
  await areFound;
  // Events that are found count from then on.
  const publishing = reports.filter(({ facts }) => facts.eventSources?.length > 0).length;
  const metrics = async () => (await fetch(`${started.url}/metrics`)).text();
  while ((await metrics()).split('warmpath_kv_events_exact{').length <= publishing) await wait(50);
  return started;
}

/** A gateway before an engine that does not say where it publishes KV events. */
async function openWithoutEvents() {
  const pool = new Pool(engines[0].url);
  const hiding = await server(async (request, response) => {
    if (request.url === '/kv_event_sources') {
      request.resume();
      response.writeHead(404).end();
      return;
    }
    const { host: _, connection: __, 'transfer-encoding': ___, ...headers } = request.headers;
    const answer = await pool.request({ method: request.method, path: request.url, headers, body: request });
    response.writeHead(answer.statusCode, answer.headers);
    answer.body.pipe(response);
  });
  const { url, close } = await gateway({ upstream: { url: hiding.url } });
  return {
    url,
    close: async () => {
      await close();
      hiding.close();
    },
  };
}

/** A gateway that knows from an earlier run, before another engine, that a person allows the program's prompts. */
async function openAllowed() {
  const stateFolder = temporaryFolder();
  const engine = await server((request, response) => {
    request.resume();
    response
      .writeHead(200, { 'content-type': 'text/event-stream' })
      .end('data: {"usage":{"prompt_tokens":0}}\n\ndata: [DONE]\n\n');
  });
  const earlier = await startGateway(
    { server: { port: 0 }, log: { level: 'silent' }, upstream: { url: engine.url, dialect: 'openai' } },
    { stateFolder },
  );
  await play(requests.slice(0, LEARNED).map(inText), { url: earlier.url, engines: [], model, concurrency: 1 });
  const kinds = await learnedKinds(earlier.url);
  if (kinds.length === 0) process.stderr.write('nothing was learned of the documents in the text: too few questions\n');
  for (const { id } of kinds) {
    const body = JSON.stringify({ state: 'allowed' });
    const headers = { 'content-type': 'application/json' };
    const answer = await fetch(`${earlier.url}/v1/prompts/${id}`, { method: 'POST', headers, body });
    if (!answer.ok) throw new Error(await answer.text());
  }
  await earlier.close();
  engine.close();
  return gateway({ upstream: { url: engines[0].url } }, { stateFolder });
}

/** Prompt kinds of a gateway, once it has learned from all prompts so far. */
async function learnedKinds(url) {
  const list = async () => (await (await fetch(`${url}/v1/prompts`)).json()).data;
  let kinds = await list();
  for (let last; last !== JSON.stringify(kinds); ) {
    last = JSON.stringify(kinds);
    await wait(500);
    kinds = await list();
  }
  return kinds;
}

async function server(handle) {
  const started = createServer(handle).listen(0, '127.0.0.1');
  await once(started, 'listening');
  return { url: `http://127.0.0.1:${started.address().port}`, close: () => started.close() };
}

function tableOf({ rows: all }) {
  const computed = new Map(all.map(({ name, computedTokens }) => [name, computedTokens]));
  const ratio = (tokens, name) => (computed.has(name) ? (tokens / computed.get(name)).toFixed(3) : '');
  const columns = ['requests', 'failed', 'prompt tokens', 'computed', 'of the same prompts unmoved', `of ${DIRECT}`];
  if (values.times) columns.push('TTFT p50, ms', 'p90');
  const lines = all.map(({ name, of, requests: count, failed, promptTokens, computedTokens, ttftMs }) => {
    const counts = [count, failed, promptTokens, computedTokens].map((number) => number.toLocaleString('en'));
    const cells = [name, ...counts, ratio(computedTokens, of), ratio(computedTokens, DIRECT)];
    if (values.times) cells.push(...[0.5, 0.9].map((q) => Math.round(quantile(ttftMs, q))));
    return `| ${cells.join(' | ')} |`;
  });
  return [`| before vLLM | ${columns.join(' | ')} |`, `|---|${columns.map(() => '--:|').join('')}`, ...lines].join(
    '\n',
  );
}

/** The arms that a reader of the README compares, each beside its own prompts unmoved. */
function readmeTable({ rows: all }) {
  const computed = new Map(all.map(({ name, computedTokens }) => [name, computedTokens]));
  const isShown = ({ name, of, failed }) =>
    name !== of && failed === 0 && !/^random|^two mock|, (?:no|with) (?:hints|KV events)/.test(name);
  const lines = all.filter(isShown).map(({ name, of, computedTokens }) => {
    const counts = [computed.get(of), computedTokens].map((tokens) => tokens?.toLocaleString('en'));
    return `| ${name} | ${counts.join(' | ')} | ${(computedTokens / computed.get(of)).toFixed(2)} |`;
  });
  return ['| before vLLM | retrieval order | arranged | ratio |', '|---|--:|--:|--:|', ...lines].join('\n');
}

/** The class of this machine. */
function machine() {
  const gpu = spawnSync('nvidia-smi', ['--query-gpu=name', '--format=csv,noheader'], { encoding: 'utf8' });
  return gpu.status === 0 ? gpu.stdout.trim().split('\n').join(', ') : `${cpus().length} CPU cores`;
}
