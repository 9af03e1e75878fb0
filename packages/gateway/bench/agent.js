// What a request of an agent costs: conversations of 50 turns, each with a search and its result, at 30 KB and at 400
// KB, through real sockets with a plain engine behind. CPU of the gateway's process a request, beside that of a plain
// proxy in the same run. `node bench/agent.js [--json] [--quick]`, after a build.
import { Pool } from 'undici';
import { AGENT_SIZES, agentConversations, LAST } from './agent-conversations.js';
import { draws, prose } from './draw.js';
import { start, stopAll, usageOf } from './processes.js';

const QUICK = process.argv.includes('--quick');
const CLIENTS = 4;
const CONVERSATIONS = QUICK ? 4 : 12;
const ROUNDS = QUICK ? 2 : 40;
const WARM_UP_ROUNDS = QUICK ? 1 : 60;

const next = draws();

async function exchange(pool, body, headers) {
  const response = await pool.request({
    method: 'POST',
    path: '/v1/chat/completions',
    headers: { 'content-type': 'application/json', ...headers },
    body,
  });
  const text = await response.body.text();
  if (response.statusCode !== 200) throw new Error(text);
  return response.headers;
}

/** The headers of each conversation, which bear its name where the gateway is to follow it. */
const unnamed = () => ({});
const named = (tenant) => (index) => ({ authorization: `Bearer ${tenant}`, 'x-warmpath-session': `talk ${index}` });

/** Microseconds of CPU a request, sent by a few clients, each of which takes whole conversations. */
async function cpuOf(target, conversations, headersOf) {
  const pool = new Pool(target.url, { connections: CLIENTS });
  const round = async () => {
    const left = conversations.map((bodies, index) => ({ bodies, headers: headersOf(index) }));
    const client = async () => {
      for (let talk = left.pop(); talk !== undefined; talk = left.pop()) {
        for (const body of talk.bodies) await exchange(pool, body, talk.headers);
      }
    };
    await Promise.all(Array.from({ length: CLIENTS }, client));
  };
  for (let i = 0; i < WARM_UP_ROUNDS; i++) await round();
  const before = await usageOf(target);
  for (let i = 0; i < ROUNDS; i++) await round();
  const after = await usageOf(target);
  await pool.close();
  return (after.cpuUs - before.cpuUs) / (ROUNDS * conversations.length * LAST);
}

/** Has the gateway know every conversation before its last requests come, with or without documents of its own. */
async function begin(target, conversations, headersOf, withDocuments) {
  const pool = new Pool(target.url, { connections: CLIENTS });
  const documents = Array.from({ length: 5 }, (_, i) => ({ id: `given-${i}`, content: prose(next, 200) }));
  for (const [index, [{ model, messages }]] of conversations.entries()) {
    const warmpath = { forgotten: 'mark' };
    const body = { model, messages: messages.slice(0, -2), warmpath, ...(withDocuments && { documents }) };
    await exchange(pool, JSON.stringify(body), headersOf(index));
  }
  const answered = await exchange(pool, JSON.stringify(conversations[0][0]), headersOf(0));
  await pool.close();
  if (withDocuments && !/replayed=1/.test(answered['x-warmpath'])) throw new Error('nothing was replayed');
}

async function measure(size, { plain, byDefault, automatic }) {
  const conversations = agentConversations(size, CONVERSATIONS);
  const written = conversations.map((bodies) => bodies.map((body) => JSON.stringify(body)));
  const known = named(`known ${size.name}`);
  const replays = named(`replays ${size.name}`);
  await begin(byDefault, conversations, known, false);
  await begin(automatic, conversations, known, false);
  await begin(byDefault, conversations, replays, true);
  return {
    bytes: written[0].at(-1).length,
    plain: await cpuOf(plain, written, unnamed),
    unknown: await cpuOf(byDefault, written, unnamed),
    follows: await cpuOf(byDefault, written, known),
    replays: await cpuOf(byDefault, written, replays),
    recognises: await cpuOf(automatic, written, unnamed),
    recognisesKnown: await cpuOf(automatic, written, known),
  };
}

function print(results) {
  const names = [
    ['plain', 'a plain proxy, which parses and writes the body'],
    ['unknown', 'gateway, by default: conversations without a name'],
    ['follows', 'by default, conversations followed'],
    ['replays', 'by default, documents of an earlier turn replayed'],
    ['recognises', '`recognise: auto`: repeated documents found and referred to'],
    ['recognisesKnown', '`recognise: auto`, conversations followed'],
  ];
  const header = results.map(({ size, bytes }) => `${size.name} (${(bytes / 1_000).toFixed(0)} KB)`.padStart(18));
  console.log(`${'CPU a request'.padEnd(60)}${header.join('')}`);
  for (const [key, name] of names) {
    console.log(name.padEnd(60) + results.map((result) => `${result[key].toFixed(0)} µs`.padStart(18)).join(''));
  }
  console.log('budget'.padEnd(60) + results.map(({ size }) => `${size.budgetUs} µs`.padStart(18)).join(''));
}

try {
  const upstream = await start('upstream-process.js');
  const processes = {
    plain: await start('plain-proxy-process.js', upstream.url),
    byDefault: await start('gateway-process.js', upstream.url),
    automatic: await start('gateway-process.js', upstream.url, '{"recognise":"auto"}'),
  };
  const results = [];
  for (const size of AGENT_SIZES) results.push({ size, ...(await measure(size, processes)) });
  if (process.argv.includes('--json')) console.log(JSON.stringify(results));
  else print(results);
} finally {
  stopAll();
}
