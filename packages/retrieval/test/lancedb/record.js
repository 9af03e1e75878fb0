// Records what LanceDB answers, for tests that run without it:
//
//   npm install --prefix <folder> @lancedb/lancedb@0.37
//   npm run record:lancedb -w packages/retrieval -- <folder>
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createViteServer } from 'vitest/node';

const FIXTURE = join(import.meta.dirname, 'fixtures/lancedb-0.37.json');

const installed = process.argv[2];
if (installed === undefined) throw new Error('Name the folder that @lancedb/lancedb is installed in.');
const folder = await mkdtemp(join(tmpdir(), 'warmpath-lancedb-'));
// What is recorded is described in TypeScript, which Node 20 does not read.
const vite = await createViteServer({
  configFile: false,
  appType: 'custom',
  server: { middlewareMode: true, ws: false },
});
try {
  const { RealLanceDb } = await vite.ssrLoadModule(join(import.meta.dirname, 'recording.ts'));
  const { version, rows, exchanges } = await new RealLanceDb(resolve(installed), folder).record();
  const lines = (values) => `[\n${values.map((value) => JSON.stringify(value)).join(',\n')}\n]`;
  const tables = Object.entries(rows).map(([name, values]) => `${JSON.stringify(name)}: ${lines(values)}`);
  const json = `{ "version": "${version}",\n"rows": {\n${tables.join(',\n')}\n},\n"exchanges": ${lines(exchanges)} }\n`;
  JSON.parse(json);
  await writeFile(FIXTURE, json);
} finally {
  await vite.close();
  await rm(folder, { recursive: true, force: true });
}
