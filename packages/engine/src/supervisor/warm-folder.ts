import { hash } from 'node:crypto';
import { mkdtemp, readdir, rm, stat, statfs } from 'node:fs/promises';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { isProcessAlive } from '../models/file-lock.js';
import type { WarmPlace } from '../server.js';

/** Where Linux keeps files in memory. */
const MEMORY_FILES = '/dev/shm';
const PREFIX = 'warmpath-warm';

/**
 * Makes a folder for what a worker leaves to the next one, in memory where the system has files in memory and else
 * among its temporary files. It lives as long as this process: what a front that was killed has left is removed by the
 * next one.
 *
 * @param mostBytes Most bytes of what it will hold; half of what is free is taken at most, for containers have little.
 */
export async function createWarmFolder(mostBytes: number): Promise<WarmPlace & { remove(): Promise<void> }> {
  const parent = (await isFolder(MEMORY_FILES)) ? MEMORY_FILES : tmpdir();
  await removeAbandoned(parent);
  const { bavail, bsize } = await statfs(parent);
  const path = await mkdtemp(join(parent, `${PREFIX}-${hostKey()}-${process.pid}-`));
  const capacityBytes = Math.min(mostBytes, Math.floor((bavail * bsize) / 2));
  return { path, capacityBytes, remove: () => rm(path, { recursive: true, force: true }) };
}

/** Removes the folders of processes of this host that are gone. Those of other users stay, and nobody hears of it. */
async function removeAbandoned(parent: string): Promise<void> {
  const own = new RegExp(`^${PREFIX}-${hostKey()}-(\\d+)-`);
  for (const name of await readdir(parent)) {
    const pid = own.exec(name)?.[1];
    if (pid !== undefined && !isProcessAlive(Number(pid))) {
      await rm(join(parent, name), { recursive: true, force: true }).catch(() => undefined);
    }
  }
}

/** Containers may share memory files and not process numbers; their host names differ. */
function hostKey(): string {
  return hash('sha256', hostname()).slice(0, 8);
}

function isFolder(path: string): Promise<boolean> {
  return stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  );
}
