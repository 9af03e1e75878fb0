import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const GATEWAY = fileURLToPath(new URL('../packages/gateway/src', import.meta.url));

/** The folders that each folder imports from. A file beside the folders counts as the folder `.`. */
function importsOfFolders(root: string): ReadonlyMap<string, ReadonlySet<string>> {
  const imports = new Map<string, Set<string>>();
  const folderOf = (path: string) => {
    const [folder, file] = relative(root, path).split(sep);
    return file === undefined ? '.' : folder!;
  };
  for (const file of readdirSync(root, { recursive: true, encoding: 'utf8' })) {
    if (!file.endsWith('.ts')) continue;
    const path = join(root, file);
    const from = folderOf(path);
    const targets = imports.get(from) ?? new Set();
    imports.set(from, targets);
    for (const [, target] of readFileSync(path, 'utf8').matchAll(/from '(\.[^']+)'/g)) {
      const to = folderOf(join(dirname(path), target!));
      if (to !== from) targets.add(to);
    }
  }
  return imports;
}

it('the folders of the gateway import each other in one direction only', () => {
  const imports = importsOfFolders(GATEWAY);
  expect(imports.size).toBeGreaterThan(10);
  const left = new Map(imports);
  for (let isShrinking = true; isShrinking; ) {
    const lowest = [...left].filter(([, targets]) => [...targets].every((target) => !left.has(target)));
    isShrinking = lowest.length > 0;
    for (const [folder] of lowest) left.delete(folder);
  }
  // What is left are the folders of a cycle, and those that import them.
  expect([...left.keys()]).toEqual([]);
});
