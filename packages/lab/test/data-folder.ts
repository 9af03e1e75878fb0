import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll } from 'vitest';

/**
 * A folder for the tests of one file: `write` puts a file into it, by relative path, and answers with the path of its
 * top.
 */
export function dataFolder() {
  let folder = '';
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'warmpath-data-'));
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));
  const write = async (name: string, content: string): Promise<string> => {
    const path = join(folder, name);
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, content);
    return path;
  };
  return { write, path: (name: string) => join(folder, name) };
}

/** JSON lines. */
export const jsonLines = (...values: unknown[]) => values.map((value) => `${JSON.stringify(value)}\n`).join('');
