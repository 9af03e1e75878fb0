import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm, utimes, writeFile } from 'node:fs/promises';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { acquireFileLock } from '../../src/models/file-lock.js';

let folder: string;
let path: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-lock-'));
  path = join(folder, 'file.lock');
});
afterEach(() => rm(folder, { recursive: true, force: true }));

/** The number of a process that has ended. */
async function deadProcess(): Promise<number> {
  const child = spawn(process.execPath, ['--version'], { stdio: 'ignore' });
  await once(child, 'exit');
  return child.pid!;
}

async function abandon(holder: object | string, ageMs = 0): Promise<void> {
  await writeFile(path, typeof holder === 'string' ? holder : JSON.stringify(holder));
  const time = new Date(Date.now() - ageMs);
  await utimes(path, time, time);
}

/** Resolves to 'waits' when the lock has another holder, else to 'held'. */
async function tryLock(): Promise<'held' | 'waits'> {
  const stop = new AbortController();
  try {
    const lock = await acquireFileLock(path, { signal: stop.signal, onWait: () => stop.abort() });
    await lock.release();
    return 'held';
  } catch (error) {
    if (!stop.signal.aborted) throw error;
    return 'waits';
  }
}

describe('a lock file', () => {
  it('has one holder at a time, and leaves nothing behind', async () => {
    let inside = 0;
    let most = 0;
    await Promise.all(
      Array.from({ length: 6 }, async () => {
        const lock = await acquireFileLock(path);
        most = Math.max(most, ++inside);
        await readdir(folder);
        inside--;
        await lock.release();
      }),
    );
    expect(most).toBe(1);
    expect(await readdir(folder)).toStrictEqual([]);
  });

  it('has one holder at a time also when several take a stale one over at once', async () => {
    let inside = 0;
    let most = 0;
    for (let round = 0; round < 6; round++) {
      await abandon({ process: 1, host: 'elsewhere', id: `stale ${round}` }, 90_000);
      await Promise.all(
        Array.from({ length: 3 }, async () => {
          const lock = await acquireFileLock(path);
          most = Math.max(most, ++inside);
          await readdir(folder);
          inside--;
          await lock.release();
        }),
      );
    }
    expect(most).toBe(1);
    expect(await readdir(folder)).toStrictEqual([]);
  });

  it('makes a second one wait until it is released', async () => {
    const lock = await acquireFileLock(path);
    expect(await tryLock()).toBe('waits');
    await lock.release();
    expect(await tryLock()).toBe('held');
  });

  it('is taken over at once from a process of this host that has died', async () => {
    await abandon({ process: await deadProcess(), host: hostname(), id: 'x' });
    expect(await tryLock()).toBe('held');
    expect(await readdir(folder)).toStrictEqual([]);
  });

  it('is taken over from an earlier process that had the number of this one', async () => {
    await abandon({ process: process.pid, host: hostname(), id: 'not held here' });
    expect(await tryLock()).toBe('held');
  });

  it('is left to a process of another host until its heartbeat has been missing for a minute', async () => {
    const holder = { process: 1, host: `not-${hostname()}`, id: 'x' };
    await abandon(holder, 30_000);
    expect(await tryLock()).toBe('waits');
    await abandon(holder, 90_000);
    expect(await tryLock()).toBe('held');
  });

  it('is left alone while it is being written, and taken over when a crash left it so', async () => {
    await abandon('');
    expect(await tryLock()).toBe('waits');
    await abandon('{"proc', 90_000);
    expect(await tryLock()).toBe('held');
  });

  it('is not removed by a holder from whom it was taken', async () => {
    const lock = await acquireFileLock(path);
    await abandon({ process: 1, host: 'elsewhere', id: 'the new holder' });
    await lock.release();
    expect(await readFile(path, 'utf8')).toContain('the new holder');
  });

  it('gives the signal’s reason when the waiting is aborted', async () => {
    const lock = await acquireFileLock(path);
    const stop = new AbortController();
    const reason = new Error('enough');
    await expect(acquireFileLock(path, { signal: stop.signal, onWait: () => stop.abort(reason) })).rejects.toBe(reason);
    await lock.release();
  });

  it('cannot be had where there is no folder', async () => {
    await expect(acquireFileLock(join(folder, 'nowhere', 'x.lock'))).rejects.toMatchObject({ code: 'ENOENT' });
  });
});
