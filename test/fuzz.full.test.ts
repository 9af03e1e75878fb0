import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';

const FUZZ = join(import.meta.dirname, '../scripts/fuzz');

async function fuzz(...args: readonly string[]): Promise<{ code: number; found: string; summary: string }> {
  const child = spawn(process.execPath, [join(FUZZ, 'main.js'), ...args]);
  let summary = '';
  let found = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    summary += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    found += text;
  });
  const [code] = (await once(child, 'close')) as [number];
  return { code, found, summary };
}

it('no input of the corpus, and none that a seeded run makes of it, breaks a promise', async () => {
  const { code, found, summary } = await fuzz('--runs', '300');
  expect(code, found).toBe(0);
  const lines = summary.trimEnd().split('\n');
  expect(lines.length).toBeGreaterThan(10);
  for (const line of lines.slice(0, -1)) {
    const [, executions, branches] = /(\d+) executions, (\d+) branches/.exec(line)!;
    expect(Number(executions), line).toBeGreaterThan(300);
    expect(Number(branches), line).toBeGreaterThan(5);
  }
});

it('the corpus stays small', () => {
  const folder = join(FUZZ, 'corpus');
  const bytes = readdirSync(folder).reduce((sum, name) => sum + statSync(join(folder, name)).size, 0);
  expect(bytes).toBeLessThan(300 * 1024);
});
