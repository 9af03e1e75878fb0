import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import * as translatePackage from '../src/index.js';

const packageFolder = fileURLToPath(new URL('..', import.meta.url));

test('the public names are these; a new one is a decision', () => {
  expect(Object.keys(translatePackage).sort()).toEqual(['TranslateError', 'messagesErrorType', 'translate']);
});

test('the built package imports nothing but its own files and core', () => {
  const dist = join(packageFolder, 'dist');
  const modules = readdirSync(dist, { encoding: 'utf8' }).filter((name) => name.endsWith('.js'));
  expect(modules).toContain('index.js');
  for (const module of modules) {
    const text = readFileSync(join(dist, module), 'utf8');
    expect(text, module).not.toMatch(/\b(?:require|import)\s*\(/);
    for (const [, specifier] of text.matchAll(/(?:from|import)\s+['"]([^'"]+)['"]/g)) {
      expect([...modules, '@warmpath/core', '@warmpath/core/internal'], module).toContain(
        specifier!.replace(/^\.\//, ''),
      );
    }
  }
});

test('the package depends on core alone', () => {
  const manifest = JSON.parse(readFileSync(join(packageFolder, 'package.json'), 'utf8')) as Record<string, object>;
  const kinds = Object.keys(manifest).filter((key) => /dependencies/i.test(key));
  expect(kinds.map((kind) => [kind, Object.keys(manifest[kind]!)])).toEqual([['dependencies', ['@warmpath/core']]]);
});
