import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const GATEWAY = fileURLToPath(new URL('../packages/gateway/src', import.meta.url));

/** Pairs of folders, `from > to`, in which a file of the one imports a file of the other. */
function importsBetweenFolders(root: string): ReadonlySet<string> {
  const pairs = new Set<string>();
  for (const file of readdirSync(root, { recursive: true, encoding: 'utf8' })) {
    if (!file.endsWith('.ts')) continue;
    const from = dirname(join(root, file));
    for (const [, path] of readFileSync(join(root, file), 'utf8').matchAll(/from '(\.[^']+)'/g)) {
      const to = dirname(join(from, path!));
      if (to !== from) pairs.add(`${relative(root, from)} > ${relative(root, to)}`);
    }
  }
  return pairs;
}

it('no two folders of the gateway import each other', () => {
  const pairs = importsBetweenFolders(GATEWAY);
  expect(pairs.size).toBeGreaterThan(30);
  expect([...pairs].filter((pair) => pairs.has(pair.split(' > ').reverse().join(' > ')))).toEqual([]);
});
