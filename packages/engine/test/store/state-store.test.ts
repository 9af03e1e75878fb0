import { mkdir, mkdtemp, open, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { StateStore, type StateStoreOptions } from '../../src/store/state-store.js';
import type { StateRecord } from '../../src/store/stored-state.js';

const IDENTITY = { model: 'a'.repeat(64), library: 'llama.cpp v0.5.0', cells: 'f16/f16' };

function record(tokens: readonly number[], from = 0, salt = ''): StateRecord {
  const state = Uint8Array.from({ length: 16 * (tokens.length - from) }, (_, index) => (index * 7 + from) % 256);
  return { salt, tokens, from, state, checksum: crc32(state), uses: tokens.length };
}

describe('the store of states', () => {
  let directory: string;
  let warnings: string[];
  let open_: StateStore[];

  beforeEach(async () => {
    directory = join(await mkdtemp(join(tmpdir(), 'warmpath-store-')), 'states');
    warnings = [];
    open_ = [];
  });
  afterEach(async () => {
    vi.restoreAllMocks();
    await Promise.all(open_.map((store) => store.close()));
    await rm(join(directory, '..'), { recursive: true });
  });

  async function start(options: Partial<StateStoreOptions> = {}): ReturnType<typeof StateStore.open> {
    const opened = await StateStore.open({
      directory,
      capacityBytes: 2 ** 20,
      identity: IDENTITY,
      clock: () => 0,
      onWarning: (message) => warnings.push(message),
      ...options,
    });
    open_.push(opened.store);
    return opened;
  }

  async function close(store: StateStore): Promise<void> {
    open_.splice(open_.indexOf(store), 1);
    await store.close();
  }

  const kvFiles = async (): Promise<string[]> => (await readdir(directory)).filter((name) => name.endsWith('.kv'));

  it('gives back after a restart what was put in, token for token and byte for byte', async () => {
    const tokens = fc.array(fc.integer({ min: 0, max: 2 ** 31 - 1 }), { minLength: 1, maxLength: 40 });
    await fc.assert(
      fc.asyncProperty(tokens, fc.nat(), fc.string({ unit: 'grapheme' }), async (path, place, salt) => {
        const put = record(path, place % path.length, salt);
        const { store } = await start();
        const size = store.sizeOf(put);
        const file = store.put(put);
        expect(file.bytes).toBe(size);
        await close(store);

        const { store: next, entries } = await start();
        expect(next.stats.usedBytes).toBe(size);
        expect(entries).toMatchObject([{ salt, tokens: path, file: { from: put.from, to: path.length, bytes: size } }]);
        expect(await next.read(entries[0]!.file)).toEqual(put.state);
        next.remove(entries[0]!.file);
        expect(next.stats.usedBytes).toBe(0);
        await close(next);
      }),
      { seed: 11, numRuns: 30 },
    );
    expect(await kvFiles()).toEqual([]);
  });

  it('never takes a file for what it was when any bit of it has changed, but for the number of its uses', async () => {
    const { store } = await start();
    store.put(record([5, 6, 7, 8], 1, 'tenant'));
    await close(store);
    const [name] = await kvFiles();
    const bytes = await readFile(join(directory, name!));
    await fc.assert(
      fc.asyncProperty(fc.nat({ max: bytes.length - 1 }), fc.nat({ max: 7 }), async (place, bit) => {
        const changed = Uint8Array.from(bytes);
        changed[place]! ^= 1 << bit;
        await writeFile(join(directory, name!), changed);
        const { store: next, entries } = await start();
        const state = entries[0] === undefined ? undefined : await next.read(entries[0].file);
        expect(state).toBeUndefined();
        expect(next.stats.refusedFiles).toBe(1 - entries.length);
        await close(next);
      }),
      { seed: 12, numRuns: 120 },
    );
  });

  it('removes files that were cut short, and leaves alone what is not its own', async () => {
    const { store } = await start();
    store.put(record([5, 6, 7, 8]));
    await close(store);
    const [name] = await kvFiles();
    const bytes = await readFile(join(directory, name!));
    for (const length of [0, 10, 40, 60, bytes.length - 1]) {
      await writeFile(join(directory, `${length}.kv`), bytes.subarray(0, length));
    }
    await writeFile(join(directory, 'unfinished.kv.tmp'), bytes);
    await writeFile(join(directory, 'notes.txt'), 'mine');
    const { store: next, entries } = await start();
    expect(entries).toHaveLength(1);
    expect(next.stats).toMatchObject({ refusedFiles: 6, files: 1 });
    expect((await readdir(directory)).sort()).toEqual(['.lock', name, 'notes.txt'].sort());
  });

  it.each([
    { ...IDENTITY, model: 'b'.repeat(64) },
    { ...IDENTITY, library: 'llama.cpp v0.6.0' },
    { ...IDENTITY, cells: 'q8_0/q8_0' },
  ])('refuses what another model, library or kind of cells has left: %j', async (identity) => {
    const { store } = await start();
    store.put(record([1, 2, 3]));
    await close(store);
    const { store: next, entries } = await start({ identity });
    expect(entries).toEqual([]);
    expect(next.stats).toMatchObject({ refusedFiles: 1, usedBytes: 0 });
    expect(await kvFiles()).toEqual([]);
  });

  it('says last what was used last, also after a restart', async () => {
    const { store } = await start();
    const files = [1, 2, 3].map((token) => store.put(record([token])));
    await store.settled();
    const yesterday = new Date(Date.now() - 86_400_000);
    for (const [index, { name }] of files.entries()) {
      const handle = await open(join(directory, name), 'r+');
      await handle.utimes(yesterday, new Date(yesterday.getTime() + index * 1000));
      await handle.close();
    }
    await store.read(files[0]!);
    await close(store);
    const { entries } = await start();
    expect(entries.map(({ tokens }) => tokens[0])).toEqual([2, 3, 1]);
  });

  it('reads what still waits to be written, and writes nothing that was removed meanwhile', async () => {
    const { store } = await start();
    const put = record([1, 2, 3]);
    const file = store.put(put);
    expect(store.stats.pendingBytes).toBe(file.bytes);
    expect(await store.read(file)).toEqual(put.state);
    const gone = store.put(record([4]));
    store.remove(gone);
    await store.settled();
    expect(await kvFiles()).toEqual([file.name]);
    expect(store.stats).toMatchObject({ files: 1, usedBytes: file.bytes, pendingBytes: 0 });
    expect(await store.read(gone)).toBeUndefined();
  });

  it('takes nothing for a minute when the disk is full, warns once, and still reads', async () => {
    let nowMs = 0;
    const { store } = await start({ clock: () => nowMs });
    const kept = store.put(record([1]));
    await store.settled();
    const handle = await open(directory, 'r');
    const fails = vi.spyOn(Object.getPrototypeOf(handle) as typeof handle, 'writeFile');
    await handle.close();
    fails.mockRejectedValue(Object.assign(new Error('no space left'), { code: 'ENOSPC' }));
    const full = store.put(record([2]));
    await store.settled();
    expect(await store.read(full)).toBeUndefined();
    store.remove(full);
    await store.settled();
    expect(store.stats).toMatchObject({ files: 1, usedBytes: kept.bytes, pendingBytes: 0 });
    expect(warnings).toEqual([expect.stringContaining('ENOSPC')]);
    expect((await readdir(directory)).sort()).toEqual(['.lock', kept.name].sort());
    expect(store.accepts(10)).toBe(false);
    expect(await store.read(kept)).toEqual(record([1]).state);

    fails.mockRestore();
    nowMs = 60_000;
    expect(store.accepts(10)).toBe(true);
    store.put(record([3]));
    await store.settled();
    expect(store.stats).toMatchObject({ files: 2 });
  });

  it('takes no more than may wait in memory, but always one', async () => {
    const { store } = await start();
    const most = 64 * 2 ** 20;
    expect(store.accepts(2 * most)).toBe(true);
    store.put(record([1]));
    expect(store.accepts(most)).toBe(false);
    await store.settled();
    expect(store.accepts(most)).toBe(true);
  });

  it('keeps what it holds to its owner', async () => {
    const { store } = await start();
    const file = store.put(record([1]));
    await store.settled();
    expect((await stat(directory)).mode & 0o777).toBe(0o700);
    expect((await stat(join(directory, file.name))).mode & 0o777).toBe(0o600);
  });

  it('refuses a folder that another store has, and one that is none', async () => {
    await start();
    await expect(start()).rejects.toMatchObject({ code: 'WARMPATH_CONFIG_INVALID' });
    await mkdir(join(directory, 'inner'));
    await writeFile(join(directory, 'file'), '');
    await expect(start({ directory: join(directory, 'file') })).rejects.toMatchObject({
      code: 'WARMPATH_CONFIG_INVALID',
    });
  });
});
