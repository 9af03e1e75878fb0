import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '..');

it('every threat of the threat model names tests that are there', () => {
  const [, model] = readFileSync(join(ROOT, 'SECURITY.md'), 'utf8').split('| threat | what holds it | shown by |');
  const threats = model!.split('\n').filter((line) => line.startsWith('| ') && !line.startsWith('| ---'));
  expect(threats.length).toBeGreaterThan(15);
  for (const line of threats) {
    const files = [...line.matchAll(/`([^`]+\.test\.ts)`/g)].map(([, file]) => file!);
    expect(files.length, line).toBeGreaterThan(0);
    for (const file of files) expect(existsSync(join(ROOT, file)), file).toBe(true);
  }
});
