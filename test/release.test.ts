import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { root } from './docs-blocks.js';

// The script in a repository of its own: what it says of this one depends on what is committed.

const REPOSITORY = { type: 'git', url: 'git+https://example.org/project.git' };
const CHANGELOG = '# Changelog\n\n## [Unreleased]\n\n## [1.0.0] - 2026-01-01\n\n- First.\n';

interface Project {
  readonly first?: object;
  readonly second?: object;
  readonly changelog?: string;
  readonly isBuilt?: boolean;
}

/** A committed repository of two packages, each with a manifest that can be released but for these fields. */
function project({ first, second, changelog = CHANGELOG, isBuilt = true }: Project): string {
  const folder = mkdtempSync(join(tmpdir(), 'warmpath-release-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const write = (path: string, content: string | object) =>
    writeFileSync(join(folder, path), typeof content === 'string' ? content : JSON.stringify(content));
  cpSync(join(root, 'scripts'), join(folder, 'scripts'), { recursive: true });
  write('package.json', { private: true, type: 'module', workspaces: ['packages/first', 'packages/second'] });
  write('CHANGELOG.md', changelog);
  write('.gitignore', 'release\n');
  for (const [name, fields] of Object.entries({ first, second })) {
    mkdirSync(join(folder, 'packages', name, 'dist'), { recursive: true });
    const manifest = { name: `@example/${name}`, version: '1.0.0', files: ['dist'], repository: REPOSITORY, ...fields };
    write(`packages/${name}/package.json`, manifest);
    if (isBuilt) write(`packages/${name}/dist/index.js`, '');
    else rmSync(join(folder, 'packages', name, 'dist'), { recursive: true });
  }
  const git = (...args: string[]) =>
    execFileSync('git', ['-c', 'user.name=Test', '-c', 'user.email=test@example.org', ...args], { cwd: folder });
  git('init', '--quiet');
  git('add', '--all');
  git('commit', '--quiet', '--message', 'First');
  return folder;
}

function release(folder: string): { readonly status: number | null; readonly said: string; readonly wrong: string } {
  const args = [join(folder, 'scripts/release.js')];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { cwd: folder, encoding: 'utf8' });
  return { status, said: stdout, wrong: stderr };
}

describe('npm run release', () => {
  it('packs what can be released, and publishes nothing unasked', () => {
    const folder = project({ second: { dependencies: { '@example/first': '1.0.0' } } });
    const { status, said, wrong } = release(folder);
    expect([status, wrong]).toEqual([0, '']);
    expect(said).toContain('example-first-1.0.0.tgz --provenance --access public');
    expect(said).toContain('Nothing was published.');
    expect(readdirSync(join(folder, 'release'))).toEqual([
      'SHA256SUMS',
      'example-first-1.0.0.tgz',
      'example-second-1.0.0.tgz',
    ]);
  });

  it.each<[string, Project, string]>([
    [
      'a package that does not say where it comes from',
      { second: { repository: undefined } },
      'package.json has no repository, which npm wants for --provenance; set it to the URL of yours: @example/second\n',
    ],
    ['a repository without a URL', { first: { repository: { type: 'git' } } }, 'yours: @example/first\n'],
    ['another version', { second: { version: '1.0.1' } }, '@example/second has version 1.0.1, not 1.0.0'],
    [
      'a dependency on another version',
      { second: { dependencies: { '@example/first': '^1.0.0' } } },
      '@example/second depends on @example/first ^1.0.0, not 1.0.0',
    ],
    ['a changelog without the version', { changelog: '# Changelog\n' }, 'has no section ## [1.0.0]'],
    [
      'what waits in the changelog',
      { changelog: CHANGELOG.replace('[Unreleased]\n', '[Unreleased]\n\n- Second.\n') },
      'has entries under [Unreleased]',
    ],
    ['what is not built', { isBuilt: false }, 'packages/first is not built'],
  ])('refuses %s', (_, change, problem) => {
    const { status, wrong } = release(project(change));
    expect(status).toBe(1);
    expect(wrong).toContain(problem);
    expect(wrong).toMatch(/\nNo release: \d+ of the checks failed\.\n$/);
  });
});
