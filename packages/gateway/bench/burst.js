// Whether streams go on while prompts come all at once: eight streams of a frame every 10 ms, and, in their middle, 512
// prompts of 30 KB with 20 documents; the gateway and a plain proxy in turns. `node bench/burst.js [--prompts 512]
// [--rounds 5]`, after a build. Prints the longest gap between two frames and how many came late, and exits with 1
// where one of the gateway's did in most rounds. The client shares the machine, and sends all prompts in one turn.
import { Agent, request } from 'node:http';
import { parseArgs } from 'node:util';
import { bodies, streamed } from './bodies.js';
import { STALL_MS } from './load.js';
import { start, stopAll } from './processes.js';
import { printed } from './report.js';

const { values } = parseArgs({
  options: { prompts: { type: 'string', default: '512' }, rounds: { type: 'string', default: '5' } },
});
const PROMPTS = Number(values.prompts);
const ROUNDS = Number(values.rounds);
const STREAMS = 8;
const FRAMES = 200;
/** Frames of each stream before the burst. */
const BEFORE = 30;

const { small, documents } = bodies();
const [stream] = streamed(small, FRAMES);
const agent = new Agent({ keepAlive: true });

/** Sends a body, and tells of every part of the answer. */
function post(url, body, onData = () => {}) {
  return new Promise((resolve, reject) => {
    const headers = { 'content-type': 'application/json', 'content-length': body.length };
    const sent = request(`${url}/v1/chat/completions`, { method: 'POST', agent, headers }, (answer) => {
      answer
        .on('data', onData)
        .on('end', () => resolve(answer.statusCode))
        .on('error', reject);
    });
    sent.on('error', reject).end(body);
  });
}

async function allPrompts(url) {
  const statuses = await Promise.all(
    Array.from({ length: PROMPTS }, (_, i) => post(url, documents[i % documents.length])),
  );
  if (statuses.some((status) => status !== 200)) throw new Error('a prompt was not answered');
}

/** The longest gap of a frame, and how many frames were late. */
async function round(url) {
  let longest = 0;
  let late = 0;
  let begun;
  const isUnderWay = new Promise((resolve) => {
    begun = resolve;
  });
  const streams = Array.from({ length: STREAMS }, () => {
    let before;
    let frames = 0;
    return post(url, stream, () => {
      const now = performance.now();
      if (before !== undefined) {
        longest = Math.max(longest, now - before);
        if (now - before >= STALL_MS) late++;
      }
      before = now;
      if (++frames === BEFORE) begun();
    });
  });
  await isUnderWay;
  await allPrompts(url);
  await Promise.all(streams);
  return { longest, late };
}

const engine = await start('upstream-process.js', '10');
const systems = {
  'fastify + undici': await start('plain-proxy-process.js', engine.url, 'fastify'),
  Warmpath: await start('gateway-process.js', engine.url),
};
const found = Object.fromEntries(Object.keys(systems).map((name) => [name, []]));
for (const { url } of Object.values(systems)) for (let i = 0; i < 3; i++) await allPrompts(url);
for (let i = 0; i < ROUNDS; i++)
  for (const [name, { url }] of Object.entries(systems)) found[name].push(await round(url));
stopAll();
agent.destroy();
process.stdout.write(
  `${printed({
    title: `${STREAMS} streams beside ${PROMPTS} prompts at once, ${ROUNDS} rounds`,
    head: ['system', 'longest gap of each round, ms', 'late frames of each round'],
    rows: Object.entries(found).map(([name, rounds]) => [
      name,
      rounds.map(({ longest }) => longest.toFixed(0)).join(' '),
      rounds.map(({ late }) => late).join(' '),
    ]),
  })}\n`,
);
const lateRounds = found.Warmpath.filter(({ late }) => late > 0).length;
process.exitCode = lateRounds > ROUNDS / 2 ? 1 : 0;
