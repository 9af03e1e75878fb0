import { defineConfig } from 'vitest/config';
import { PlainSummaryReporter } from './test/plain-summary-reporter.ts';

// `npm test` runs everything that needs no network; `npm run test:packed` installs the packed packages as a user would,
// `npm run test:node-versions` runs them on every supported line of Node, `npm run test:first-steps` does what a new
// user does with a clone, `npm run test:frameworks` runs adapters in frameworks that are installed apart, and
// `npm run test:containers` builds and runs the images of the Dockerfile.
const INSTALLED = ['packed', 'node-versions', 'first-steps', 'frameworks', 'containers'];
const kind = INSTALLED.find((name) => name === process.env.WARMPATH_TEST);

export default defineConfig({
  test: {
    include: kind ? [`test/${kind}/*.test.ts`] : ['packages/*/test/**/*.test.ts', 'test/*.test.ts'],
    // A hung socket must still end the run; the real engine shares two cores with the rest of the suite.
    // What is installed for a test alone is loaded for the first time, and is large.
    testTimeout: kind ? 120_000 : 30_000,
    hookTimeout: 60_000,
    maxWorkers: 2,
    // What is built is loaded as Node loads it for a user. The packages here are links to folders of this repository,
    // so Vite would otherwise load them module by module, anew for each file of tests.
    server: { deps: { external: [/\/packages\/[^/]+\/dist\//] } },
    reporters: ['default', new PlainSummaryReporter()],
  },
});
