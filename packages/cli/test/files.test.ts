import { appendFile, lstat, mkdtemp, readdir, readFile, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Journal } from '../src/files/journal.js';
import { writeWhole } from '../src/files/write-whole.js';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-files-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

describe('writeWhole', () => {
  it('replaces a file, and leaves nothing else behind', async () => {
    const file = join(folder, 'report.html');
    await writeWhole(file, 'one', '--report');
    await writeWhole(file, 'two', '--report');
    expect(await readFile(file, 'utf8')).toBe('two');
    expect(await readdir(folder)).toEqual(['report.html']);
  });

  it('writes through a link, which stays one', async () => {
    const file = join(folder, 'link');
    await writeFile(join(folder, 'real'), 'old');
    await symlink('real', file);
    await writeWhole(file, 'new', '--report');
    expect((await lstat(file)).isSymbolicLink()).toBe(true);
    expect(await readFile(join(folder, 'real'), 'utf8')).toBe('new');
  });

  it('writes to what is no plain file as it is', async () => {
    await writeWhole('/dev/null', 'anything', '--report');
    expect((await lstat('/dev/null')).isCharacterDevice()).toBe(true);
  });

  it('says what cannot be written', async () => {
    const file = join(folder, 'none', 'report.html');
    await expect(writeWhole(file, '', '--report')).rejects.toMatchObject({ code: 'WARMPATH_USAGE', path: '--report' });
    await expect(writeWhole(folder, '', '--report')).rejects.toMatchObject({ code: 'WARMPATH_USAGE' });
    expect(await readdir(folder)).toEqual([]);
  });
});

describe('Journal', () => {
  const settings = { policies: ['a', 'b'], queue: 8, load: undefined };
  const open = (changes = {}) => Journal.open<{ n: number }>(join(folder, 'state.jsonl'), { ...settings, ...changes });

  async function write(...steps: number[]) {
    const journal = await open();
    for (const n of steps) await journal.append({ n });
    await journal.close();
    return journal.before;
  }

  it('holds what every run before wrote', async () => {
    expect(await write(1, 2)).toEqual([]);
    expect(await write(3)).toEqual([{ n: 1 }, { n: 2 }]);
    expect(await write()).toEqual([{ n: 1 }, { n: 2 }, { n: 3 }]);
  });

  it('loses no whole step wherever the last write was cut, and can be written to again', async () => {
    await write(1, 22, 333);
    const file = join(folder, 'state.jsonl');
    const whole = await readFile(file);
    const head = whole.indexOf('\n') + 1;
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: head, max: whole.length }), async (length) => {
        await writeFile(file, whole);
        await truncate(file, length);
        const kept = whole.subarray(head, length).toString().split('\n').length - 1;
        expect(await write(4444)).toEqual([{ n: 1 }, { n: 22 }, { n: 333 }].slice(0, kept));
        expect(await write()).toHaveLength(kept + 1);
      }),
      { seed: 7, numRuns: 40 },
    );
  });

  it('begins anew in an empty file', async () => {
    await writeFile(join(folder, 'state.jsonl'), '');
    expect(await write(1)).toEqual([]);
    expect(await write()).toEqual([{ n: 1 }]);
  });

  it('refuses other settings, and names them', async () => {
    await write(1);
    const refused = open({ queue: 0, load: 1.2, policies: ['b', 'a'] });
    await expect(refused).rejects.toMatchObject({ code: 'WARMPATH_USAGE', path: '--resume' });
    await expect(refused).rejects.toThrow(/policies \["a","b"\], not \["b","a"\]; queue 8, not 0; load none, not 1\.2/);
    expect(await write()).toEqual([{ n: 1 }]);
  });

  it.each([
    ['a file of another kind', '{"requests": []}\n{}\n'],
    ['a text', 'hello'],
    ['half a first line', '{"format":"warmpath-journal","settings":{"pol'],
  ])('refuses %s, and leaves it alone', async (_, content) => {
    const file = join(folder, 'state.jsonl');
    await writeFile(file, content);
    await expect(open()).rejects.toMatchObject({ code: 'WARMPATH_USAGE', path: '--resume' });
    expect(await readFile(file, 'utf8')).toBe(content);
  });

  it('names a damaged line', async () => {
    await write(1);
    await appendFile(join(folder, 'state.jsonl'), '{"n":\n{"n":3}\n');
    await expect(open()).rejects.toThrow(/line 3/);
  });

  it('says what cannot be read or written', async () => {
    await expect(Journal.open(folder, settings)).rejects.toMatchObject({ code: 'WARMPATH_USAGE', path: '--resume' });
    await expect(Journal.open(join(folder, 'no', 'file'), settings)).rejects.toMatchObject({ code: 'WARMPATH_USAGE' });
  });
});
