// The gateway of the benchmarks, in a process of its own so that its CPU time and memory are its own.
import { readFileSync } from 'node:fs';
import { setImmediate as turn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { startGateway } from '@warmpath/gateway';

const [, , url, given = '{}'] = process.argv;
const { server, upstream, parts, ...config } = JSON.parse(given);
// Several engines are named by the configuration.
const engine = config.engines === undefined ? { url } : {};
const gateway = await startGateway(
  { ...config, server: { ...server, port: 0 }, upstream: { ...upstream, ...engine }, log: { level: 'silent' } },
  parts,
);

let longestNs = 0;
let sinceNs;

/** CPU time of this thread alone, in nanoseconds: what others do on the machine does not count. Linux only. */
function threadNs() {
  return Number(readFileSync('/proc/self/schedstat', 'latin1').split(' ', 1)[0]);
}

function tick() {
  const now = threadNs();
  longestNs = Math.max(longestNs, now - sinceNs);
  sinceNs = now;
  setImmediate(tick);
}

/** CPU time of the longest turn of the event loop since this was asked the last time. */
function heldMs() {
  if (sinceNs === undefined) {
    sinceNs = threadNs();
    setImmediate(tick);
  }
  const held = longestNs / 1e6;
  longestNs = 0;
  return held;
}

let collect;

/** What is left when everything is collected that nobody needs: `{heapBytes, bufferBytes}`, V8's heap and beside it. */
async function kept() {
  if (collect === undefined) {
    setFlagsFromString('--expose-gc');
    collect = runInNewContext('gc');
  }
  // What the first collection finds of buffers is freed on another thread; the second one waits for that.
  for (let i = 0; i < 2; i++) {
    collect();
    await turn();
  }
  const { heapUsed, external } = process.memoryUsage();
  return { heapBytes: heapUsed, bufferBytes: external };
}

process.on('message', async (message) => {
  if (message === 'kept') {
    process.send(await kept());
    return;
  }
  if (message === 'held') {
    process.send({ heldMs: heldMs() });
    return;
  }
  const { user, system } = process.cpuUsage();
  process.send({ cpuUs: user + system, residentBytes: process.memoryUsage.rss() });
});
process.send({ url: gateway.url });
