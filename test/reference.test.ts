import { execFile } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { PAGES, root } from './docs-blocks.js';

const run = promisify(execFile);

describe('the reference pages', () => {
  it('say what schemas, tables and doc comments say', async () => {
    await run(process.execPath, ['docs/generate/main.js', '--check'], { cwd: root });
  });
});

/** Sources and tests of everything, by their paths from the root. */
function sourceFiles(): readonly string[] {
  return ['packages', 'test'].flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
      .filter((path) => path.endsWith('.ts') && !/node_modules|\bdist/.test(path))
      .map((path) => join(folder, path)),
  );
}

describe('the files that pages name', () => {
  it.each(['ARCHITECTURE.md', 'CONTRIBUTING.md', 'SECURITY.md'])('%s', (page) => {
    const sources = sourceFiles();
    const named = readFileSync(join(root, page), 'utf8').matchAll(/`([\w./-]+\.ts)`/g);
    const missing = [...named].filter(([, name]) => !sources.some((path) => `/${path}`.endsWith(`/${name}`)));
    expect(missing.map(([, name]) => name)).toEqual([]);
  });
});

/** The headings of a page as anchors, the way GitHub and the site write them. */
function anchorsOf(page: string): readonly string[] {
  return [...readFileSync(join(root, page), 'utf8').matchAll(/^#{1,4} (.*)$/gm)].map(([, heading]) =>
    heading!
      .toLowerCase()
      .replace(/[`.,:?!'()/@]/g, '')
      .replaceAll(' ', '-'),
  );
}

describe('links between pages', () => {
  const pages = [...PAGES, 'ARCHITECTURE.md', 'CONTRIBUTING.md', 'CHANGELOG.md', 'DEPENDENCIES.md', 'SECURITY.md'];

  // The site's own pages are followed where it is built (`npm run docs:check`): includes are whole only there.
  it.each(pages)('%s', (page) => {
    const text = readFileSync(join(root, page), 'utf8').replace(/^```.*?^```$/gms, '');
    const broken = [...text.matchAll(/\]\(([^)\s]+)\)/g)].flatMap(([, link]) => {
      const [path = '', anchor] = link!.split('#');
      if (/^([a-z]+:|\/)/.test(link!)) return [];
      const file = path === '' ? page : normalize(join(dirname(page), path));
      if (!existsSync(join(root, file))) return [link!];
      const isHeading = anchor === undefined || file.startsWith('docs/reference/') || anchorsOf(file).includes(anchor);
      return isHeading ? [] : [link!];
    });
    expect(broken).toEqual([]);
  });
});
