import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { configDefaults, defineConfig } from 'vitest/config';
import { deadProcesses } from './test/dead-process-reporter.ts';
import { PlainSummaryReporter } from './test/plain-summary-reporter.ts';

/** A hung test ends the run; a slow machine does not. */
const TEST_LIMIT_MS = 300_000;

const EVERY = ['packages/*/test/**/*.test.ts', 'test/*.test.ts'];

/**
 * `npm test` runs every file but `*.full.test.ts`. `npm run test:full` runs these, the packed packages, the frameworks,
 * and again, with all their runs, the properties. The other suites are folders of `test` that need a network.
 */
const suite = process.env['WARMPATH_TEST'] ?? 'fast';
const suites: Readonly<Record<string, { readonly include: string[]; readonly exclude?: string[] }>> = {
  fast: { include: EVERY, exclude: ['**/*.full.test.ts'] },
  full: {
    include: [
      ...EVERY.map((files) => files.replace('.test.ts', '.full.test.ts')),
      ...['packed', 'frameworks'].map((folder) => `test/${folder}/*.test.ts`),
      ...filesWithRuns(),
    ],
  },
};
const { include, exclude = [] } = suites[suite] ?? { include: [`test/${suite}/*.test.ts`] };

/** Files whose properties take their number of runs from `test/suite.ts`. */
function filesWithRuns(): string[] {
  return ['packages', 'test']
    .flatMap((folder) =>
      readdirSync(join(import.meta.dirname, folder), { recursive: true, encoding: 'utf8' })
        .filter((file) => file.endsWith('.test.ts') && !file.includes('node_modules'))
        .map((file) => `${folder}/${file}`),
    )
    .filter((file) => readFileSync(join(import.meta.dirname, file), 'utf8').includes("/suite.js'"));
}

export default defineConfig({
  plugins: [deadProcesses()],
  test: {
    include,
    exclude: [...configDefaults.exclude, ...exclude],
    testTimeout: TEST_LIMIT_MS,
    hookTimeout: TEST_LIMIT_MS,
    expect: { poll: { timeout: TEST_LIMIT_MS } },
    maxWorkers: 2,
    // What is built is loaded as Node loads it for a user. The packages here are links to folders of this repository,
    // so Vite would otherwise load them module by module, anew for each file of tests.
    server: { deps: { external: [/\/packages\/[^/]+\/dist\//] } },
    reporters: ['default', new PlainSummaryReporter()],
  },
});
