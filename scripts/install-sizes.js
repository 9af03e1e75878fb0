// What each way of installing Warmpath costs: `npm run install-sizes` packs the packages, installs them into empty
// folders as a user would, and writes the table of docs/install.md. Needs the npm registry.
import { execFileSync } from 'node:child_process';
import { lstatSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pack } from './pack.js';

const page = join(import.meta.dirname, '../docs/install.md');

/** Every way: the tarball with npm's flags, and what it gives. */
const WAYS = [
  ['core', '@warmpath/core', 'the library'],
  ['', 'warmpath --omit=optional', 'everything but the embedded engine and shared conversations in Redis'],
  ['', 'warmpath', 'gateway, command line, lab, embedded engine and demo model'],
];

const folder = mkdtempSync(join(tmpdir(), 'warmpath-sizes-'));
try {
  const tarballs = pack(join(folder, 'tarballs'), ['packages/core', 'packages/cli']);
  const rows = WAYS.map(([part, words, what], place) => {
    const { packages, megabytes } = measure(join(folder, String(place)), words, tarballs, part);
    return `| \`${words}\` | ${what} | ${packages} | ${megabytes} |`;
  });
  const table = ['| package | what you get | packages | MB |', '| --- | --- | --: | --: |', ...rows].join('\n');
  const text = readFileSync(page, 'utf8');
  const replaced = text.replace(/(<!-- install-sizes -->\n\n).*?(\n\n<!-- \/install-sizes -->)/s, `$1${table}$2`);
  writeFileSync(page, replaced);
  process.stdout.write(`${table}\n`);
} finally {
  rmSync(folder, { recursive: true, force: true });
}

/** Packages and megabytes of `node_modules` after an installation from our tarballs and the registry. */
function measure(target, words, tarballs, part) {
  const prefix = part === '' ? /^warmpath-\d/ : new RegExp(`^warmpath-${part}-\\d`);
  const file = join(
    folder,
    'tarballs',
    tarballs.find((tarball) => prefix.test(tarball)),
  );
  const flags = words.split(' ').slice(1);
  mkdirSync(target, { recursive: true });
  writeFileSync(join(target, 'package.json'), '{"private":true}');
  execFileSync('npm', ['install', '--silent', '--ignore-scripts', '--no-audit', '--no-fund', ...flags, file], {
    cwd: target,
  });
  const modules = join(target, 'node_modules');
  const blocks = readdirSync(modules, { recursive: true }).map((path) => lstatSync(join(modules, path)).blocks);
  const megabytes = Math.round((blocks.reduce((sum, count) => sum + count, 0) * 512) / 2 ** 20);
  const lock = JSON.parse(readFileSync(join(target, 'node_modules/.package-lock.json'), 'utf8'));
  return { packages: Object.keys(lock.packages).length, megabytes };
}
