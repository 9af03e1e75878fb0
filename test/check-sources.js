// Checks sources, all at once: types, lint, files, exports and dependencies that nothing uses (knip), import cycles,
// those of types alone included (Biome), and comments that are wider than code may be.
import { spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** Packages that these checks leave out for now. Delete a name to turn them on for it. */
const NOT_YET_CLEAN = [];

/** As biome.json has it for code. */
const WIDTH = 120;
/** A line that is a comment or a part of one, or code with a comment behind it. */
const COMMENT = /^\s*(?:\/\/|\/?\*)|[;,{}()[\]] \/\/ /;
const SOURCE = /^(?!.*(?:node_modules|dist|dist-test|fixtures)\/).*\.(?:ts|js)$/;

const leftOut = NOT_YET_CLEAN.map((name) => `packages/${name}`);
const folders = readdirSync('packages')
  .map((name) => `packages/${name}`)
  .filter((folder) => !leftOut.includes(folder));
folders.push('test', 'scripts', 'docs/generate', 'docs/.vitepress/theme', 'examples');

const results = await Promise.all([
  run('tsc', ['--project', 'tsconfig.test.json']),
  run('tsc', ['--project', 'packages/dashboard/page']),
  run('biome', ['check', '--error-on-warnings', '.']),
  run('knip', ['--no-progress', ...leftOut.map((folder) => `--workspace=!${folder}`)]),
  run('biome', ['lint', '--only=suspicious/noImportCycles', '--error-on-warnings', ...folders]),
]);
const wide = folders.flatMap(wideComments);
for (const place of wide) {
  process.stderr.write(`${place}: a comment is wider than ${WIDTH} columns\n`);
}
process.exitCode = results.every((isClean) => isClean) && wide.length === 0 ? 0 : 1;

/** Runs a tool of the workspace, whose output is shown when it has found something. */
function run(tool, args) {
  const child = spawn(join('node_modules', '.bin', tool), args);
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text) => {
      output += text;
    });
  }
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => {
      if (code !== 0) {
        process.stderr.write(output);
      }
      resolve(code === 0);
    });
  });
}

/** The lines with comments that are too wide, as `file:line`. */
function wideComments(folder) {
  return readdirSync(folder, { recursive: true })
    .map((path) => join(folder, path))
    .filter((path) => SOURCE.test(path))
    .flatMap((path) => {
      const lines = readFileSync(path, 'utf8').split('\n');
      return lines.flatMap((line, index) =>
        [...line].length > WIDTH && COMMENT.test(line) ? `${path}:${index + 1}` : [],
      );
    });
}
