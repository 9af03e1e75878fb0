import { defineConfig } from 'vitest/config';
import { PlainSummaryReporter } from './test/plain-summary-reporter.ts';

// `npm test` runs everything that needs no network; `npm run test:packed` installs the packed packages as a user would.
const packed = process.env.WARMPATH_TEST === 'packed';

export default defineConfig({
  test: {
    include: packed ? ['test/packed/**/*.test.ts'] : ['packages/*/test/**/*.test.ts', 'test/*.test.ts'],
    // A hung socket must still end the run; the real engine shares two cores with the rest of the suite.
    testTimeout: 30_000,
    hookTimeout: 60_000,
    maxWorkers: 2,
    reporters: ['default', new PlainSummaryReporter()],
  },
});
