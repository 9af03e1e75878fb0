// A pool of one worker in a process that runs out of files: the worker ends, none can be started until there are files
// again. Ends with 0 once a worker is ready again. To be run with few files (`ulimit -n`).
import { closeSync, openSync } from 'node:fs';
import { setImmediate as turn } from 'node:timers/promises';
import { WorkerPool } from '../dist/workers/worker-pool.js';

const timeouts = { connectMs: 1_000, firstByteMs: 1_000, idleMs: 1_000, totalMs: 1_000 };
const files = [];
let failed = 0;
const log = {
  error: ({ reason }) => {
    if (!reason.startsWith('it cannot be started')) return;
    failed++;
    if (failed === 2) for (const file of files.splice(0)) closeSync(file);
  },
};
const pool = new WorkerPool({
  count: 1,
  log,
  setup: { upstream: { timeouts, maxConcurrent: 4 } },
  malformed: () => {},
  readerStalled: () => {},
});
pool.serverFor(() => {});
await pool.start();
try {
  for (;;) files.push(openSync('/dev/null'));
} catch {
  pool.kill();
}
while (failed < 2 || pool.ready < 1) await turn();
await pool.drain();
