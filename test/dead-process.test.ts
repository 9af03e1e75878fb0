import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { isFull } from './suite.js';

interface JsonReport {
  readonly testResults: readonly { readonly name: string; readonly status: string }[];
}

const root = join(import.meta.dirname, '..');
const FILES = [
  'abort-on-import',
  'abort-in-first',
  'abort-in-second',
  'abort-in-third',
  'kill-in-second',
  'exit-in-second',
  'native-exit-in-second',
];

/** Runs files of `test/dead-process` with the configuration of this repository. */
function runVitest(files: readonly string[], ...options: readonly string[]) {
  const paths = files.map((file) => `test/dead-process/${file}.test.ts`);
  const environment = Object.entries(process.env).filter(([name]) => !name.startsWith('VITEST'));
  const env = { ...Object.fromEntries(environment), WARMPATH_TEST: 'dead-process' };
  return new Promise<{ code: number | null; stdout: string }>((resolve) => {
    const args = ['node_modules/vitest/vitest.mjs', 'run', ...options, ...paths];
    const child = execFile(process.execPath, args, { cwd: root, env }, (_error, stdout) => {
      resolve({ code: child.exitCode, stdout });
    });
  });
}

describe('a process that dies while it runs tests', () => {
  it('fails its file in every report', async () => {
    const { code, stdout } = await runVitest([...FILES, 'passing'], '--reporter=json');
    const { testResults } = JSON.parse(stdout.slice(stdout.indexOf('{"num'))) as JsonReport;
    const status = (file: string) => testResults.find(({ name }) => name.endsWith(`/${file}.test.ts`))?.status;
    expect(FILES.filter((file) => status(file) !== 'failed')).toEqual([]);
    expect(status('passing')).toBe('passed');
    expect(code).toBe(1);
  });

  // What ended just before the process died may not have been reported.
  it.runIf(isFull).each([
    ['native-exit-in-second', /\n[1-2] passed, [2-4] failed, 0 skipped\n$/],
    ['abort-after-third', /\n[1-4] passed, [1-4] failed, 0 skipped\n$/],
  ])('fails the run, and counts in its last line: %s', async (file, lastLine) => {
    const { code, stdout } = await runVitest([file, 'passing']);
    expect(code).toBe(1);
    expect(stdout).toMatch(lastLine);
  });
});
