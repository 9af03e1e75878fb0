import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import * as core from '../src/index.js';

const packageFolder = fileURLToPath(new URL('..', import.meta.url));

test('the public names are these; a new one is a decision', async () => {
  const source = readFileSync(join(packageFolder, 'src/index.ts'), 'utf8');
  const names: string[] = [];
  for (const [, isTypes, list] of source.matchAll(/export (type )?\{([^}]*)\} from/g)) {
    for (const entry of list!.split(',')) {
      const name = entry.trim();
      if (name === '') continue;
      names.push(isTypes === undefined && !name.startsWith('type ') ? name : `type ${name.replace(/^type /, '')}`);
    }
  }
  const values = names.filter((name) => !name.startsWith('type '));
  expect(Object.keys(core).sort()).toEqual(values.toSorted());
  await expect(`${names.toSorted().join('\n')}\n`).toMatchFileSnapshot('./public-api.txt');
});

test('the built package imports nothing but its own files', () => {
  const dist = join(packageFolder, 'dist');
  const visited = new Set<string>();
  const pending = [join(dist, 'index.js'), join(dist, 'internal.js')];
  for (let file = pending.pop(); file !== undefined; file = pending.pop()) {
    if (visited.has(file)) continue;
    visited.add(file);
    const text = readFileSync(file, 'utf8');
    expect(text, file).not.toMatch(/\b(?:require|import)\s*\(/);
    expect(text, file).not.toMatch(/\b(?:process|Buffer|globalThis)[.[]/);
    for (const [, specifier] of text.matchAll(/(?:from|import)\s+['"]([^'"]+)['"]/g)) {
      expect(specifier, file).toMatch(/^\.\.?\/.*\.js$/);
      const target = resolve(dirname(file), specifier!);
      expect(relative(dist, target), file).not.toMatch(/^\.\./);
      pending.push(target);
    }
  }
  const modules = readdirSync(dist, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.js'));
  expect(modules.length).toBeGreaterThan(20);
  expect(visited.size).toBeGreaterThan(20);
});

test('the package declares no dependency', () => {
  const manifest = JSON.parse(readFileSync(join(packageFolder, 'package.json'), 'utf8')) as Record<string, unknown>;
  expect(manifest['dependencies'] ?? {}).toEqual({});
  expect(manifest['peerDependencies'] ?? {}).toEqual({});
  expect(manifest['optionalDependencies'] ?? {}).toEqual({});
});
