// A gateway whose heap can be filled: `fill` on standard input until requests are refused, `free` to let go of it.
// `node --expose-gc --max-old-space-size=… full-heap-process.js ENGINE`, after a build; prints the gateway's address.
import { createInterface } from 'node:readline';
import { getHeapStatistics } from 'node:v8';
import { startGateway } from '@warmpath/gateway';

/** Less than what the gateway wants to have free. */
const FREE_BYTES = 48 * 2 ** 20;

const gateway = await startGateway({
  server: { port: 0 },
  upstream: { url: process.argv[2] },
  log: { level: 'silent' },
});
let held = [];
createInterface({ input: process.stdin }).on('line', async (line) => {
  if (line === 'free') held = [];
  else {
    while (freeBytes() > FREE_BYTES) held.push(Array.from({ length: 65_536 }, (_, i) => ({ i })));
    while (!(await isShedding()));
  }
  process.stdout.write('done\n');
});
process.stdin.on('end', () => process.exit());
process.stdout.write(`${gateway.url}\n`);

function freeBytes() {
  globalThis.gc();
  const { used_heap_size: used, heap_size_limit: limit } = getHeapStatistics();
  return limit - used;
}

/** Asked over its socket, so that the gateway's own timers get their turn. */
async function isShedding() {
  const metrics = await (await fetch(`${gateway.url}/metrics`)).text();
  return metrics.includes('\nwarmpath_shedding 1\n');
}
