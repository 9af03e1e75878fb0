import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { WORKLOAD_CATALOGUE } from '../src/index.js';

const packageFolder = fileURLToPath(new URL('..', import.meta.url));
const readme = readFileSync(`${packageFolder}/README.md`, 'utf8');

test("the README's example runs, on the built package", () => {
  const example = /```ts\n([\s\S]*?)```/.exec(readme)?.[1]?.replace(": 'retrieval' | 'exact'", '');
  expect(example).toBeDefined();
  const code = `${example}\nconsole.log(JSON.stringify({ figures, small: small.length }));`;
  const output = execFileSync(process.execPath, ['--input-type=module', '--eval', code], {
    cwd: packageFolder,
    encoding: 'utf8',
  });
  const { figures, small } = JSON.parse(output);
  expect(figures.retrieval).toBeCloseTo(0.653, 9);
  expect(figures.exact).toBeCloseTo(0.699, 9);
  expect(small).toBe(200);
});

test('the page on workloads names only those that exist', () => {
  const page = readFileSync(`${packageFolder}/../../docs/lab/workloads.md`, 'utf8');
  const named = [...page.matchAll(/^- \*\*([\w-]+)\*\*/gm)].map(([, name]) => name);
  expect(named.length).toBeGreaterThan(0);
  expect(WORKLOAD_CATALOGUE.map(({ name }) => name)).toEqual(expect.arrayContaining(named));
});
