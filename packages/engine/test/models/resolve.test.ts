import { access, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join, relative } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { cacheFolder } from '../../src/models/cache-folder.js';
import { resolveModel } from '../../src/models/resolve.js';
import { FakeHub } from './hub-server.js';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-resolve-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));
afterEach(() => vi.unstubAllEnvs());

describe('the demo model', () => {
  it.each([undefined, 'demo'])('is meant by %s, and is in this package', async (spec) => {
    const model = await resolveModel(spec);
    expect(model).toMatchObject({ kind: 'demo', name: 'warmpath-tiny' });
    expect(basename(model.path)).toBe('warmpath-tiny.gguf');
    expect(model.notice).toMatch(/tiny demonstration model.*no general model/);
    await access(model.path);
  });

  it('is refused when it is missing', async () => {
    const demoPath = join(folder, 'nowhere.gguf');
    await expect(resolveModel('demo', { demoPath })).rejects.toMatchObject({
      code: 'WARMPATH_MODEL_FILE',
      path: demoPath,
    });
  });

  it('is refused when it is damaged', async () => {
    const demoPath = join(folder, 'pointer.gguf');
    await writeFile(demoPath, 'version https://git-lfs.github.com/spec/v1\n');
    await expect(resolveModel(undefined, { demoPath })).rejects.toMatchObject({ code: 'WARMPATH_MODEL_FILE' });
  });
});

describe('a path', () => {
  it('is checked, made absolute, and named after the file', async () => {
    const { path: demo } = await resolveModel('demo');
    const link = join(folder, 'My-Model.Q8_0.gguf');
    await symlink(demo, link);
    const model = await resolveModel(relative(process.cwd(), link));
    expect(model).toMatchObject({ path: link, name: 'My-Model.Q8_0' });
  });

  it('is a file of its own kind, unless its header says that it is the demo model', async () => {
    const demo = await readFile((await resolveModel('demo')).path);
    const [copy, other] = [join(folder, 'copy.gguf'), join(folder, 'warmpath-tiny.gguf')];
    await writeFile(copy, demo);
    // The same length, so that the header stays right.
    await writeFile(other, Buffer.from(demo.toString('latin1').replace('warmpath-tiny', 'another-model'), 'latin1'));
    expect(await resolveModel(copy)).toMatchObject({ name: 'copy', kind: 'demo', notice: expect.any(String) });
    expect(await resolveModel(other)).toStrictEqual({ path: other, name: 'warmpath-tiny', kind: 'file' });
  });

  it('needs no ending when the file is there', async () => {
    const { path: demo } = await resolveModel('demo');
    const blob = join(folder, 'sha256-0123');
    await symlink(demo, blob);
    expect((await resolveModel(blob)).name).toBe('sha256-0123');
  });

  it.each([
    ['./nowhere.gguf', 'there is no such file'],
    ['nowhere.gguf', 'there is no such file'],
    ['nowhere/model', 'there is no such file'],
    [tmpdir(), 'this is a folder'],
    ['package.json/x.gguf', 'there is no such file'],
    ['package.json', 'JSON'],
  ])('is refused with what is wrong: %s', async (spec, detail) => {
    await expect(resolveModel(spec)).rejects.toMatchObject({
      code: 'WARMPATH_MODEL_FILE',
      path: spec,
      message: expect.stringContaining(detail),
    });
  });
});

describe('a name that means nothing', () => {
  it.each([
    '',
    'llama3',
    'Demo',
    'random:1m',
    'ollama:llama3',
    'https://huggingface.co/org/repo/resolve/main/model.gguf',
  ])('is refused with the accepted forms: %j', async (spec) => {
    await expect(resolveModel(spec)).rejects.toMatchObject({
      code: 'WARMPATH_MODEL_SPEC',
      path: 'model',
      message: expect.stringMatching(/path to a \.gguf file, hf:org\/repo\/file\.gguf .*or demo/),
    });
  });

  it('is refused where it belongs: an hf form that is wrong', async () => {
    await expect(resolveModel('hf:model.gguf')).rejects.toMatchObject({
      code: 'WARMPATH_MODEL_SPEC',
      path: 'hf:model.gguf',
    });
  });
});

describe('a model on the hub', () => {
  it('is chosen by its quantisation, and not asked for again when it is there', async () => {
    const { path: demo } = await resolveModel('demo');
    const hub = new FakeHub(await readFile(demo));
    await hub.start();
    hub.behaviour.files = [
      'README.md',
      'mmproj-T-F16.gguf',
      'T-F16.gguf',
      'T-IQ4_XS.gguf',
      'T-Q4_K_M.gguf',
      'T-UD-Q2_K_XL.gguf',
    ];
    try {
      vi.stubEnv('no_proxy', '127.0.0.1');
      const options = { cacheDir: folder, hubUrl: hub.url };
      const nameOf = async (spec: string) => (await resolveModel(spec, options)).name;
      expect(await nameOf('hf:org/repo')).toBe('T-Q4_K_M');
      expect(await nameOf('hf:org/repo:f16')).toBe('T-F16');
      expect(await nameOf('hf:org/repo:UD-Q2_K_XL')).toBe('T-UD-Q2_K_XL');
      await expect(nameOf('hf:org/repo:Q8_0')).rejects.toMatchObject({
        code: 'WARMPATH_MODEL_SPEC',
        message: expect.stringContaining('the repository has T-F16.gguf, T-IQ4_XS.gguf, T-Q4_K_M.gguf'),
      });
      await hub.stop();
      expect(await nameOf('hf:org/repo')).toBe('T-Q4_K_M');
      await expect(nameOf('hf:org/other')).rejects.toMatchObject({ code: 'WARMPATH_DOWNLOAD_FAILED' });
    } finally {
      await hub.stop().catch(() => undefined);
    }
  });

  it('is downloaded in all its parts where it is split, and named without their numbers', async () => {
    const { path: demo } = await resolveModel('demo');
    const hub = new FakeHub(await readFile(demo));
    await hub.start();
    try {
      vi.stubEnv('no_proxy', '127.0.0.1');
      const spec = 'hf:org/repo/Q4/Tiny-00002-of-00002.gguf';
      const { path, name } = await resolveModel(spec, { cacheDir: folder, hubUrl: hub.url });
      expect(name).toBe('Tiny');
      expect((await resolveModel(path)).name).toBe('Tiny');
      const home = join(folder, 'hub', 'org--repo', 'main', 'Q4');
      expect(path).toBe(join(home, 'Tiny-00001-of-00002.gguf'));
      const parts = ['Tiny-00001-of-00002.gguf', 'Tiny-00002-of-00002.gguf'];
      expect((await readdir(home)).toSorted()).toEqual(parts);
      const asked = hub.requests.filter(({ server }) => server === 'hub').map(({ path: url }) => url);
      expect(asked).toEqual(parts.map((part) => `/org/repo/resolve/main/Q4/${part}`));
    } finally {
      await hub.stop();
    }
  });

  it('is downloaded from the endpoint and with the token of the environment, and named after its file', async () => {
    const { path: demo } = await resolveModel('demo');
    const hub = new FakeHub(await readFile(demo));
    await hub.start();
    try {
      vi.stubEnv('no_proxy', '127.0.0.1');
      vi.stubEnv('HF_ENDPOINT', hub.url);
      vi.stubEnv('HF_TOKEN', ' hf_from_environment\n');
      const model = await resolveModel('hf:org/repo/Tiny.Q8_0.gguf', { cacheDir: folder });
      expect(model).toStrictEqual({
        path: join(folder, 'hub', 'org--repo', 'main', 'Tiny.Q8_0.gguf'),
        name: 'Tiny.Q8_0',
        kind: 'hub',
      });
      expect(hub.requests.map(({ authorization }) => authorization)).toStrictEqual([
        'Bearer hf_from_environment',
        undefined,
      ]);
    } finally {
      await hub.stop();
    }
  });
});

describe('the cache folder', () => {
  it.each([
    [{ WARMPATH_CACHE_DIR: '/own', XDG_CACHE_HOME: '/xdg' }, '/own'],
    [{ WARMPATH_CACHE_DIR: '', XDG_CACHE_HOME: '/xdg' }, '/xdg/warmpath'],
    [{ XDG_CACHE_HOME: 'relative' }, '/home/user/.cache/warmpath'],
    [{}, '/home/user/.cache/warmpath'],
  ])('follows %j', (environment, expected) => {
    expect(cacheFolder(environment, '/home/user')).toBe(expected);
  });
});
