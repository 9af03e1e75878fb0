// What one client can do to all others: each attack of test/attacks in its real size, against a gateway in a process of
// its own with a heap of 1 GiB, while another thread asks /healthz every 5 ms. `node bench/attacks.js [--memory-mib 64]
// [--wait-ms 100] [--only words] [--json]`. Exits with 1 where an answer was wrong, the gateway ended, somebody waited
// longer, or it took more memory than what is configured plus 150 MB. Linux only: resident memory is read from /proc.
import { once } from 'node:events';
import { setTimeout } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Worker } from 'node:worker_threads';
import { describeConfig } from '@warmpath/gateway';
import { problemsAfterwards } from '../dist-test/packages/gateway/test/attacks/attack.js';
import { GatewayProcess } from '../dist-test/packages/gateway/test/attacks/gateway-process.js';
import { LARGE_BODIES } from '../dist-test/packages/gateway/test/attacks/large-bodies.js';
import { MEMORY } from '../dist-test/packages/gateway/test/attacks/memory.js';
import { SinkEngine } from '../dist-test/packages/gateway/test/attacks/sink-engine.js';

const PROGRAM = new URL('gateway-process.js', import.meta.url);
const WORKER = new URL('health-worker.js', import.meta.url);
/** What a gateway takes beside the memory that is configured: the process itself and the requests under way. */
const BESIDE_BYTES = 150e6;
const DEFAULT_MEMORY_MIB = 64;
const NOTHING_MS = 3_000;

const configured = describeConfig().find(({ path }) => /(?:^|\.)memoryBytes$/.test(path));
const { values } = parseArgs({
  options: {
    'memory-mib': { type: 'string' },
    'wait-ms': { type: 'string', default: '100' },
    only: { type: 'string', default: '' },
    json: { type: 'boolean', default: false },
  },
});
const memoryBytes =
  values['memory-mib'] === undefined
    ? (configured?.default ?? DEFAULT_MEMORY_MIB * 2 ** 20)
    : Number(values['memory-mib']) * 2 ** 20;
const limitBytes = memoryBytes + BESIDE_BYTES;
const limitMs = Number(values['wait-ms']);

/** What the machine itself makes /healthz wait. */
const NOTHING = {
  name: 'nothing, for comparison',
  run: async () => {
    await setTimeout(NOTHING_MS);
    return [];
  },
};

async function measure(attack) {
  const engine = await SinkEngine.start();
  const gateway = await GatewayProcess.start(PROGRAM, engine.url, attack.config ?? {});
  const health = new Worker(WORKER, { workerData: { url: gateway.url } });
  const attacked = { url: gateway.url, engine, isFull: true };
  const started = performance.now();
  try {
    const problems = [...(await attack.run(attacked))];
    health.postMessage('stop');
    const [{ longestMs, lagMs, broken }] = await once(health, 'message');
    if (gateway.hasEnded) problems.push('the gateway ended');
    else problems.push(...(await problemsAfterwards(attacked)));
    const peakBytes = gateway.hasEnded ? undefined : gateway.peakBytes;
    // It may have read an answer as late as it was itself.
    if (longestMs - lagMs > limitMs) problems.push(`/healthz waited ${longestMs.toFixed(0)} ms`);
    if (peakBytes > limitBytes) problems.push(`${mib(peakBytes)} MiB of memory, and ${mib(limitBytes)} are allowed`);
    if (broken > 0) problems.push(`${broken} connections of /healthz broke`);
    return { name: attack.name, seconds: (performance.now() - started) / 1_000, longestMs, lagMs, peakBytes, problems };
  } finally {
    await health.terminate();
    await gateway.close();
    await engine.close();
  }
}

function mib(bytes) {
  return bytes === undefined ? '-' : (bytes / 2 ** 20).toFixed(0);
}

for (const attack of [NOTHING, ...LARGE_BODIES, ...MEMORY].filter(({ name }) => name.includes(values.only))) {
  const result = await measure(attack);
  const { name, seconds, longestMs, lagMs, peakBytes, problems } = result;
  if (problems.length > 0) process.exitCode = 1;
  if (values.json) {
    console.log(JSON.stringify(result));
    continue;
  }
  const figures = `${seconds.toFixed(1)} s, /healthz at most ${longestMs.toFixed(0)} ms (asked at most ${lagMs.toFixed(0)} ms late), ${mib(peakBytes)} MiB`;
  console.log(`${problems.length === 0 ? 'ok  ' : 'FAIL'} ${name}: ${figures}`);
  for (const problem of problems.slice(0, 5)) console.log(`       ${problem}`);
  if (problems.length > 5) console.log(`       and ${problems.length - 5} more`);
}
