import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, realpath, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { findFiles, openFound } from '../src/ingest/find-files.js';

const { signal } = new AbortController();
let base: string;
let root: string;
beforeEach(async () => {
  base = await realpath(await mkdtemp(join(tmpdir(), 'warmpath-links-')));
  root = join(base, 'docs');
  for (const folder of ['docs/sub', 'docs/.hidden', 'secret', 'secret/.ssh']) {
    await mkdir(join(base, folder), { recursive: true });
  }
  for (const file of ['docs/a.md', 'docs/sub/b.md', 'docs/.hidden/key.md', 'secret/s.md', 'secret/.ssh/id.md']) {
    await writeFile(join(base, file), file);
  }
});
afterEach(() => rm(base, { recursive: true, force: true }));

const namesOf = ({ files }: Awaited<ReturnType<typeof findFiles>>) => files.map(({ name }) => name);

describe('links in a folder', () => {
  it('are not followed: absolute, relative, chained, to files, to hidden folders', async () => {
    await symlink(join(base, 'secret/.ssh'), join(root, 'keys'));
    await symlink('../secret/s.md', join(root, 'relative.md'));
    await symlink('relative.md', join(root, 'chain.md'));
    await symlink('.hidden', join(root, 'shown'));
    await symlink('../../secret', join(root, 'sub', 'deep'));
    const found = await findFiles([root], { signal });
    expect([namesOf(found), found.errors, found.followedLinks]).toEqual([['docs/a.md', 'docs/sub/b.md'], [], []]);
    expect(found.skippedLinks).toEqual([
      { link: 'docs/chain.md', target: join(base, 'secret/s.md') },
      { link: 'docs/keys', target: join(base, 'secret/.ssh') },
      { link: 'docs/relative.md', target: join(base, 'secret/s.md') },
      { link: 'docs/shown', target: join(root, '.hidden') },
      { link: 'docs/sub/deep', target: join(base, 'secret') },
    ]);
  });

  it('to what is found by its own name say nothing, in a circle or not', async () => {
    await symlink('..', join(root, 'sub', 'up'));
    await symlink('sub/b.md', join(root, 'again.md'));
    const found = await findFiles([root], { signal });
    expect([namesOf(found), found.errors, found.skippedLinks]).toEqual([['docs/a.md', 'docs/sub/b.md'], [], []]);
  });

  it('are followed where that is asked for, each folder once, and named', async () => {
    await symlink(join(base, 'secret'), join(root, 'link'));
    await symlink(join(base, 'secret'), join(root, 'other'));
    await symlink('..', join(root, 'sub', 'up'));
    const found = await findFiles([root], { signal, followLinks: true });
    expect(namesOf(found)).toEqual(['docs/a.md', 'docs/sub/b.md', 'docs/link/s.md']);
    expect(found.followedLinks.map(({ link }) => link)).toEqual(['docs/link', 'docs/other', 'docs/sub/up']);
    expect(found.errors).toEqual([{ file: 'docs/sub/up', message: 'its links lead in a circle: left out' }]);
  });
});

it('a file that has a name of its own keeps it, wherever a link to it stands', async () => {
  await symlink('sub', join(root, 'above'));
  await symlink('sub/b.md', join(root, 'a link.md'));
  expect(namesOf(await findFiles([root], { signal, followLinks: true }))).toEqual(['docs/a.md', 'docs/sub/b.md']);
});

it('a link that leads nowhere is an error only where links are followed', async () => {
  await symlink('gone.md', join(root, 'dangling.md'));
  const left = await findFiles([root], { signal });
  expect([left.errors, left.skippedLinks]).toEqual([[], [{ link: 'docs/dangling.md', target: join(root, 'gone.md') }]]);
  const { errors } = await findFiles([root], { signal, followLinks: true });
  expect(errors).toEqual([
    { file: 'docs/dangling.md', message: expect.stringContaining('there is no such file') as string },
  ]);
});

it('a folder that is named through a link keeps the name of the link', async () => {
  await symlink(root, join(base, 'alias'));
  const found = await findFiles([join(base, 'alias')], { signal });
  expect([namesOf(found), found.folders]).toEqual([['alias/a.md', 'alias/sub/b.md'], [join(base, 'alias')]]);
  expect(found.files.map(({ realPath }) => realPath)).toEqual([join(root, 'a.md'), join(root, 'sub', 'b.md')]);
});

it('pipes and sockets in a folder are left out, and none is waited for', async () => {
  execFileSync('mkfifo', [join(root, 'pipe.md')]);
  const server = createServer().listen(join(root, 'socket.md'));
  onTestFinished(() => void server.close());
  await symlink('pipe.md', join(root, 'piped.md'));
  for (const followLinks of [false, true]) {
    expect(namesOf(await findFiles([root], { signal, followLinks }))).toEqual(['docs/a.md', 'docs/sub/b.md']);
  }
  const found = await findFiles([join(root, 'pipe.md')], { signal });
  expect(found).toMatchObject({ files: [], errors: [{ message: 'is neither a file nor a folder' }] });
});

describe('a found file is opened', () => {
  const fileB = async () => (await findFiles([root], { signal })).files.find(({ name }) => name === 'docs/sub/b.md')!;

  it('also where it was saved anew under its name', async () => {
    const file = await fileB();
    await writeFile(join(root, 'draft'), 'new');
    await rename(join(root, 'draft'), file.path);
    const handle = await openFound(file);
    expect(await handle.readFile('utf8')).toBe('new');
    await handle.close();
  });

  it('not where it became a link, nor where a folder above it did, nor where it became a pipe', async () => {
    const file = await fileB();
    await writeFile(join(base, 'secret', 'b.md'), 'secret');
    await rm(file.path);
    await symlink(join(base, 'secret', 'b.md'), file.path);
    await expect(openFound(file)).rejects.toMatchObject({ code: 'ELOOP' });
    await rm(file.path);
    execFileSync('mkfifo', [file.path]);
    await expect(openFound(file)).rejects.toMatchObject({ code: 'WARMPATH_UNREADABLE_FILE' });
    await rm(join(root, 'sub'), { recursive: true });
    await symlink(join(base, 'secret'), join(root, 'sub'));
    await expect(openFound(file)).rejects.toMatchObject({ code: 'WARMPATH_UNREADABLE_FILE' });
  });
});
