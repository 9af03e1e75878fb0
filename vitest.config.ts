import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { configDefaults, defineConfig } from 'vitest/config';
import { deadProcesses } from './test/dead-process-reporter.ts';
import { PlainSummaryReporter } from './test/plain-summary-reporter.ts';

/** A hung test ends the run; a slow machine does not. */
const TEST_LIMIT_MS = 300_000;

const EVERY = ['packages/*/test/**/*.test.ts', 'test/*.test.ts'];
const FULL = '**/*.full.test.ts';
/** Files that replace modules, or choose a native library, for the life of their process. */
const OWN_PROCESS = ['packages/engine/test/native/*.test.ts', ...filesWith('vi.mock(')];

/**
 * `npm test` runs every file but `*.full.test.ts`, many files in one process, so that what is loaded or started for one
 * serves the next. `npm run test:full` runs `*.full.test.ts`, the packed packages, the frameworks, and again, with all
 * their runs, the properties. The other suites are folders of `test`.
 */
const suite = process.env['WARMPATH_TEST'] ?? 'fast';

function suiteOptions() {
  if (suite === 'fast') {
    const shared = { include: EVERY, exclude: [...configDefaults.exclude, FULL, ...OWN_PROCESS], isolate: false };
    return {
      projects: [
        { extends: true as const, test: { name: 'shared process', ...shared } },
        {
          extends: true as const,
          test: { name: 'own process', include: OWN_PROCESS, exclude: [...configDefaults.exclude, FULL] },
        },
      ],
    };
  }
  if (suite === 'full') {
    const full = EVERY.map((files) => files.replace('.test.ts', '.full.test.ts'));
    return {
      include: [...full, 'test/packed/*.test.ts', 'test/frameworks/*.test.ts', ...filesWith("/suite.js'")],
    };
  }
  return { include: [`test/${suite}/*.test.ts`] };
}

function filesWith(text: string): string[] {
  return ['packages', 'test']
    .flatMap((folder) =>
      readdirSync(join(import.meta.dirname, folder), { recursive: true, encoding: 'utf8' })
        .filter((file) => file.endsWith('.test.ts') && !file.includes('node_modules'))
        .map((file) => `${folder}/${file}`),
    )
    .filter((file) => readFileSync(join(import.meta.dirname, file), 'utf8').includes(text));
}

export default defineConfig({
  plugins: [deadProcesses()],
  test: {
    ...suiteOptions(),
    globalSetup: './test/temporary-folder.ts',
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
