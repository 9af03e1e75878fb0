import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';

const run = promisify(execFile);
const root = join(import.meta.dirname, '../..');
const INSTALL_TIMEOUT_MS = 300_000;

/** Their frameworks are hundreds of megabytes, and are installed where their own tests run. */
const ADAPTERS = ['ai-sdk', 'langchain', 'llamaindex', 'mastra'];

/** What `npm install warmpath` brings. */
const NEEDED = [
  ...['core', 'client', 'dashboard', 'engine', 'gateway', 'lab', 'retrieval', 'translate'].map(
    (name) => `warmpath-${name}`,
  ),
  'warmpath',
];

/**
 * What a user gets: the tarballs that would be published, resolved afresh in an empty folder, install scripts blocked.
 */
describe('the packed packages in an empty folder', () => {
  let folder: string;
  let tarballs: string;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'warmpath-packed-'));
    tarballs = join(folder, 'tarballs');
    await run(process.execPath, ['scripts/pack.js', tarballs], { cwd: root });
    const packed = (await readdir(tarballs)).filter((file) => file.endsWith('.tgz'));
    const files = packed.filter((file) => !ADAPTERS.some((name) => file.startsWith(`warmpath-${name}-`)));
    expect(files).toHaveLength(11);
    expect(packed).toHaveLength(11 + ADAPTERS.length);
    await writeFile(join(folder, 'package.json'), JSON.stringify({ name: 'packed', private: true, type: 'module' }));
    await run(
      'npm',
      ['install', '--ignore-scripts', '--no-audit', '--no-fund', ...files.map((file) => join(tarballs, file))],
      {
        cwd: folder,
      },
    );
  }, INSTALL_TIMEOUT_MS);

  afterAll(() => rm(folder, { recursive: true, force: true }));

  const warmpath = async (...args: string[]) => {
    const child = await run('npx', ['--no-install', 'warmpath', ...args], { cwd: folder, maxBuffer: 1 << 26 });
    return child.stdout;
  };

  it('answers --version', async () => {
    expect((await warmpath('--version')).trim()).toBe('0.1.0');
  });

  it('imports every library entry and finds declarations beside it', async () => {
    const script = `
      for (const name of ['@warmpath/core', '@warmpath/core/internal', '@warmpath/client', '@warmpath/client/internal', '@warmpath/dashboard', '@warmpath/engine', '@warmpath/gateway', '@warmpath/lab', '@warmpath/mcp', '@warmpath/redis', '@warmpath/retrieval', '@warmpath/translate']) {
        const exported = Object.keys(await import(name));
        if (exported.length === 0) throw new Error(name + ' exports nothing');
      }
      console.log('imported');`;
    const { stdout } = await run(process.execPath, ['--input-type=module', '--eval', script], { cwd: folder });
    expect(stdout.trim()).toBe('imported');
    for (const name of [
      'core',
      'client',
      'dashboard',
      'engine',
      'gateway',
      'lab',
      'mcp',
      'redis',
      'retrieval',
      'translate',
    ]) {
      expect(await readdir(join(folder, 'node_modules/@warmpath', name, 'dist'))).toContain('index.d.ts');
    }
  });

  it('holds the dashboard as one page, without what it was built with', async () => {
    const modules = join(folder, 'node_modules');
    expect(await readFile(join(modules, '@warmpath/dashboard/dist/index.html'), 'utf8')).toContain('<style>');
    const installed = await readdir(modules);
    for (const name of ['preact', 'uplot', 'vite']) expect(installed).not.toContain(name);
  });

  it.each(ADAPTERS)('packs what @warmpath/%s needs, and its framework as a peer', async (name) => {
    const file = join(tarballs, `warmpath-${name}-0.1.0.tgz`);
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

  it('takes documents in, without an install script having run', async () => {
    await writeFile(join(folder, 'note.md'), '# Velka\n\nThe weight of Velka is 42 kg.');
    const data = join(folder, 'collections');
    expect(await warmpath('ingest', 'note.md', '--folder', data)).toContain('1 document, 1 passage.');
  });

  it('draws a report page', async () => {
    await warmpath('lab', 'run', 'mixed', '--seeds', '1', '--report', 'page.html');
    expect(await readFile(join(folder, 'page.html'), 'utf8')).toContain('<svg');
  });

  it('serves engines elsewhere without its optional parts', { timeout: INSTALL_TIMEOUT_MS }, async () => {
    // Not inside the other: Node would find its modules.
    const small = await mkdtemp(join(tmpdir(), 'warmpath-small-'));
    onTestFinished(() => rm(small, { recursive: true, force: true }));
    await writeFile(join(small, 'package.json'), JSON.stringify({ name: 'small', private: true, type: 'module' }));
    const files = NEEDED.map((name) => join(tarballs, `${name}-0.1.0.tgz`));
    const flags = ['--omit=optional', '--ignore-scripts', '--no-audit', '--no-fund'];
    await run('npm', ['install', ...flags, ...files], { cwd: small });
    expect(await readdir(join(small, 'node_modules'))).not.toContain('@node-llama-cpp');
    const version = await run('npx', ['--no-install', 'warmpath', '--version'], { cwd: small });
    expect(version.stdout.trim()).toBe('0.1.0');
    const up = run('npx', ['--no-install', 'warmpath', 'up', '--port', '0'], { cwd: small, timeout: 60_000 });
    await expect(up).rejects.toMatchObject({ stderr: expect.stringContaining('npm install @node-llama-cpp/') });
  });

  it('runs the demo on the embedded engine and its own model', { timeout: INSTALL_TIMEOUT_MS }, async () => {
    const report = JSON.parse(await warmpath('demo', '--questions', '10', '--json'));
    expect(report.strategies.arranged.promptTokens).toBeGreaterThan(0);
    expect(report.strategies.arranged.cachedTokens).toBeGreaterThan(report.strategies.retrieval.cachedTokens);
  });
});
