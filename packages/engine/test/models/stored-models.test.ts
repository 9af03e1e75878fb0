import { access, mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { acquireFileLock } from '../../src/models/file-lock.js';
import { listModels, removeModel } from '../../src/models/stored-models.js';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-Q8_0-models-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

async function store(path: string, bytes: number): Promise<string> {
  const file = join(folder, path);
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, Buffer.alloc(bytes));
  return file;
}

const remove = (spec: string) => removeModel(spec, { cacheDir: folder });

describe('the list of downloaded models', () => {
  it('is empty without a folder', async () => {
    expect(await listModels(join(folder, 'none'))).toEqual([]);
  });

  it('names each model as --model takes it, with all parts of one in one line', async () => {
    await store('hub/org--two--repo/main/sub/T-Q4_K_M.gguf', 1_000);
    await store('hub/org--repo/refs%2Fpr%2F1/T.gguf', 10);
    await store('hub/org--repo/main/Big-00001-of-00002.gguf', 5);
    await store('hub/org--repo/main/Big-00002-of-00002.gguf', 6);
    await store('https/host%3A8443/a b/T.gguf', 7);
    await store('http/host/U.GGUF', 8);
    await store('hub/org--repo/main/notes.txt', 1);
    await store('fingerprints/0.json', 1);
    const models = await listModels(folder);
    expect(models.map(({ model, bytes, complete }) => [model, bytes, complete])).toEqual([
      ['hf:org/repo/Big-00001-of-00002.gguf', 11, true],
      ['hf:org/repo@refs%2Fpr%2F1/T.gguf', 10, true],
      ['hf:org/two--repo/sub/T-Q4_K_M.gguf', 1_000, true],
      ['http://host/U.GGUF', 8, true],
      ['https://host:8443/a%20b/T.gguf', 7, true],
    ]);
    expect(models[0]!.path).toBe(join(folder, 'hub/org--repo/main/Big-00001-of-00002.gguf'));
  });

  it('says where a download or a part of one is missing', async () => {
    await store('hub/org--repo/main/T.gguf.partial', 3);
    await store('hub/org--repo/main/T.gguf.partial.json', 1);
    await store('hub/org--repo/main/Big-00001-of-00003.gguf', 5);
    await store('hub/org--repo/main/Big-00002-of-00003.gguf.partial', 2);
    expect((await listModels(folder)).map(({ model, bytes, complete }) => [model, bytes, complete])).toEqual([
      ['hf:org/repo/Big-00001-of-00003.gguf', 7, false],
      ['hf:org/repo/T.gguf', 3, false],
    ]);
  });
});

describe('the removal of a model', () => {
  it('takes every name of the list, and leaves the others', async () => {
    await store('hub/org--repo/refs%2Fpr%2F1/T.gguf', 10);
    await store('hub/org--repo/main/T.gguf', 10);
    await store('https/host%3A8443/a b/T.gguf', 7);
    await store('http/host/U.gguf.partial', 8);
    await store('http/host/U.gguf.partial.json', 8);
    let left = await listModels(folder);
    while (left.length > 0) {
      const [first, ...rest] = left;
      expect(await remove(first!.model)).toEqual(first);
      left = await listModels(folder);
      expect(left).toEqual(rest);
    }
    expect((await readdir(folder, { recursive: true })).filter((file) => /\.(partial|lock|json)/.test(file))).toEqual(
      [],
    );
  });

  it.each([
    'hf:org/repo',
    'hf:org/repo:q8_0',
    'hf:org/repo/Big-Q8_0-00002-of-00002.gguf',
    'https://huggingface.co/org/repo',
    'https://huggingface.co/org/repo/blob/main/Big-Q8_0-00002-of-00002.gguf',
  ])('takes all parts of a split model by %s', async (spec) => {
    await store('hub/org--repo/main/Big-Q8_0-00001-of-00002.gguf', 5);
    await store('hub/org--repo/main/Big-Q8_0-00002-of-00002.gguf', 6);
    await store('hub/org--repo2/main/Big-Q8_0.gguf', 6);
    expect((await remove(spec)).bytes).toBe(11);
    expect((await listModels(folder)).map(({ model }) => model)).toEqual(['hf:org/repo2/Big-Q8_0.gguf']);
  });

  it('takes the path of a model in the folder', async () => {
    const path = await store('hub/org--repo/main/T.gguf', 10);
    expect(await remove(path)).toMatchObject({ model: 'hf:org/repo/T.gguf' });
  });

  it('is refused where a name means several models, and names them', async () => {
    await store('hub/org--repo/main/T-Q4_K_M.gguf', 10);
    await store('hub/org--repo/main/T-F16.gguf', 10);
    await expect(remove('hf:org/repo')).rejects.toMatchObject({
      code: 'WARMPATH_USAGE',
      message: expect.stringContaining('several models: hf:org/repo/T-F16.gguf, hf:org/repo/T-Q4_K_M.gguf'),
    });
    expect(await listModels(folder)).toHaveLength(2);
  });

  it.each([
    'demo',
    '',
    'hf:org/repo',
    'hf:org/other/T.gguf',
    'hf:org/repo@v1/T.gguf',
    'hf:org/repo:Q8_0',
    'https://host/T.gguf',
    '/etc/passwd',
    '.',
  ])('is refused where nothing is to be removed: %j', async (spec) => {
    if (spec !== 'hf:org/repo') await store('hub/org--repo/main/T.gguf', 10);
    const refusal = { code: 'WARMPATH_USAGE', path: 'model', message: expect.stringContaining('was not downloaded') };
    await expect(remove(spec)).rejects.toMatchObject(refusal);
  });

  it('touches nothing outside the downloads, whatever the name', async () => {
    const outside = await store('outside.gguf', 10);
    for (const spec of [
      outside,
      'hf:../../outside.gguf',
      'hf:a/..%2F..%2Foutside.gguf',
      'https://host/../../outside.gguf',
    ]) {
      await expect(remove(spec)).rejects.toThrow(/not downloaded|hf:org\/repo/);
    }
    await access(outside);
  });

  it('waits for a process that downloads the model', async () => {
    const path = await store('hub/org--repo/main/T.gguf.partial', 10);
    const lock = await acquireFileLock(path.replace('.partial', '.lock'));
    let waited = 0;
    const onWait = () => {
      waited += 1;
      void lock.release();
    };
    await removeModel('hf:org/repo/T.gguf', { cacheDir: folder, onWait });
    expect([waited, await listModels(folder)]).toEqual([1, []]);
  });
});
