// Ends a fuzzing process that hangs in one input, and keeps that input. The loop that hangs cannot do it itself.
import { writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isMainThread, Worker, workerData } from 'node:worker_threads';

/** No input takes this long, on a machine however busy, unless it hangs. */
const HANGS_AFTER_MS = 60_000;
const MAX_BYTES = 1 << 20;
/** Places in the shared words: how many inputs began, how long the present one is. */
const BEGUN = 0;
const LENGTH = 1;

export function watchForHang() {
  const words = new Int32Array(new SharedArrayBuffer(8));
  const bytes = new Uint8Array(new SharedArrayBuffer(MAX_BYTES));
  const worker = new Worker(new URL(import.meta.url), { workerData: { words, bytes } });
  worker.unref();
  return {
    running(_name, input) {
      bytes.set(input.subarray(0, MAX_BYTES));
      words[LENGTH] = Math.min(input.length, MAX_BYTES);
      words[BEGUN]++;
    },
    end: () => worker.terminate(),
  };
}

if (!isMainThread && workerData?.words !== undefined) {
  const { words, bytes } = workerData;
  let before = -1;
  setInterval(() => {
    const begun = words[BEGUN];
    if (begun === before && begun > 0) {
      const file = join(tmpdir(), `fuzz-hang-${process.pid}`);
      writeFileSync(file, Buffer.from(bytes.slice(0, words[LENGTH])));
      process.stderr.write(`An input takes more than ${HANGS_AFTER_MS} ms; it is in ${file}\n`, () =>
        process.kill(process.pid, 'SIGKILL'),
      );
    }
    before = begun;
  }, HANGS_AFTER_MS);
}
