import { mkdir, mkdtemp, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
// The built package: one database is opened by one copy of a library.
import { type Collection, Collections } from '../dist/index.js';

let folder: string;
let collections: Collections;
let collection: Collection;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-ingest-'));
  collections = new Collections(join(folder, 'collections'));
  collection = await collections.getOrMake('default', 'c');
});
afterEach(async () => {
  await collections.close();
  await rm(folder, { recursive: true, force: true });
});

/** Writes files, by their paths in the test's folder. */
async function write(files: Readonly<Record<string, string>>): Promise<void> {
  for (const [name, content] of Object.entries(files)) {
    await mkdir(dirname(join(folder, name)), { recursive: true });
    await writeFile(join(folder, name), content);
  }
}
const at = (name: string) => join(folder, name);
const ids = () => [...collection.documents()].map(({ id }) => id).sort();
const followLinks = true;

describe('ignore files', () => {
  it.each([
    ['.gitignore', 'sub/\n*.tmp.md', ['docs/a.md', 'docs/other/sub.md']],
    ['.warmpathignore', '/a.md\n!never.md', ['docs/b.tmp.md', 'docs/other/sub.md', 'docs/sub/c.md']],
  ])('leave out what %s names, and say so', async (name, patterns, expected) => {
    await write({ 'docs/a.md': 'a', 'docs/b.tmp.md': 'b', 'docs/sub/c.md': 'c', 'docs/other/sub.md': 'd' });
    await write({ [`docs/${name}`]: patterns });
    const { skipped } = await collection.ingest([at('docs')]);
    expect(ids()).toEqual(expected);
    const ignored = skipped.filter(({ reason }) => reason === `ignored by ${name}`).map(({ file }) => file);
    expect(ignored).toEqual(name === '.gitignore' ? ['docs/b.tmp.md', 'docs/sub'] : ['docs/a.md']);
  });

  it('win over those above them, .warmpathignore over .gitignore, up to the root of a repository', async () => {
    await write({ 'repo/.gitignore': 'docs/drafts\n*.log\n!docs/kept.log', 'repo/docs/.gitignore': '!own.log\n*.md' });
    await write({ 'repo/docs/.warmpathignore': '!*.md\nsecret.md', 'repo/docs/drafts/x.txt': 'x' });
    for (const name of ['kept.log', 'own.log', 'other.log', 'a.md', 'secret.md', 'b.txt']) {
      await write({ [`repo/docs/${name}`]: name });
    }
    await collection.ingest([at('repo/docs')]);
    // Without a repository, nothing above the folder counts.
    expect(ids()).toEqual(
      ['a.md', 'b.txt', 'drafts/x.txt', 'kept.log', 'other.log', 'own.log'].map((id) => `docs/${id}`),
    );
    await mkdir(at('repo/.git'));
    expect(await collection.ingest([at('repo/docs')])).toMatchObject({ removed: 2, added: 0 });
    expect(ids()).toEqual(['a.md', 'b.txt', 'kept.log', 'own.log'].map((id) => `docs/${id}`));
    // What is asked for by its name is read, although it is ignored.
    await collection.ingest([at('repo/docs/drafts'), at('repo/docs/other.log')]);
    expect(ids()).toEqual(expect.arrayContaining(['drafts/x.txt', 'other.log']));
  });

  it('keep no document that they name later, and bring it back', async () => {
    await write({ 'docs/a.md': 'a', 'docs/b.md': 'b' });
    await collection.ingest([at('docs')]);
    await write({ 'docs/.warmpathignore': 'b.md' });
    expect(await collection.ingest([at('docs')])).toMatchObject({ removed: 1 });
    await rm(at('docs/.warmpathignore'));
    expect(await collection.ingest([at('docs')])).toMatchObject({ added: 1 });
  });

  it('are matched in a moment, whatever they hold', async () => {
    const name = `${'a'.repeat(120)}b${'a'.repeat(120)}.md`;
    await write({ [`docs/${name}`]: 'a', 'docs/.gitignore': `${'*a'.repeat(40)}*b*c\n[\n\\\n(((\n[z-a]\n` });
    await collection.ingest([at('docs')]);
    expect(ids()).toEqual([`docs/${name}`]);
  });
});

describe('patterns of a call', () => {
  const files = ['docs/a.md', 'docs/b.txt', 'docs/A.MD', 'docs/sub/c.md', 'docs/sub/d.txt', 'docs/drafts/e.md'];
  it.each([
    [{ include: ['*.md'] }, ['docs/a.md', 'docs/drafts/e.md', 'docs/sub/c.md']],
    [{ include: ['*.md'], exclude: ['drafts/'] }, ['docs/a.md', 'docs/sub/c.md']],
    [{ include: ['/sub/**', '*.MD'] }, ['docs/A.MD', 'docs/sub/c.md', 'docs/sub/d.txt']],
    [{ exclude: ['*.md', '!sub/*.md'] }, ['docs/A.MD', 'docs/b.txt', 'docs/sub/c.md', 'docs/sub/d.txt']],
    [{ exclude: ['sub', 'drafts'] }, ['docs/A.MD', 'docs/a.md', 'docs/b.txt']],
  ])('%j', async (patterns, expected) => {
    await write(Object.fromEntries(files.map((name) => [name, name])));
    const { errorCount, skipped } = await collection.ingest([at('docs')], patterns);
    expect([ids(), errorCount]).toEqual([expected, 0]);
    // Everything that was left out is named, by itself or by its folder.
    for (const name of files.filter((file) => !expected.includes(file))) {
      expect(skipped.some(({ file }) => name === file || name.startsWith(`${file}/`))).toBe(true);
    }
  });

  it('count for files that are named, too', async () => {
    await write({ 'a.md': 'a', 'b.txt': 'b' });
    const { skipped } = await collection.ingest([at('a.md'), at('b.txt')], { include: ['*.md'] });
    expect([ids(), skipped]).toEqual([['a.md'], [{ file: 'b.txt', reason: 'not included' }]]);
  });
});

describe('documents behind links', () => {
  it('leave with their file, with their link, with the folder of the link, and where links are not followed', async () => {
    await write({ 'out/a.md': 'a', 'out/sub/b.md': 'b', 'out/c.md': 'c', 'docs/own.md': 'own' });
    await symlink(at('out'), at('docs/link'));
    await symlink(at('out/c.md'), at('docs/linked.md'));
    const ingest = (more = { followLinks }) => collection.ingest([at('docs')], more);
    await ingest();
    expect(ids()).toEqual(['docs/link/a.md', 'docs/link/c.md', 'docs/link/sub/b.md', 'docs/own.md']);
    await rm(at('out/a.md'));
    expect(await ingest()).toMatchObject({ removed: 1 });
    await rm(at('docs/link'));
    await ingest();
    expect(ids()).toEqual(['docs/linked.md', 'docs/own.md']);
    await rm(at('out/c.md'));
    // The link leads nowhere, which is an error, and its document is gone.
    expect(await ingest()).toMatchObject({ removed: 1, errorCount: 1 });
    await symlink(at('out/sub'), at('docs/link'));
    await ingest();
    await ingest({ followLinks: false });
    expect(ids()).toEqual(['docs/own.md']);
  });

  it('keep their ids when links get another target, as the files of a ConfigMap do', async () => {
    const publish = async (version: string, files: Readonly<Record<string, string>>) => {
      for (const [name, text] of Object.entries(files)) await write({ [`config/..${version}/${name}`]: text });
      await symlink(`..${version}`, at('config/..data_tmp'));
      await rename(at('config/..data_tmp'), at('config/..data'));
    };
    await publish('2024_01', { 'a.md': 'alpha', 'b.md': 'beta', 'c.md': 'gamma' });
    for (const name of ['a.md', 'b.md', 'c.md']) await symlink(`..data/${name}`, at(`config/${name}`));
    await symlink('config', at('current'));
    const paths = [at('config'), at('current/a.md')];
    expect(await collection.ingest(paths, { followLinks })).toMatchObject({ added: 3, errorCount: 0 });
    const before = ids();
    expect(before).toEqual(['a.md', 'config/b.md', 'config/c.md']);
    await publish('2024_02', { 'a.md': 'alpha', 'b.md': 'new', 'c.md': 'gamma' });
    await rm(at('config/..2024_01'), { recursive: true });
    const after = await collection.ingest(paths, { followLinks });
    expect(after).toMatchObject({ added: 0, changed: 1, removed: 0, unchangedFiles: 2, errorCount: 0 });
    expect(ids()).toEqual(before);
    // The folder that was asked for is a link, too.
    await write({ 'releases/1/x.md': 'x', 'releases/2/x.md': 'x, changed' });
    await symlink('releases/1', at('latest'));
    await collection.ingest([at('latest')]);
    await rm(at('latest'));
    await symlink('releases/2', at('latest'));
    expect(await collection.ingest([at('latest')])).toMatchObject({ added: 0, changed: 1, removed: 0 });
    expect(await collection.documentsAt(at('latest'))).toBe(1);
    expect(await collection.forget([at('latest')])).toEqual({ removed: 1, unknown: [] });
  });
});

describe('documents without text', () => {
  it('are not added, are named at each run, and are an error where they were asked for', async () => {
    await write({ 'docs/a.md': 'a', 'docs/empty.md': '', 'docs/spaces.txt': ' \n\n', 'docs/markup.html': '<p></p>' });
    const skipped = ['docs/empty.md', 'docs/markup.html', 'docs/spaces.txt'].map((file) => ({
      file,
      reason: expect.stringContaining('no text') as string,
    }));
    for (const added of [1, 0]) {
      expect(await collection.ingest([at('docs')])).toMatchObject({ added, skipped, skippedCount: 3, errorCount: 0 });
    }
    for (const _ of [1, 2]) {
      const { errors } = await collection.ingest([at('docs/empty.md')]);
      expect(errors).toEqual([{ file: 'empty.md', message: expect.stringContaining('no text') as string }]);
    }
    expect(ids()).toEqual(['docs/a.md']);
  });

  it('leave the collection when their text goes, by lines as well', async () => {
    await write({ 'docs/a.md': 'a', 'docs/b.jsonl': '{"id":"x","text":"x"}\n{"id":"y","text":"y"}\n' });
    await collection.ingest([at('docs')]);
    await write({ 'docs/a.md': '', 'docs/b.jsonl': '{"id":"x","text":"x"}\n{"id":"y","text":""}\n' });
    const report = await collection.ingest([at('docs')]);
    expect(report).toMatchObject({ removed: 2, added: 0, errorCount: 0 });
    expect(report.skipped.map(({ file }) => file)).toEqual(['docs/a.md', 'y']);
    expect(ids()).toEqual(['x']);
  });

  it('and everything else that is left out has a reason', async () => {
    await write({ 'docs/a.md': 'a', 'docs/.env': 'a', 'docs/.git/config': 'a', 'docs/node_modules/x/readme.md': 'x' });
    await writeFile(
      at('docs/noise.bin'),
      Uint8Array.from({ length: 5000 }, (_, i) => (i * 7919) % 256),
    );
    const { skipped } = await collection.ingest([at('docs')]);
    expect(skipped).toEqual([
      { file: 'docs/.env', reason: 'hidden' },
      { file: 'docs/.git', reason: 'hidden' },
      { file: 'docs/node_modules', reason: 'no folder of documents' },
      { file: 'docs/noise.bin', reason: expect.stringContaining('not a text') as string },
    ]);
  });
});
