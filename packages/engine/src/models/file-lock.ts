import { randomUUID } from 'node:crypto';
import { open, readFile, rm, stat, utimes } from 'node:fs/promises';
import { hostname } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';

const POLL_MS = 200;
const HEARTBEAT_MS = 10_000;
/** Without a heartbeat for this long the holder is gone, wherever it ran. */
const STALE_MS = 60_000;

/** A lock file whose holder has not written its name into it by now died in between. */
const NAMELESS_MS = 2_000;

/** What the lock file says about its holder. */
interface Holder {
  readonly process: number;
  readonly host: string;
  readonly id: string;
}

/** Locks that this process holds; tells a living lock from one left behind under the same process number. */
const held = new Set<string>();

/** A lock that is held. */
export interface FileLock {
  /** Aborted when the lock was taken away, because this process could not show for a minute that it lives. */
  readonly lost: AbortSignal;
  release(): Promise<void>;
}

export interface FileLockOptions {
  readonly signal?: AbortSignal | undefined;
  /** Called once, when another holder has to be waited for. */
  readonly onWait?: (() => void) | undefined;
}

/**
 * Waits until this process alone holds the lock file at `path`, and holds it. Works between processes and within one.
 * A lock whose holder has died is taken over: at once where the holder ran on this host, otherwise after a minute
 * without its heartbeat. Throws the signal's reason, or the file system's error.
 */
export async function acquireFileLock(path: string, { signal, onWait }: FileLockOptions = {}): Promise<FileLock> {
  const holder: Holder = { process: process.pid, host: hostname(), id: randomUUID() };
  let told = false;
  while (!(await create(path, holder))) {
    const stale = await staleContent(path);
    if (stale !== undefined && (await takeAway(path, stale))) continue;
    if (!told) onWait?.();
    told = true;
    // The timer rejects with an error of its own; what was promised is the signal's reason.
    await delay(POLL_MS, undefined, signal && { signal }).catch(() => signal?.throwIfAborted());
  }
  return hold(path, holder);
}

async function create(path: string, holder: Holder): Promise<boolean> {
  try {
    const handle = await open(path, 'wx');
    held.add(holder.id);
    await handle.writeFile(JSON.stringify(holder)).finally(() => handle.close());
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
    if (parseHolder(await readFile(path, 'utf8'))?.id !== holder.id) throw new Error('the lock has another holder');
    await utimes(path, now, now);
  };
  const heartbeat = setInterval(() => void beat().catch((cause) => lost.abort(cause)), HEARTBEAT_MS);
  heartbeat.unref();
  return {
    lost: lost.signal,
    release: async () => {
      clearInterval(heartbeat);
      held.delete(holder.id);
      const current = await readFile(path, 'utf8').catch(() => '');
      if (parseHolder(current)?.id === holder.id) await rm(path, { force: true });
    },
  };
}

function parseHolder(text: string): Holder | undefined {
  try {
    return JSON.parse(text) as Holder;
  } catch {
    // Being written at this moment, or cut short by a crash.
    return undefined;
  }
}

/** The lock file's content when its holder is gone; `undefined` while it lives or when there is no file any more. */
async function staleContent(path: string): Promise<string | undefined> {
  try {
    const [content, { mtimeMs }] = await Promise.all([readFile(path, 'utf8'), stat(path)]);
    const holder = parseHolder(content);
    const ageMs = Date.now() - mtimeMs;
    const gone = holder === undefined ? ageMs > NAMELESS_MS : holder.host === hostname() && !lives(holder);
    return gone || ageMs > STALE_MS ? content : undefined;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

function lives(holder: Holder): boolean {
  return holder.process === process.pid ? held.has(holder.id) : isProcessAlive(holder.process);
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

/**
 * Removes a stale lock; false when someone else is at it. A guard file lets one process at a time look again and
 * remove, or the second of two could remove the lock that the first has just made anew.
 */
async function takeAway(path: string, stale: string): Promise<boolean> {
  const guard = `${path}.takeover`;
  try {
    await (await open(guard, 'wx')).close();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    const since = await stat(guard)
      .then(({ mtimeMs }) => mtimeMs)
      .catch(() => Date.now());
    // Left behind by a crash in the middle of a takeover.
    if (Date.now() - since > STALE_MS) await rm(guard, { force: true });
    return false;
  }
  try {
    if ((await readFile(path, 'utf8').catch(() => '')) === stale) await rm(path, { force: true });
    return true;
  } finally {
    await rm(guard, { force: true });
  }
}
