// A gateway whose heap can be filled: `fill` on standard input until requests are refused, `free` to let go of it.
// `node --expose-gc --max-old-space-size=… full-heap-process.js ENGINE`, after a build; prints the gateway's address.
import { createInterface } from 'node:readline';
import { getHeapStatistics } from 'node:v8';
import { startGateway } from '@warmpath/gateway';

/** More of the old generation than the gateway allows, and what the young generation may take. */
const FULL_PART = 0.85;
const YOUNG_BYTES = 48 * 2 ** 20;
const CHUNK = 65_536;

const gateway = await startGateway({
  server: { port: 0 },
  upstream: { url: process.argv[2] },
  log: { level: 'silent' },
});
let held = [];
createInterface({ input: process.stdin }).on('line', async (line) => {
  if (line === 'free') held = [];
  else {
    while (missingBytes() > 0) held.push(Array.from({ length: CHUNK }, (_, i) => ({ i })));
    globalThis.gc();
    while (missingBytes() > 0) held.push(Array.from({ length: CHUNK }, (_, i) => ({ i })));
    while (!(await isShedding()));
  }
  process.stdout.write('done\n');
});
process.stdin.on('end', () => process.exit());
process.stdout.write(`${gateway.url}\n`);

function missingBytes() {
  const { used_heap_size: used, heap_size_limit: limit } = getHeapStatistics();
  return FULL_PART * (limit - YOUNG_BYTES) - used;
}

/** Asked over its socket, so that the gateway's own timers get their turn. */
async function isShedding() {
  const metrics = await (await fetch(`${gateway.url}/metrics`)).text();
  return metrics.includes('\nwarmpath_shedding 1\n');
}
