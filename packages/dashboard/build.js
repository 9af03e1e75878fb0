// Builds the page into `dist/index.html`, if one of its sources is newer than it. Run from anywhere, and by `npm run
// build` of the workspace: without a change it costs a look at some files.
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';

const PAGE = join(import.meta.dirname, 'dist/index.html');
const SOURCES = ['page', 'src', 'vite.config.ts', 'package.json', 'build.js'];

const newest = Math.max(...SOURCES.map((name) => newestIn(join(import.meta.dirname, name))));
const built = statSync(PAGE, { throwIfNoEntry: false })?.mtimeMs ?? 0;
if (newest > built) {
  const { build } = await import('vite');
  await build({ root: join(import.meta.dirname, 'page'), configFile: join(import.meta.dirname, 'vite.config.ts') });
}

/** When a file, or a file in a folder, was changed last. */
function newestIn(path) {
  const status = statSync(path);
  if (!status.isDirectory()) return status.mtimeMs;
  const inside = readdirSync(path, { recursive: true }).map((name) => statSync(join(path, name)).mtimeMs);
  return Math.max(status.mtimeMs, ...inside);
}
