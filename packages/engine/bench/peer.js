// The embedded engine beside llama-server of the same release: the same libraries, model file, threads and prompts,
// request by request in turn. `node bench/peer.js [--model random:24m] [--threads 2]
// [--parts cold,streams,requests,same] [--data FOLDER] [--requests 500] [--json FILE]`. The part `requests` needs
// FOLDER, a BEIR folder such as MultiHop-RAG. The part `same` compares texts and cached tokens of chats, and no times.
// llama-server is looked for, or built (`llama-server.js`).
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { arrange, observe, prepareDocuments, ServedHistory } from '@warmpath/core';
import { Retriever } from '../../lab/dist/index.js';
import { resolveModel, spawnEngine } from '../dist/index.js';
import { seeded } from './draw.js';
import { engineLibraries, llamaServer, spawnLlamaServer } from './llama-server.js';
import { pairedRatio } from './paired.js';
import { modelPath } from './random-model/dist/model-path.js';

const { values } = parseArgs({
  options: {
    data: { type: 'string' },
    model: { type: 'string', default: 'random:24m' },
    threads: { type: 'string', default: String(availableParallelism()) },
    requests: { type: 'string', default: '500' },
    parts: { type: 'string', default: 'cold,streams,requests' },
    json: { type: 'string' },
  },
});
if (values.data === undefined && /requests/.test(values.parts)) throw new Error('--data is needed: a BEIR folder');
const SERVER = llamaServer();
const LIBRARIES = engineLibraries();
const THREADS = Number(values.threads);
const CELLS = 16_384;
const TOP = 5;
/** Prompts that nobody has seen, and their tokens. */
const COLD = 40;
const COLD_TOKENS = 800;
/** Requests at the beginning and at the end of the run that are compared. */
const EDGE = 100;
const STREAMS = 8;
const STREAM_TOKENS = 200;

const JSON_HEADERS = { 'content-type': 'application/json' };
const running = [];

async function freePort() {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address();
  probe.close();
  await once(probe, 'close');
  return port;
}

async function startPeer(path, flags = []) {
  const port = await freePort();
  const given = ['-m', path, '-t', String(THREADS), '-c', String(CELLS), '--host', '127.0.0.1', '--port', String(port)];
  const child = spawnLlamaServer(SERVER, [...given, ...flags], LIBRARIES);
  running.push(() => child.kill('SIGKILL'));
  const url = `http://127.0.0.1:${port}`;
  for (;;) {
    if (child.exitCode !== null) throw new Error(`llama-server ended with ${child.exitCode}`);
    const response = await fetch(`${url}/health`).catch(() => undefined);
    if (response?.ok) return { name: 'llama-server', url };
    await sleep(100);
  }
}

async function startOwn(path) {
  const engine = await spawnEngine({ model: path, port: 0, threads: THREADS, contextTokens: CELLS });
  running.push(() => engine.stop());
  return { name: 'embedded', url: engine.url };
}

/** `{ms, prompt, cached}`: milliseconds until the first token, tokens of the prompt, and those found in the cache. */
async function ask({ url }, prompt) {
  const started = performance.now();
  const body = JSON.stringify({ prompt, max_tokens: 1, temperature: 0, ignore_eos: true });
  const response = await fetch(`${url}/v1/completions`, { method: 'POST', headers: JSON_HEADERS, body });
  const answer = await response.json();
  const ms = performance.now() - started;
  if (!response.ok) throw new Error(`${url} answered ${response.status}: ${JSON.stringify(answer)}`);
  const { usage } = answer;
  return { ms, prompt: usage.prompt_tokens, cached: usage.prompt_tokens_details?.cached_tokens ?? 0 };
}

function mean(numbers) {
  return numbers.reduce((total, each) => total + each, 0) / numbers.length;
}

/** Nobody is always first. */
function rotated(list, by) {
  return [...list.slice(by % list.length), ...list.slice(0, by % list.length)];
}

async function cold(path) {
  const engines = [await startPeer(path), await startOwn(path)];
  const next = seeded(7);
  const times = { 'llama-server': [], embedded: [] };
  for (let round = -3; round < COLD; round++) {
    const prompt = Array.from({ length: COLD_TOKENS }, () => 300 + Math.floor(next() * 900));
    for (const engine of rotated(engines, round + 3)) {
      const { ms } = await ask(engine, prompt);
      if (round >= 0) times[engine.name].push(ms);
    }
  }
  await stopAll();
  return times;
}

/** What becomes of retrieved documents before they are sent. */
const ORDERS = {
  retrieval: () => ({ order: (documents) => documents, learn: () => {} }),
  arranged: () => {
    const history = new ServedHistory();
    let arrangement;
    return {
      order: (documents) => {
        arrangement = arrange({ documents: prepareDocuments(documents).documents, hints: false }, history, 0);
        observe({ kind: 'dispatched', arrangement, now: 0 }, history);
        return arrangement.documents;
      },
      learn: ({ prompt, cached }) => {
        const counted = { promptTokens: prompt, cachedTokens: cached };
        observe({ kind: 'completed', arrangement, now: 0, ...counted }, history);
      },
    };
  },
};

/** The questions of a BEIR folder with the passages that BM25 finds for them. */
function requestsOf(folder) {
  const lines = (name) =>
    readFileSync(join(folder, name), 'utf8')
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line));
  const passages = lines('corpus.jsonl').map(({ _id: id, title, text }) => ({ id, title, content: text }));
  const retriever = new Retriever(passages);
  return lines('queries.jsonl').map(({ text }) => ({ question: text, documents: retriever.search(text, TOP) }));
}

async function run(path) {
  const requests = requestsOf(values.data).slice(0, Number(values.requests));
  const lanes = [];
  for (const order of Object.keys(ORDERS)) {
    for (const start of [startPeer, startOwn]) {
      lanes.push({ order, engine: await start(path), ordering: ORDERS[order](), answers: [] });
    }
  }
  for (const [index, { question, documents: found }] of requests.entries()) {
    for (const lane of rotated(lanes, index)) {
      const documents = lane.ordering.order(found);
      const texts = documents.map(({ title, content }) => `${title ?? ''}\n${content}\n\n`);
      const answer = await ask(lane.engine, `${texts.join('')}Question: ${question}\nAnswer:`);
      lane.ordering.learn(answer);
      lane.answers.push(answer);
    }
  }
  await stopAll();
  return lanes.map(({ order, engine, answers }) => ({ order, name: engine.name, answers }));
}

/** Tokens a second of so many streams at once. */
async function tokensPerSecond({ url }, streams, salt) {
  const one = async (stream) => {
    const prompt = Array.from({ length: 30 }, (_, i) => 300 + ((i * 7 + stream * 131 + salt * 17) % 900));
    const body = { prompt, max_tokens: STREAM_TOKENS, temperature: 0, ignore_eos: true, stream: true };
    const response = await fetch(`${url}/v1/completions`, {
      method: 'POST',
      headers: JSON_HEADERS,
      body: JSON.stringify(body),
    });
    await response.text();
  };
  const started = performance.now();
  await Promise.all(Array.from({ length: streams }, (_, stream) => one(stream)));
  return (1_000 * streams * STREAM_TOKENS) / (performance.now() - started);
}

async function generation(path) {
  const engines = [await startPeer(path, ['-np', String(STREAMS)]), await startOwn(path)];
  const results = { 'llama-server': { 1: [], [STREAMS]: [] }, embedded: { 1: [], [STREAMS]: [] } };
  for (let round = -1; round < 5; round++) {
    for (const streams of [1, STREAMS]) {
      for (const engine of rotated(engines, round + 1)) {
        const rate = await tokensPerSecond(engine, streams, round + 2);
        if (round >= 0) results[engine.name][streams].push(rate);
      }
    }
  }
  await stopAll();
  return results;
}

const WORDS = 'river stone lamp garden copper window street winter paper music silver bridge harbor forest'.split(' ');
const SYSTEM = { role: 'system', content: 'Answer from the documents, in few words. Say when you do not know it.' };
const PARAMETERS = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
const TOOL = { name: 'get_weather', description: 'The weather of a city.', parameters: PARAMETERS };
const FORMAT = { type: 'json_schema', json_schema: { name: 'city', schema: PARAMETERS, strict: true } };

function documentText(number) {
  const word = (_, index) => WORDS[(index * 7 + number * 5 + ((index * index) % 11)) % WORDS.length];
  return `[${number}] ${Array.from({ length: 60 }, word).join(' ')}. Number ${number}.\n`;
}

function about(numbers, question) {
  return [SYSTEM, { role: 'user', content: numbers.map(documentText).join('') + question }];
}

/** What an engine answers to the same chats, one after the other. */
async function chats({ url }) {
  const answers = {};
  const chat = async (what, messages, fields = {}) => {
    const body = JSON.stringify({ messages, max_tokens: 24, temperature: 0, ...fields });
    const response = await fetch(`${url}/v1/chat/completions`, { method: 'POST', headers: JSON_HEADERS, body });
    const { choices, usage, error } = await response.json();
    if (error !== undefined) {
      answers[what] = { text: JSON.stringify(error), prompt: 0, cached: 0 };
      return '';
    }
    const { content, tool_calls: calls = [] } = choices[0].message;
    const text = JSON.stringify([
      content || '',
      calls.map(({ function: call }) => [call.name, JSON.parse(call.arguments)]),
    ]);
    answers[what] = { text, prompt: usage.prompt_tokens, cached: usage.prompt_tokens_details?.cached_tokens ?? 0 };
    return content ?? '';
  };
  await chat('five documents', about([1, 2, 3, 4, 5], 'What is it?'));
  await chat('the same again', about([1, 2, 3, 4, 5], 'What is it?'));
  await chat('another question', about([1, 2, 3, 4, 5], 'Where was that then?'));
  await chat('another order', about([1, 2, 5, 3, 4], 'Who said so?'));
  const turns = about([6, 7, 8], 'What is it?');
  for (const turn of [1, 2, 3]) {
    const content = await chat(`turn ${turn}`, turns);
    turns.push({ role: 'assistant', content }, { role: 'user', content: `And question ${turn}?` });
  }
  const weather = [{ role: 'user', content: 'What is the weather in Paris now?' }];
  await chat('a tool', weather, { tools: [{ type: 'function', function: TOOL }], max_tokens: 48 });
  const city = [{ role: 'user', content: 'Name a city in Japan.' }];
  await chat('a schema', city, { response_format: FORMAT, max_tokens: 48 });
  return answers;
}

async function same(path) {
  const [peer, own] = [await startPeer(path, ['-np', '1']), await startOwn(path)];
  const answers = { [own.name]: await chats(own), [peer.name]: await chats(peer) };
  await stopAll();
  return answers;
}

async function stopAll() {
  for (const stop of running.splice(0)) await stop();
}

function row(what, own, peer, bar, isMet) {
  const bars = bar === '' ? '' : `${bar}, ${isMet ? 'met' : 'missed'}`;
  console.log(`${what.padEnd(52)} ${own.padStart(10)} ${peer.padStart(13)}   ${bars}`);
}

function ms(numbers) {
  return `${mean(numbers).toFixed(0)} ms`;
}

function printCold(coldTimes) {
  const { ratio, error } = pairedRatio(coldTimes.embedded, coldTimes['llama-server']);
  row(`${COLD_TOKENS} cold tokens, mean TTFT`, ms(coldTimes.embedded), ms(coldTimes['llama-server']), '', true);
  row('  ratio', `${ratio.toFixed(2)} ± ${error.toFixed(2)}`, '', '≤ 1.1', ratio <= 1.1);
}

function printRequests(lanes) {
  for (const order of Object.keys(ORDERS)) {
    const [peer, own] = ['llama-server', 'embedded'].map(
      (name) => lanes.find((lane) => lane.order === order && lane.name === name).answers,
    );
    const ttft = (answers) => answers.map((answer) => answer.ms);
    const share = (answers) => mean(answers.map(({ cached, prompt }) => cached / prompt)).toFixed(3);
    const perToken = (answers) =>
      answers.reduce((sum, answer) => sum + answer.ms, 0) /
      answers.reduce((sum, { prompt, cached }) => sum + prompt - cached, 0);
    const growth = (answers) => perToken(answers.slice(-EDGE)) / perToken(answers.slice(0, EDGE));
    const paired = pairedRatio(ttft(own), ttft(peer));
    row(`${order}, ${own.length} requests, mean TTFT`, ms(ttft(own)), ms(ttft(peer)), '', true);
    const bar = order === 'arranged' ? '≤ 0.7' : '';
    row('  ratio', `${paired.ratio.toFixed(2)} ± ${paired.error.toFixed(2)}`, '', bar, paired.ratio <= 0.7);
    row('  cached share of the prompts', share(own), share(peer), '', true);
    const last = growth(own);
    row(
      `  last ${EDGE} ÷ first ${EDGE}, ms an uncached token`,
      last.toFixed(2),
      growth(peer).toFixed(2),
      '≤ 1.1',
      last <= 1.1,
    );
  }
}

function printStreams(rates) {
  for (const streams of [1, STREAMS]) {
    const [own, peer] = [mean(rates.embedded[streams]), mean(rates['llama-server'][streams])];
    row(`${streams} streams, tokens a second`, own.toFixed(0), peer.toFixed(0), '', true);
    row('  ratio', (own / peer).toFixed(2), '', '≥ 0.9', own >= 0.9 * peer);
  }
}

function printSame({ embedded, 'llama-server': peer }) {
  for (const [what, own] of Object.entries(embedded)) {
    const other = peer[what];
    const texts = own.text === other.text ? 'same text' : `other text: ${own.text} | ${other.text}`;
    const cells = [own, other].map(({ cached, prompt }) => `${cached}/${prompt}`);
    row(`${what}, cached tokens`, ...cells, `≥ llama-server's; ${texts}`, own.cached >= other.cached);
  }
}

/** What is measured, and how it is told. */
const PARTS = {
  cold: [cold, printCold],
  streams: [generation, printStreams],
  requests: [run, printRequests],
  same: [same, printSame],
};

try {
  const { path } = await resolveModel(await modelPath(values.model));
  const measured = {};
  for (const part of values.parts.split(',')) measured[part] = await PARTS[part][0](path);
  console.log(`${values.model}, ${THREADS} threads, ${CELLS} cells`);
  row('', 'embedded', 'llama-server', '', true);
  for (const [part, figures] of Object.entries(measured)) PARTS[part][1](figures);
  if (values.json !== undefined) writeFileSync(values.json, `${JSON.stringify(measured)}\n`);
} finally {
  await stopAll();
}
