import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';

it('the built package imports itself and core, and nothing of Node', async () => {
  const dist = join(import.meta.dirname, '../dist');
  const files = (await readdir(dist)).filter((file) => file.endsWith('.js'));
  expect(files.length).toBeGreaterThan(5);
  const imported = new Set<string>();
  for (const file of files) {
    const text = await readFile(join(dist, file), 'utf8');
    for (const [, name] of text.matchAll(/(?:from|import)\s*\(?\s*'([^']+)'/g)) imported.add(name!);
  }
  const outside = [...imported].filter((name) => !name.startsWith('./'));
  expect(outside.toSorted()).toEqual(['@warmpath/core', '@warmpath/core/internal']);
});
