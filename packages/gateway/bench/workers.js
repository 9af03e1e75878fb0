// What workers are worth: the same requests through a gateway of one process and through one with workers. CPU of the
// process that decides and of the workers, a request, tell how far it goes on a machine with a core for each process;
// requests a second are those of this machine, whose cores the engine and the load share.
// `node bench/workers.js [--quick] [--json FILE]`, after a build.
import { writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { parseArgs } from 'node:util';
import { bodies, streamed } from './bodies.js';
import { load } from './load.js';
import { start, startedUsage, stopAll } from './processes.js';

const { values } = parseArgs({ options: { quick: { type: 'boolean' }, json: { type: 'string' } } });
const QUICK = values.quick === true;
const ROUNDS = QUICK ? 1 : 3;
const BUSY_MS = QUICK ? 300 : 2_000;
const WARM_UP_MS = QUICK ? 300 : 5_000;
const CONNECTIONS = 32;
const STREAMS = 128;
const CHUNKS = 32;
const WORKERS = [0, 1, 2];

async function measure(gateway, body, given, connections) {
  const lane = { server: gateway, headers: { 'content-type': 'application/json' }, bodies: given, next: 0 };
  if (!gateway.warm.has(body)) {
    gateway.warm.add(body);
    await load(lane, { connections, ms: WARM_UP_MS });
  }
  const before = startedUsage(gateway.child.pid);
  const { cpuUs, perSecond, requests, uncounted } = await load(lane, { connections, ms: BUSY_MS });
  const relayUs = (startedUsage(gateway.child.pid).cpuUs - before.cpuUs) / (requests + uncounted);
  return { body, workers: gateway.workers, decideUs: cpuUs, relayUs, perSecond, requests };
}

function median(list) {
  return list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)];
}

try {
  const upstream = await start('upstream-process.js');
  const gateways = [];
  for (const workers of WORKERS) {
    const process = await start('gateway-process.js', upstream.url, JSON.stringify({ workers }));
    gateways.push({ ...process, workers, warm: new Set() });
  }
  const { small, documents } = bodies();
  const [stream] = streamed(documents, CHUNKS);
  const samples = [];
  for (let round = 0; round < ROUNDS; round++) {
    for (const gateway of gateways) {
      samples.push(await measure(gateway, 'small', small, CONNECTIONS));
      samples.push(await measure(gateway, 'documents', documents, CONNECTIONS));
      samples.push(await measure(gateway, 'stream', [stream], STREAMS));
    }
  }
  const rows = ['small', 'documents', 'stream'].flatMap((body) =>
    WORKERS.map((workers) => {
      const own = samples.filter((sample) => sample.body === body && sample.workers === workers);
      const of = (field) => median(own.map((sample) => sample[field]));
      const [decideUs, relayUs] = [of('decideUs'), of('relayUs')];
      const most = 1e6 / Math.max(decideUs, relayUs / Math.max(1, workers));
      return { body, workers, decideUs, relayUs, perSecond: of('perSecond'), most, decider: 1e6 / decideUs };
    }),
  );
  if (values.json !== undefined) writeFileSync(values.json, `${JSON.stringify({ samples, rows }, null, 1)}\n`);
  console.log(`Node ${process.version}, ${cpus().length} cores, which the engine and the load share`);
  console.log('per request: µs of CPU to decide and to relay; requests a second here; on a core for each process;');
  console.log('and with as many workers as the process that decides can keep busy\n');
  for (const { body, workers, decideUs, relayUs, perSecond, most, decider } of rows) {
    const cells = [decideUs, relayUs, perSecond, most, decider].map((value) => value.toFixed(0).padStart(9));
    console.log(`${body.padEnd(10)} ${workers} workers${cells.join('')}`);
  }
} finally {
  stopAll();
}
