import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readdir, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { expect, it } from 'vitest';
import { createWarmFolder } from '../../src/supervisor/warm-folder.js';

it('a warm folder is its owner’s alone, goes with it, and takes those of dead processes along', async () => {
  const folder = await createWarmFolder(1_000);
  expect(folder.capacityBytes).toBe(1_000);
  expect((await stat(folder.path)).mode & 0o777).toBe(0o700);
  const child = spawn(process.execPath, ['--version'], { stdio: 'ignore' });
  await once(child, 'exit');
  const abandoned = folder.path.replace(`-${process.pid}-`, `-${child.pid}-`);
  const foreign = join(dirname(folder.path), `warmpath-warm-00000000-${child.pid}-x`);
  await mkdir(abandoned);
  await mkdir(foreign);
  const next = await createWarmFolder(Number.MAX_SAFE_INTEGER);
  expect(next.capacityBytes).toBeLessThan(Number.MAX_SAFE_INTEGER / 2);
  const names = (await readdir(dirname(folder.path))).map((name) => join(dirname(folder.path), name));
  expect(names).toEqual(expect.arrayContaining([folder.path, next.path, foreign]));
  expect(names).not.toContain(abandoned);
  await rm(foreign, { recursive: true });
  await folder.remove();
  await next.remove();
  await expect(stat(folder.path)).rejects.toThrow('ENOENT');
});
