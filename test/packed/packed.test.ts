import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

const run = promisify(execFile);
const root = join(import.meta.dirname, '../..');
const INSTALL_TIMEOUT_MS = 300_000;

/** What a user gets: the tarballs that would be published, resolved afresh in an empty folder, install scripts blocked. */
describe('the packed packages in an empty folder', () => {
  let folder: string;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'warmpath-packed-'));
    const tarballs = join(folder, 'tarballs');
    await mkdir(tarballs);
    await run('npm', ['pack', '--workspaces', '--pack-destination', tarballs], { cwd: root });
    const files = (await readdir(tarballs)).map((file) => join(tarballs, file));
    expect(files).toHaveLength(6);
    await writeFile(join(folder, 'package.json'), JSON.stringify({ name: 'packed', private: true, type: 'module' }));
    await run('npm', ['install', '--ignore-scripts', '--no-audit', '--no-fund', ...files], { cwd: folder });
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
      for (const name of ['@warmpath/core', '@warmpath/client', '@warmpath/engine', '@warmpath/gateway', '@warmpath/lab']) {
        const exported = Object.keys(await import(name));
        if (exported.length === 0) throw new Error(name + ' exports nothing');
      }
      console.log('imported');`;
    const { stdout } = await run(process.execPath, ['--input-type=module', '--eval', script], { cwd: folder });
    expect(stdout.trim()).toBe('imported');
    for (const name of ['core', 'client', 'engine', 'gateway', 'lab']) {
      expect(await readdir(join(folder, 'node_modules/@warmpath', name, 'dist'))).toContain('index.d.ts');
    }
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
});
