import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import * as translatePackage from '../src/index.js';

const packageFolder = fileURLToPath(new URL('..', import.meta.url));

test('the public names are these; a new one is a decision', () => {
  expect(Object.keys(translatePackage).sort()).toEqual([
    'SseReader',
    'TranslateError',
    'messagesErrorType',
    'translate',
  ]);
});

test('the built package imports nothing but its own files', () => {
  const dist = join(packageFolder, 'dist');
  const modules = readdirSync(dist, { encoding: 'utf8' }).filter((name) => name.endsWith('.js'));
  expect(modules).toContain('index.js');
  for (const module of modules) {
    const text = readFileSync(join(dist, module), 'utf8');
    expect(text, module).not.toMatch(/\b(?:require|import)\s*\(/);
    for (const [, specifier] of text.matchAll(/(?:from|import)\s+['"]([^'"]+)['"]/g)) {
      expect(modules, module).toContain(specifier!.replace(/^\.\//, ''));
    }
  }
});

test('the package declares no dependency', () => {
  const manifest = JSON.parse(readFileSync(join(packageFolder, 'package.json'), 'utf8')) as object;
  expect(Object.keys(manifest).filter((key) => /dependencies/i.test(key))).toEqual([]);
});
