import { execFile } from 'node:child_process';
import { copyFile, cp, mkdir, mkdtemp, rename, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
// The built package: one database is opened by one copy of a library.
import { Collections } from '../dist/index.js';
import { allStages } from './staged-retriever.cases.ts';

const run = promisify(execFile);
const UNREADABLE = 'WARMPATH_COLLECTION_UNREADABLE';

let root: string;
/** Two collections that are whole. */
let whole: string;
let folder: string;
let file: string;
let collections: Collections;

beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), 'warmpath-damaged-'));
  whole = join(root, 'whole');
  const made = new Collections(whole);
  const damaged = await made.getOrMake('default', 'damaged');
  for (let batch = 0; batch < 4; batch++) {
    const documents = Array.from({ length: 40 }, (_, at) => ({
      id: `d${40 * batch + at}`,
      content: `word${at} and others. `.repeat(1 + at * at),
    }));
    await damaged.put(documents);
    await damaged.remove([`d${40 * batch}`, `d${40 * batch + 1}`, `d${40 * batch + 39}`]);
  }
  await (await made.getOrMake('default', 'other')).put([{ id: 'velka', content: 'The weight of Velka is 42 kg.' }]);
  await made.close();
});
afterAll(() => rm(root, { recursive: true, force: true }));

beforeEach(async () => {
  folder = join(await mkdtemp(join(root, 'case-')), 'collections');
  await cp(whole, folder, { recursive: true });
  file = join(folder, 'default', 'damaged', 'data.mdb');
  collections = new Collections(folder);
});
afterEach(() => collections.close());

const otherAnswers = async () => {
  const { retriever } = await collections.get('default', 'other');
  expect((await allStages(retriever, 'Velka', 1)).at(-1)!.candidates).toHaveLength(1);
};

describe('a collection whose file is damaged', () => {
  it.each([
    ['cut at a page', 60],
    ['cut anywhere', 40],
    ['pages of zeros', 40],
    ['a page in the place of another', 40],
    ['flipped bits at the beginning of a page', 80],
    ['random bytes', 80],
  ])('is an error of its own, and does not end the process: %s', async (kind, full) => {
    const count = runs(full);
    const script = fileURLToPath(new URL('./damage-process.js', import.meta.url));
    const { stdout } = await run(process.execPath, [script, whole, folder, kind, String(count)]);
    const outcomes = stdout.trimEnd().split('\n');
    expect(outcomes).toHaveLength(count);
    const known = outcomes.filter((line) => line.endsWith(UNREADABLE) || line.endsWith(': ok'));
    expect(known).toEqual(outcomes);
    expect(outcomes.filter((line) => line.endsWith(UNREADABLE)).length).toBeGreaterThan(count / 8);
  });

  const empty = (path: string) => writeFile(path, '');
  it.each<[string, RegExp, (path: string) => Promise<unknown>]>([
    ['empty', /data\.mdb is empty/, empty],
    ['a folder', /data\.mdb is not a file/, (path) => rm(path).then(() => mkdir(path))],
    ['a pipe', /data\.mdb is not a file/, (path) => rm(path).then(() => run('mkfifo', [path]))],
    ['a link', /data\.mdb is not a file/, (path) => rename(path, `${path}.x`).then(() => symlink(`${path}.x`, path))],
    ['a link to nothing', /data\.mdb is not a file/, (path) => rm(path).then(() => symlink('nothing', path))],
    ['a file of another program', /data\.mdb is no database/, (path) => copyFile(process.execPath, path)],
    ['short', /data\.mdb is no database/, (path) => writeFile(path, 'x')],
  ])('says what is wrong, whose it is and what to do where it is %s', async (_, reason, damage) => {
    await damage(file);
    for (const open of [
      () => collections.get('default', 'damaged'),
      () => collections.getOrMake('default', 'damaged'),
    ]) {
      const error = await open().then(
        () => undefined,
        (thrown: { code: string; message: string; remedy: string }) => thrown,
      );
      expect(error).toMatchObject({ code: UNREADABLE, message: expect.stringMatching(reason) as string });
      expect(error!.message).toContain('the collection in default/damaged');
      expect(error!.remedy).toMatch(/ingest again/);
      expect(error!.message).not.toContain(root);
    }
    await otherAnswers();
  });

  it('answers where its lock file is missing, empty or of another program, and not where that is a folder', async () => {
    const lock = join(folder, 'default', 'damaged', 'lock.mdb');
    for (const damage of [() => Promise.resolve(), () => empty(lock), () => copyFile(process.execPath, lock)]) {
      await rm(lock, { force: true });
      await damage();
      const collection = await collections.get('default', 'damaged');
      expect((await allStages(collection.retriever, 'word12', 3)).at(-1)!.candidates.length).toBeGreaterThan(0);
      await collections.close();
      collections = new Collections(folder);
    }
    await rm(lock);
    await mkdir(lock);
    const refused = { code: UNREADABLE, message: expect.stringContaining('lock.mdb is not a file') as string };
    await expect(collections.get('default', 'damaged')).rejects.toMatchObject(refused);
  });

  it('is an error from the next operation on where the file is cut while it is open', async () => {
    const collection = await collections.get('default', 'damaged');
    await allStages(collection.retriever, 'word12', 3);
    const { length } = [...collection.documents()];
    await truncate(file, 8_192);
    const refused = { code: UNREADABLE, message: expect.stringContaining('data.mdb was cut off') as string };
    await expect(allStages(collection.retriever, 'word12', 3)).rejects.toMatchObject(refused);
    await expect(collection.put([{ id: 'new', content: 'new' }])).rejects.toMatchObject(refused);
    expect(() => [...collection.documents()]).toThrow(expect.objectContaining(refused));
    await expect(collections.get('default', 'damaged')).rejects.toMatchObject({ code: UNREADABLE });
    await otherAnswers();
    // A backup that is put in its place is opened without a restart.
    await copyFile(join(whole, 'default', 'damaged', 'data.mdb'), `${file}.backup`);
    await rename(`${file}.backup`, file);
    expect([...(await collections.get('default', 'damaged')).documents()]).toHaveLength(length);
  });

  it('is opened once where many ask for it at the same time', async () => {
    const opened = await Promise.all(Array.from({ length: 20 }, () => collections.get('default', 'damaged')));
    expect(new Set(opened).size).toBe(1);
    const made = await Promise.all(Array.from({ length: 20 }, () => collections.getOrMake('default', 'new')));
    expect(new Set(made).size).toBe(1);
  });
});
