import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { stopGroup } from '../own-process.js';

const run = promisify(execFile);
const root = join(import.meta.dirname, '../..');
const INSTALL_TIMEOUT_MS = 300_000;
const VERSION = '0.1.0';
const QUIET = ['--ignore-scripts', '--no-audit', '--no-fund'];

async function emptyFolder(): Promise<string> {
  return mkdtemp(join(tmpdir(), 'warmpath-packed-'));
}

/** Packs these packages, or the program and the library, into a folder. Returns the names of the tarballs. */
async function pack(folder: string, ...paths: string[]): Promise<string[]> {
  await run(process.execPath, ['scripts/pack.js', folder, ...paths], { cwd: root });
  return (await readdir(folder)).filter((file) => file.endsWith('.tgz'));
}

describe('the tarball of the program, installed alone into an empty prefix', () => {
  let folder: string;
  let prefix: string;
  let tarball: string;

  beforeAll(async () => {
    folder = await emptyFolder();
    const tarballs = join(folder, 'tarballs');
    expect(await pack(tarballs)).toEqual([`warmpath-${VERSION}.tgz`, `warmpath-core-${VERSION}.tgz`]);
    tarball = join(tarballs, `warmpath-${VERSION}.tgz`);
    prefix = join(folder, 'prefix');
    // One file; every other package comes from the registry.
    await run('npm', ['install', '--global', '--prefix', prefix, ...QUIET, tarball]);
  }, INSTALL_TIMEOUT_MS);

  afterAll(() => rm(folder, { recursive: true, force: true }));

  const warmpath = async (...args: string[]) => {
    const child = await run(join(prefix, 'bin/warmpath'), args, { cwd: folder, maxBuffer: 1 << 26 });
    return child.stdout;
  };

  it('answers --version', async () => {
    expect((await warmpath('--version')).trim()).toBe(VERSION);
  });

  it('has checksums that fit', async () => {
    await run('sha256sum', ['--check', 'SHA256SUMS'], { cwd: join(folder, 'tarballs') });
  });

  it('starts with the demo model, answers from documents and reuses them, and shows its page', async () => {
    const child = spawn(join(prefix, 'bin/warmpath'), ['up', '--port', '0', '--json'], {
      stdio: ['ignore', 'pipe', 'inherit'],
      detached: true,
      env: { ...process.env, WARMPATH_DATA_DIR: join(folder, 'data') },
    });
    onTestFinished(() => stopGroup(child));
    const [line] = await once(createInterface(child.stdout), 'line');
    const { url } = JSON.parse(String(line)) as { url: string };
    const documents = [
      { id: 'velka', title: 'Velka', content: 'The weight of Velka is 42 kg. The colour of Velka is teal.' },
      { id: 'orsin', title: 'Orsin', content: 'The weight of Orsin is 17 kg. The founder of Orsin is Mirela.' },
    ];
    const ask = async (order: readonly object[]) => {
      const messages = [{ role: 'user', content: 'What is the weight of Velka?' }];
      const body = JSON.stringify({ messages, documents: order, max_tokens: 8 });
      const headers = { 'content-type': 'application/json' };
      const answer = await fetch(`${url}/v1/chat/completions`, { method: 'POST', headers, body });
      return (await answer.json()) as {
        readonly choices: readonly { readonly message: { readonly content: string } }[];
        readonly usage: { readonly prompt_tokens_details: { readonly cached_tokens: number } };
      };
    };
    expect((await ask(documents)).choices[0]!.message.content).toContain('42');
    expect((await ask(documents.toReversed())).usage.prompt_tokens_details.cached_tokens).toBeGreaterThan(50);
    expect(await (await fetch(`${url}/ui`)).text()).toContain('<title>Warmpath</title>');
  });

  it('takes documents in, without an install script having run', async () => {
    await writeFile(join(folder, 'note.md'), '# Velka\n\nThe weight of Velka is 42 kg.');
    const data = join(folder, 'collections');
    expect(await warmpath('ingest', 'note.md', '--folder', data)).toContain('1 document, 1 passage.');
  });

  it('draws a report page', async () => {
    await warmpath('lab', 'run', 'mixed', '--seeds', '1', '--report', 'page.html');
    expect(await readFile(join(folder, 'page.html'), 'utf8')).toContain('<svg');
  });

  it('runs the demo on the embedded engine and its own model', { timeout: INSTALL_TIMEOUT_MS }, async () => {
    const report = JSON.parse(await warmpath('demo', '--questions', '10', '--json'));
    expect(report.strategies.arranged.promptTokens).toBeGreaterThan(0);
    expect(report.strategies.arranged.cachedTokens).toBeGreaterThan(report.strategies.retrieval.cachedTokens);
  });

  it('holds our packages, and of the others none', async () => {
    const { stdout } = await run('tar', ['-tzf', tarball], { maxBuffer: 1 << 26 });
    const files = stdout.trim().split('\n');
    const inside = files.flatMap((file) => /^package\/node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(file)?.[1] ?? []);
    const parts = ['client', 'core', 'dashboard', 'engine', 'gateway', 'lab', 'redis', 'retrieval', 'translate'];
    expect([...new Set(inside)].toSorted()).toEqual(parts.map((name) => `@warmpath/${name}`));
    expect(files.filter((file) => /\.test\.|\.tsbuildinfo/.test(file))).toEqual([]);
    expect(await readFile(join(prefix, 'lib/node_modules/warmpath/LICENSE'), 'utf8')).toContain('Apache License');
  });

  it('serves engines elsewhere without its optional parts', { timeout: INSTALL_TIMEOUT_MS }, async () => {
    // `npm install --global` takes no notice of --omit.
    const small = await emptyFolder();
    onTestFinished(() => rm(small, { recursive: true, force: true }));
    await writeFile(join(small, 'package.json'), JSON.stringify({ name: 'small', private: true }));
    await run('npm', ['install', '--omit=optional', ...QUIET, tarball], { cwd: small });
    const modules = await readdir(join(small, 'node_modules'));
    for (const name of ['@node-llama-cpp', 'zeromq', '@redis']) expect(modules).not.toContain(name);
    const program = join(small, 'node_modules/.bin/warmpath');
    expect((await run(program, ['--version'])).stdout.trim()).toBe(VERSION);
    const up = run(program, ['up', '--port', '0'], { timeout: 60_000 });
    await expect(up).rejects.toMatchObject({ stderr: expect.stringContaining('npm install @node-llama-cpp/') });
  });
});

describe('the tarball of the library, in an empty folder', () => {
  let folder: string;

  beforeAll(async () => {
    folder = await emptyFolder();
    const tarballs = join(folder, 'tarballs');
    await pack(tarballs, 'packages/core');
    await writeFile(join(folder, 'package.json'), JSON.stringify({ name: 'user', private: true }));
    const file = join(tarballs, `warmpath-core-${VERSION}.tgz`);
    // Without a network: it depends on nothing.
    await run('npm', ['install', '--offline', ...QUIET, file], { cwd: folder });
  }, INSTALL_TIMEOUT_MS);

  afterAll(() => rm(folder, { recursive: true, force: true }));

  const use = (load: string) => `${load}
    const history = new ServedHistory();
    const request = prepareRequest({ documents: [{ id: 'a', content: 'A.' }, { id: 'b', content: 'B.' }] });
    console.log(arrange(request, history, 0).order.length);`;

  it.each([
    ['user.mjs', use("import { arrange, prepareRequest, ServedHistory } from '@warmpath/core';")],
    ['user.cjs', use("const { arrange, prepareRequest, ServedHistory } = require('@warmpath/core');")],
  ])('is loaded by an ES module and by a CommonJS module: %s', async (name, text) => {
    await writeFile(join(folder, name), text);
    const { stdout, stderr } = await run(process.execPath, [name], { cwd: folder });
    expect([stdout.trim(), stderr]).toEqual(['2', '']);
  });

  it.each(['user.mts', 'user.cts'])('has types for both: %s', async (name) => {
    const text =
      "import { ServedHistory } from '@warmpath/core';\nexport const history: ServedHistory = new ServedHistory();\n";
    await writeFile(join(folder, name), text);
    const flags = ['--noEmit', '--strict', '--module', 'nodenext', '--target', 'es2022', '--types', ''];
    await run(join(root, 'node_modules/.bin/tsc'), [...flags, name], { cwd: folder });
  });
});

/** Their frameworks are hundreds of megabytes, and are installed where their own tests run. */
const ADAPTERS = ['ai-sdk', 'langchain', 'llamaindex', 'mastra'];
/** What applications import. */
const LIBRARIES = ['client', 'core', 'dashboard', 'engine', 'gateway', 'lab', 'mcp', 'redis', 'retrieval', 'translate'];

describe('the packages of a release, each alone', () => {
  let folder: string;
  let tarballs: string;

  beforeAll(async () => {
    folder = await emptyFolder();
    tarballs = join(folder, 'tarballs');
    const names = [...LIBRARIES, ...ADAPTERS];
    await pack(tarballs, ...names.map((name) => `packages/${name}`));
    await writeFile(join(folder, 'package.json'), JSON.stringify({ name: 'packed', private: true, type: 'module' }));
    const files = LIBRARIES.map((name) => join(tarballs, `warmpath-${name}-${VERSION}.tgz`));
    await run('npm', ['install', ...QUIET, ...files], { cwd: folder });
  }, INSTALL_TIMEOUT_MS);

  afterAll(() => rm(folder, { recursive: true, force: true }));

  it('are imported by every entry, with declarations beside it', async () => {
    const entries = LIBRARIES.map((name) => `@warmpath/${name}`);
    const script = `
      for (const name of ${JSON.stringify([...entries, '@warmpath/core/internal', '@warmpath/client/internal'])}) {
        const exported = Object.keys(await import(name));
        if (exported.length === 0) throw new Error(name + ' exports nothing');
      }
      console.log('imported');`;
    const { stdout } = await run(process.execPath, ['--input-type=module', '--eval', script], { cwd: folder });
    expect(stdout.trim()).toBe('imported');
    for (const name of LIBRARIES) {
      expect(await readdir(join(folder, 'node_modules/@warmpath', name, 'dist'))).toContain('index.d.ts');
    }
  });

  it('hold the dashboard as one page, without what it was built with', async () => {
    const modules = join(folder, 'node_modules');
    expect(await readFile(join(modules, '@warmpath/dashboard/dist/index.html'), 'utf8')).toContain('<style>');
    const installed = await readdir(modules);
    for (const name of ['preact', 'uplot', 'vite']) expect(installed).not.toContain(name);
  });

  it.each(ADAPTERS)('hold what @warmpath/%s needs, with its framework as a peer', async (name) => {
    const file = join(tarballs, `warmpath-${name}-${VERSION}.tgz`);
    const listed = (await run('tar', ['-tzf', file])).stdout.split('\n');
    for (const path of ['dist/index.js', 'dist/index.d.ts', 'README.md', 'LICENSE']) {
      expect(listed).toContain(`package/${path}`);
    }
    expect(listed.filter((path) => /test|\.tsbuildinfo/.test(path))).toEqual([]);
    const manifest = JSON.parse((await run('tar', ['-xzOf', file, 'package/package.json'])).stdout);
    expect(Object.keys(manifest.dependencies)).toEqual(
      name === 'llamaindex' ? ['@warmpath/client'] : ['@warmpath/client', '@warmpath/core'],
    );
    expect(Object.keys(manifest.peerDependencies)).not.toHaveLength(0);
  });
});
