// What the gateway costs, beside a plain proxy and beside Portkey: in one run and in turns, so that a noisy
// neighbour meets all alike. Real sockets, each server in a process of its own. `node bench/overhead.js [--json
// FILE] [--quick] [--without-portkey]`, after a build.
import { writeFileSync } from 'node:fs';
import { cpus, loadavg } from 'node:os';
import { parseArgs } from 'node:util';
import { Pool } from 'undici';
import { AGENT_SIZES, agentConversations } from './agent-conversations.js';
import { bodies, neverAsked, neverSeen } from './bodies.js';
import { ask, load, stream } from './load.js';
import { startPortkey } from './peers.js';
import { start, stopAll, usageOf } from './processes.js';
import { NEVER_ASKED, NEVER_SEEN, print, quantile, rowsOf, WITHOUT_DOCUMENTS } from './report.js';

const { values: given } = parseArgs({
  options: { json: { type: 'string' }, quick: { type: 'boolean' }, 'without-portkey': { type: 'boolean' } },
});
const QUICK = given.quick === true;
const ROUNDS = QUICK ? 2 : 5;
const CONNECTIONS = 32;
const AGENT_CONNECTIONS = 4;
const AGENT_CONVERSATIONS = 12;
/** Milliseconds of one server's requests before the next has its turn. */
const BUSY_MS = QUICK ? 200 : 1_000;
const ALONE_MS = QUICK ? 100 : 250;
/** Turns of each server in a round, one request at a time. */
const ALONE_TURNS = QUICK ? 1 : 3;
/** As long as V8 takes to optimise the longest of the ways: before, its compiler is most of what is measured. */
const WARM_UP_MS = QUICK ? 200 : 10_000;
const STREAMS = QUICK ? 4 : 30;
const MANY_STREAMS = 512;
const BODIES = ['small', 'prompt', 'documents', 'tags'];
/** Response headers by which the gateway says that it saw the documents. */
const ARRANGED_SIGNS = { documents: 'policy=', tags: 'recognised=' };
const JSON_HEADERS = { 'content-type': 'application/json' };

async function startServers() {
  const direct = { ...(await start('upstream-process.js')), name: 'direct', headers: {} };
  const named = async (name, file) => ({ ...(await start(file, direct.url)), name, headers: {} });
  const gateway = await named('gateway', 'gateway-process.js');
  const proxy = await named('proxy', 'plain-proxy-process.js');
  const compared = [gateway, proxy];
  if (given['without-portkey'] !== true) compared.push({ ...(await startPortkey(direct.url)), name: 'portkey' });
  const idle = await residentMiB(compared);
  // Apart, so that it adds nothing to the memory of the one that is measured.
  return { direct, gateway, proxy, compared, idle, second: await named('gateway', 'gateway-process.js') };
}

async function residentMiB(servers) {
  const entries = servers.map(async (server) => [server.name, [(await usageOf(server)).residentBytes / 2 ** 20]]);
  return Object.fromEntries(await Promise.all(entries));
}

/** All answer alike, and the gateway does what it is there for. */
async function check({ direct, compared, gateway }, ofBody) {
  const answer = (text) => JSON.parse(text).choices[0].message.content;
  for (const name of BODIES) {
    const [body] = ofBody[name];
    const expected = answer((await ask(direct, headersOf(direct), body)).text);
    for (const server of compared) {
      const { text } = await ask(server, headersOf(server), body);
      if (answer(text) !== expected) throw new Error(`${server.name} answers another thing`);
    }
    const { headers } = await ask(gateway, headersOf(gateway), body);
    const sign = ARRANGED_SIGNS[name];
    if (sign !== undefined && !String(headers['x-warmpath']).includes(sign))
      throw new Error(`${name}: the answer does not say ${sign}`);
  }
}

function headersOf(server, more = {}) {
  return { ...JSON_HEADERS, ...server.headers, ...more };
}

/** What one server is sent of one kind of body. */
function lane(body, server, given, { name = server.name, headers = {} } = {}) {
  return { body, name, server, headers: headersOf(server, headers), bodies: given, next: 0 };
}

/** The lanes of each kind of body; those of `alone` are sent one request at a time, too. */
function lanesOf({ direct, gateway, proxy, compared, second }, ofBody, agents) {
  const busy = BODIES.map((body) => compared.map((server) => lane(body, server, ofBody[body])));
  const without = { name: WITHOUT_DOCUMENTS };
  busy[0].push(lane('small', second, ofBody.small, without));
  busy[1].push(lane('prompt', second, ofBody.prompt, without));
  for (const index of [2, 3]) {
    const tenant = { name: NEVER_ASKED, headers: { authorization: 'Bearer never asked' } };
    busy[index].push(lane(BODIES[index], second, neverAsked(ofBody[BODIES[index]]), tenant));
  }
  const tenant = { name: NEVER_SEEN, headers: { authorization: 'Bearer never seen' } };
  busy[2].push(lane('documents', second, neverSeen(ofBody.documents), tenant));
  const alone = BODIES.map((body) => [direct, ...compared].map((server) => lane(body, server, ofBody[body])));
  const ofAgents = agents.map(({ body, conversations }) =>
    [gateway, proxy].map((server) => lane(body, server, conversations)),
  );
  return { busy, alone, agents: ofAgents };
}

function agentBodies() {
  return AGENT_SIZES.map((size) => {
    const conversations = agentConversations(size, QUICK ? 4 : AGENT_CONVERSATIONS).map((requests) =>
      requests.map((request) => Buffer.from(JSON.stringify(request))),
    );
    const name = `agent, 50 turns, ${(conversations[0][0].length / 1_000).toFixed(0)} KB`;
    return { name, body: `agent ${size.name}`, budgetUs: size.budgetUs, conversations };
  });
}

/** Nobody is always first. */
function rotated(list, by) {
  const from = by % list.length;
  return [...list.slice(from), ...list.slice(0, from)];
}

/** One round: every lane once at `CONNECTIONS`, then one request at a time, several turns each. */
async function round({ busy, alone, agents }, index) {
  const samples = [];
  const add = ({ body, name }, connections, { times, requests, perSecond, cpuUs }) => {
    const latency = { p50Ms: quantile(times, 0.5), p99Ms: quantile(times, 0.99) };
    samples.push({ round: index, body, server: name, connections, requests, perSecond, cpuUs, ...latency });
  };
  for (const lanes of rotated(busy, index)) {
    for (const one of rotated(lanes, index)) {
      add(one, CONNECTIONS, await load(one, { connections: CONNECTIONS, ms: BUSY_MS }));
    }
  }
  for (const lanes of rotated(alone, index)) {
    const turns = new Map(lanes.map((one) => [one, []]));
    for (let turn = 0; turn < ALONE_TURNS; turn++) {
      for (const one of rotated(lanes, index + turn)) {
        turns.get(one).push(await load(one, { connections: 1, ms: ALONE_MS }));
      }
    }
    for (const [one, parts] of turns) add(one, 1, together(parts));
  }
  for (const lanes of agents) {
    for (const one of rotated(lanes, index)) {
      add(one, AGENT_CONNECTIONS, await load(one, { connections: AGENT_CONNECTIONS, ms: BUSY_MS }));
    }
  }
  return samples;
}

/** Several turns of one server as one. */
function together(parts) {
  const times = parts.flatMap((part) => part.times);
  const mean = (field) => parts.reduce((sum, part) => sum + part[field] * part.requests, 0) / times.length;
  return { times, requests: times.length, perSecond: mean('perSecond'), cpuUs: mean('cpuUs') };
}

/** One stream after another, each through every server before the next. */
async function streams({ direct, compared }, body) {
  const servers = [direct, ...compared];
  const pools = new Map(servers.map((server) => [server, new Pool(server.url, { connections: 1 })]));
  const results = Object.fromEntries(servers.map(({ name }) => [name, { ttft: [], gaps: [] }]));
  for (let i = -1; i < STREAMS; i++) {
    for (const server of rotated(servers, i + 1)) {
      const { ttft, gaps } = await stream(pools.get(server), headersOf(server), body);
      if (i < 0) continue;
      results[server.name].ttft.push(ttft);
      results[server.name].gaps.push(...gaps);
    }
  }
  await Promise.all([...pools.values()].map((pool) => pool.close()));
  return results;
}

/** Very many streams at once, and what the servers hold in memory then, after all that they were sent before. */
async function manyStreams({ compared, idle }, body) {
  const complete = {};
  for (const server of compared) {
    const pool = new Pool(server.url, { connections: MANY_STREAMS });
    const all = Array.from({ length: MANY_STREAMS }, () => stream(pool, headersOf(server), body));
    const results = await Promise.all(all);
    complete[server.name] = [results.filter((one) => one.complete).length];
    await pool.close();
  }
  return { streams: MANY_STREAMS, complete, idle, loaded: await residentMiB(compared) };
}

async function measure() {
  const [loadBefore] = loadavg();
  const ofBody = bodies();
  const agents = agentBodies();
  const servers = await startServers();
  await check(servers, ofBody);
  const lanes = lanesOf(servers, ofBody, agents);
  for (const one of lanes.busy.flat()) await load(one, { connections: CONNECTIONS, ms: WARM_UP_MS });
  for (const one of lanes.agents.flat()) await load(one, { connections: AGENT_CONNECTIONS, ms: WARM_UP_MS });
  const samples = [];
  for (let i = 0; i < ROUNDS; i++) {
    samples.push(...(await round(lanes, i)));
    if (process.stderr.isTTY) process.stderr.write(`round ${i + 1} of ${ROUNDS}\n`);
  }
  return {
    node: process.version,
    processor: `${cpus().length} x ${cpus()[0].model}`,
    loadBefore,
    portkey: servers.compared.find(({ name }) => name === 'portkey')?.version,
    quick: QUICK,
    bodyBytes: Object.fromEntries(BODIES.map((name) => [name, ofBody[name][0].length])),
    connections: CONNECTIONS,
    agentConnections: AGENT_CONNECTIONS,
    agents: agents.map(({ name, body, budgetUs }) => ({ name, body, budgetUs })),
    samples,
    streams: await streams(servers, ofBody.stream),
    memory: await manyStreams(servers, ofBody.stream),
  };
}

try {
  const result = await measure();
  const rows = rowsOf(result);
  if (given.json !== undefined) writeFileSync(given.json, `${JSON.stringify({ ...result, rows }, null, 1)}\n`);
  const { node, processor, loadBefore, portkey, bodyBytes } = result;
  console.log(
    `Node ${node}, ${processor}, which the client and the engine share; Portkey ${portkey ?? 'was not measured'}`,
  );
  console.log(`load of the machine when it began: ${loadBefore.toFixed(1)}`);
  if (portkey === undefined) console.log('Without Portkey the bars in requests a second stay open.');
  if (QUICK) console.log('A smoke run: it shows that everything works, its figures mean nothing.');
  console.log(`bodies: ${BODIES.map((name) => `${name} ${bodyBytes[name]}`).join(', ')} bytes\n`);
  print(rows);
} finally {
  stopAll();
}
