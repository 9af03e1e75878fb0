import { workerData } from 'node:worker_threads';

/** What the thread watches. */
export interface MemoryWatch {
  /** Resident bytes of the process at most. V8's own limit counts neither buffers nor what native code takes. */
  readonly limitBytes: number;
  /** The process without which this one has nothing to do. */
  readonly parent: number;
}

const INTERVAL_MS = 20;

const { limitBytes, parent } = workerData as MemoryWatch;
setInterval(() => {
  if (process.memoryUsage.rss() > limitBytes || process.ppid !== parent) process.kill(process.pid, 'SIGKILL');
}, INTERVAL_MS);
