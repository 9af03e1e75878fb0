import { access, copyFile, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join, relative } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { cacheFolder, hubCacheFolder, hubCacheSnapshot } from '../../src/models/cache-folder.js';
import { parseHubReference } from '../../src/models/model-name.js';
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
    await access(model.path);
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
  it.each(['', 'llama3', 'Demo', 'random:1m', 'ollama:llama3', 'ftp://host/model.gguf'])(
    'is refused with the accepted forms: %j',
    async (spec) => {
      await expect(resolveModel(spec)).rejects.toMatchObject({
        code: 'WARMPATH_MODEL_SPEC',
        path: 'model',
        message: expect.stringMatching(/path to a \.gguf file, hf:org\/repo\/file\.gguf .*or demo/),
      });
    },
  );

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
      vi.stubEnv('HF_ENDPOINT', hub.url);
      const options = { cacheDir: folder };
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
      vi.stubEnv('HF_ENDPOINT', hub.url);
      const { path, name } = await resolveModel(spec, { cacheDir: folder });
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

describe('a model in the cache of the Hugging Face tools', () => {
  const commit = '0123456789abcdef0123456789abcdef01234567';
  let home: string;
  beforeEach(async () => {
    home = await mkdtemp(join(folder, 'hf-'));
    vi.stubEnv('HF_HUB_CACHE', join(home, 'hub'));
  });
  const repository = () => join(home, 'hub', 'models--org--kept');
  const snapshot = () => join(repository(), 'snapshots', commit);
  /** A file as the tools lay it out: a link to content that is named by its hash. */
  const keep = async (file: string, content?: Buffer) => {
    const { path: demo } = await resolveModel('demo');
    const blob = join(repository(), 'blobs', file.replaceAll('/', '-'));
    await mkdir(join(repository(), 'blobs'), { recursive: true });
    await mkdir(dirname(join(snapshot(), file)), { recursive: true });
    await (content === undefined ? copyFile(demo, blob) : writeFile(blob, content));
    await symlink(blob, join(snapshot(), file));
  };
  const note = async (revision: string) => {
    await mkdir(dirname(join(repository(), 'refs', revision)), { recursive: true });
    await writeFile(join(repository(), 'refs', revision), `${commit}\n`);
  };
  /** Asking the hub would fail. */
  const resolveHere = (spec: string) => {
    const signal = AbortSignal.abort(new Error('asked the hub'));
    vi.stubEnv('HF_ENDPOINT', 'http://127.0.0.1:9');
    return resolveModel(spec, { cacheDir: join(home, 'own'), signal });
  };

  it.each([
    ['hf:org/kept', 'main', 'T-Q4_K_M.gguf'],
    ['hf:org/kept:Q8_0', 'main', 'Q8/T-Q8_0.gguf'],
    ['hf:org/kept/Q8/T-Q8_0.gguf', 'main', 'Q8/T-Q8_0.gguf'],
    ['hf:org/kept@refs%2Fpr%2F1', 'refs/pr/1', 'T-Q4_K_M.gguf'],
    [`hf:org/kept@${commit}/T-Q4_K_M.gguf`, 'none', 'T-Q4_K_M.gguf'],
    ['http://127.0.0.1:9/org/kept/blob/main/T-Q4_K_M.gguf', 'main', 'T-Q4_K_M.gguf'],
    ['hf:org/kept:F16', 'main', 'T-F16-00001-of-00002.gguf'],
  ])('is used where it lies: %s', async (spec, revision, file) => {
    for (const name of ['T-Q4_K_M.gguf', 'Q8/T-Q8_0.gguf', 'T-F16-00001-of-00002.gguf', 'T-F16-00002-of-00002.gguf'])
      await keep(name);
    await note(revision);
    expect((await resolveHere(spec)).path).toBe(join(snapshot(), file));
  });

  it('is not taken in part, empty, or of another revision', async () => {
    await keep('T-F16-00001-of-00002.gguf');
    await keep('short.gguf', Buffer.alloc(0));
    await keep('other.gguf');
    await note('v1');
    for (const spec of ['@v1/T-F16-00001-of-00002.gguf', '@v1/short.gguf', '/other.gguf']) {
      await expect(resolveHere(`hf:org/kept${spec}`)).rejects.toThrow('asked the hub');
    }
  });

  it('takes no revision that leads out of the cache', async () => {
    await mkdir(join(repository(), 'refs'), { recursive: true });
    await writeFile(join(repository(), 'refs', 'main'), '../../../elsewhere');
    expect(await hubCacheSnapshot(parseHubReference('org/kept/T.gguf'))).toBeUndefined();
  });

  it.each([
    [{ HF_HUB_CACHE: '/cache', HF_HOME: '/hf' }, '/cache'],
    [{ HUGGINGFACE_HUB_CACHE: '/old', HF_HOME: '/hf' }, '/old'],
    [{ HF_HUB_CACHE: '', HF_HOME: '/hf', XDG_CACHE_HOME: '/xdg' }, '/hf/hub'],
    [{ XDG_CACHE_HOME: '/xdg' }, '/xdg/huggingface/hub'],
    [{}, '/home/user/.cache/huggingface/hub'],
  ])('lies where their variables say: %j', (environment, expected) => {
    expect(hubCacheFolder(environment, '/home/user')).toBe(expected);
  });
});

describe('a model at an address of its own', () => {
  let hub: FakeHub;
  beforeAll(async () => {
    hub = new FakeHub(await readFile((await resolveModel('demo')).path));
    await hub.start();
  });
  afterAll(() => hub.stop());
  beforeEach(() => {
    vi.stubEnv('no_proxy', '127.0.0.1');
    vi.stubEnv('HF_TOKEN', 'hf_secret');
    hub.requests.length = 0;
  });
  const home = () => join(folder, 'http', new URL(hub.url).host.replace(':', '%3A'));
  const resolveUrl = (path: string) => resolveModel(`${hub.url}${path}`, { cacheDir: folder });

  it('is downloaded once, without the token, and named after its file', async () => {
    const model = await resolveUrl('/some%20models/Tiny.Q8_0.gguf?signature=secret#top');
    expect(model).toStrictEqual({
      path: join(home(), 'some models', 'Tiny.Q8_0.gguf'),
      name: 'Tiny.Q8_0',
      kind: 'url',
    });
    expect(hub.requests.map(({ path, authorization }) => [path, authorization])).toStrictEqual([
      ['/some%20models/Tiny.Q8_0.gguf?signature=secret', undefined],
      ['/blob?signature=secret', undefined],
    ]);
    // Another signature is the same file.
    expect(await resolveUrl('/some%20models/Tiny.Q8_0.gguf?signature=other')).toStrictEqual(model);
    expect(hub.requests).toHaveLength(2);
  });

  it('is resumed where the connection broke, on the server itself too', async () => {
    const half = Math.floor(hub.behaviour.content.length / 2);
    hub.behaviour.cuts = [half];
    const model = await resolveModel(`${hub.storageUrl}/resumed.gguf`, { cacheDir: folder });
    expect(hub.transfers.map(({ range }) => range)).toStrictEqual([undefined, `bytes=${half}-`]);
    expect(hub.behaviour.content.equals(await readFile(model.path))).toBe(true);
  });

  it('is downloaded in all its parts where it is split', async () => {
    const { path } = await resolveUrl('/Q4/Big-00002-of-00002.gguf?key=1');
    expect(path).toBe(join(home(), 'Q4', 'Big-00001-of-00002.gguf'));
    const asked = hub.requests.filter(({ server }) => server === 'hub').map(({ path: url }) => url);
    expect(asked).toEqual(['/Q4/Big-00001-of-00002.gguf?key=1', '/Q4/Big-00002-of-00002.gguf?key=1']);
  });

  it('is held against the SHA-256 that the server states', async () => {
    hub.behaviour.linkedEtag = '0'.repeat(64);
    await expect(resolveUrl('/changed.gguf?signature=secret')).rejects.toMatchObject({
      code: 'WARMPATH_DOWNLOAD_FAILED',
      message: expect.stringMatching(/\/changed\.gguf: the SHA-256 of what arrived is not the one of the server/),
    });
    delete hub.behaviour.linkedEtag;
  });

  it('is refused with the status of the server, and no word of a token', async () => {
    hub.behaviour.hubAnswers = [{ status: 403 }];
    await expect(resolveUrl('/gone.gguf?signature=secret')).rejects.toMatchObject({
      message: `${hub.url}/gone.gguf: the server answers 403: the address gives no access, or no longer does`,
    });
  });

  it.each(['/resolve', '/blob'])('is a file of the hub where it is an address of the hub: %s', async (kind) => {
    vi.stubEnv('HF_ENDPOINT', hub.url);
    const { path } = await resolveUrl(`/org/page${kind}/refs%2Fpr%2F1/Q8/Tiny%20one.gguf?download=true`);
    expect(path).toBe(join(folder, 'hub', 'org--page', 'refs%2Fpr%2F1', 'Q8', 'Tiny one.gguf'));
    if (kind === '/resolve') expect(hub.requests[0]!.authorization).toBe('Bearer hf_secret');
  });

  it('is chosen on the page of a repository', async () => {
    vi.stubEnv('HF_ENDPOINT', hub.url);
    hub.behaviour.files = ['T-Q8_0.gguf', 'T-Q4_K_M.gguf'];
    expect((await resolveUrl('/org/front')).name).toBe('T-Q4_K_M');
    expect((await resolveUrl('/org/front/tree/main')).name).toBe('T-Q4_K_M');
  });

  it.each([
    ['/model.bin', 'does not end in .gguf'],
    ['/', 'does not end in .gguf'],
    ['/a%2F..%2Fb.gguf', 'not plain'],
    ['/a//b.gguf', 'not plain'],
    ['/%2e%2e%5Cb.gguf', 'not plain'],
    ['/%ff.gguf', 'not plain'],
    ['/a%00.gguf', 'not plain'],
  ])('is refused before anything is asked: %s', async (path, detail) => {
    await expect(resolveUrl(`${path}?signature=secret`)).rejects.toMatchObject({
      code: 'WARMPATH_MODEL_SPEC',
      message: expect.stringMatching(new RegExp(`^((?!secret).)*${detail}((?!secret).)*$`)),
    });
    expect(hub.requests).toEqual([]);
  });

  it('is refused with a password, which no error shows', async () => {
    await expect(resolveModel('https://me:secret@host/m.gguf')).rejects.toMatchObject({
      message: 'https://host/m.gguf: an address with a user name is not supported',
    });
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
