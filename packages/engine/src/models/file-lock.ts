import { randomUUID } from 'node:crypto';
import { readFile, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';

const POLL_MS = 200;
const HEARTBEAT_MS = 10_000;
/** A lock without a heartbeat for this long has no holder any more, on whatever host it ran. */
const STALE_MS = 60_000;
/** Time for another process that removes the same stale lock to be done with it. */
const TAKEOVER_MS = 100;

interface Holder {
  readonly process: number;
  readonly host: string;
  readonly id: string;
}

/** Locks of this process: a lock with its number and another id is of an earlier process. */
const held = new Set<string>();

export interface FileLock {
  /** Aborted when another process took the lock, because this one showed no heartbeat. */
  readonly lost: AbortSignal;
  release(): Promise<void>;
}

export interface FileLockOptions {
  readonly signal?: AbortSignal | undefined;
  /** Called once, when another process holds the lock. */
  readonly onWait?: (() => void) | undefined;
}

/**
 * Waits for the lock file at `path` and takes it. Works between processes and within one. A dead holder loses the lock
 * at once where it ran on this host, else after a minute.
 *
 * @throws The signal's reason, or the file system's error.
 */
export async function acquireFileLock(path: string, { signal, onWait }: FileLockOptions = {}): Promise<FileLock> {
  const holder: Holder = { process: process.pid, host: hostname(), id: randomUUID() };
  let isAnnounced = false;
  let isTakeover = false;
  held.add(holder.id);
  try {
    for (;;) {
      if (await create(path, holder)) {
        if (!isTakeover) return hold(path, holder);
        await delay(TAKEOVER_MS);
        if (await isOwn(path, holder)) return hold(path, holder);
      }
      isTakeover = await isStale(path);
      if (isTakeover) {
        await rm(path, { force: true });
        continue;
      }
      if (!isAnnounced) onWait?.();
      isAnnounced = true;
      await delay(POLL_MS, undefined, signal && { signal }).catch(() => signal?.throwIfAborted());
    }
  } catch (error) {
    held.delete(holder.id);
    throw error;
  }
}

async function create(path: string, holder: Holder): Promise<boolean> {
  try {
    await writeFile(path, JSON.stringify(holder), { flag: 'wx' });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}

function hold(path: string, holder: Holder): FileLock {
  const lost = new AbortController();
  const beat = async () => {
    const now = new Date();
    if (!(await isOwn(path, holder))) throw new Error('the lock has another holder');
    await utimes(path, now, now);
  };
  const heartbeat = setInterval(() => void beat().catch((cause) => lost.abort(cause)), HEARTBEAT_MS);
  heartbeat.unref();
  return {
    lost: lost.signal,
    release: async () => {
      clearInterval(heartbeat);
      held.delete(holder.id);
      if (await isOwn(path, holder)) await rm(path, { force: true });
    },
  };
}

async function isOwn(path: string, holder: Holder): Promise<boolean> {
  return (await readFile(path, 'utf8').catch(() => '')) === JSON.stringify(holder);
}

async function isStale(path: string): Promise<boolean> {
  const [content, status] = await Promise.all([
    readFile(path, 'utf8').catch(() => ''),
    stat(path).catch(() => undefined),
  ]);
  if (status === undefined) return false;
  if (Date.now() - status.mtimeMs > STALE_MS) return true;
  try {
    const { process: pid, host, id } = JSON.parse(content) as Holder;
    return host === hostname() && (pid === process.pid ? !held.has(id) : !isProcessAlive(pid));
  } catch {
    // Being written at this moment, or incomplete after a crash.
    return false;
  }
}

/** Whether this machine runs a process of this number, whoever it is. */
function isProcessAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // EPERM: it lives and belongs to someone else.
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}
