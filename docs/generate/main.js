// Writes the reference pages from schemas, tables and doc comments, or with `--check` says which are out of date.
// The packages must be built: `npm run docs:generate` does both.
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { apiPage } from './api.js';
import { benchmarksPage } from './benchmarks.js';
import { cliPage } from './cli.js';
import { configurationPage } from './configuration.js';
import { drawings } from './drawing.js';
import { errorsPage } from './errors.js';
import { headersPage } from './headers.js';
import { httpPage, openApiFile } from './http.js';
import { metricsPage } from './metrics.js';

const docs = join(import.meta.dirname, '..');
const isCheck = process.argv.includes('--check');

/** Every generated file, by its path below `docs/`. */
const files = {
  'benchmarks.md': benchmarksPage(),
  'reference/configuration.md': configurationPage(),
  'reference/http.md': httpPage(),
  'public/openapi.json': openApiFile(),
  'reference/headers.md': headersPage(),
  'reference/metrics.md': metricsPage(),
  'reference/errors.md': errorsPage(),
  'reference/cli.md': await cliPage(),
  'reference/core.md': apiPage('core'),
  ...drawings(),
};

const outdated = [];
for (const [path, text] of Object.entries(files)) {
  const file = join(docs, path);
  const present = await readFile(file, 'utf8').catch(() => undefined);
  if (present === text) continue;
  outdated.push(relative(process.cwd(), file));
  if (isCheck) continue;
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, text);
}
if (isCheck && outdated.length > 0) {
  process.stderr.write(
    `Out of date: ${outdated.join(', ')}. Run \`npm run docs:generate\` and commit what it writes.\n`,
  );
  process.exitCode = 1;
}
