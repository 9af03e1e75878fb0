// Packs every published package into a folder, with the SHA-256 of each tarball: `npm run pack [-- <folder>]`.
// What is in `dist` is packed, so build before.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(import.meta.dirname, '..');

/** File of the checksums, in the format of `sha256sum --check`. */
export const CHECKSUMS = 'SHA256SUMS';

/** Folders of the packages that npm gets, those first that others depend on. */
export function publishedPackages() {
  const { workspaces } = readJson(join(root, 'package.json'));
  return workspaces.filter((folder) => readJson(join(root, folder, 'package.json')).private !== true);
}

/** Packs all of them into `folder`, which is emptied before, and returns the names of the tarballs. */
export function pack(folder) {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const names = publishedPackages().flatMap((name) => ['--workspace', name]);
  execFileSync('npm', ['pack', '--silent', ...names, '--pack-destination', folder], { cwd: root });
  const tarballs = readdirSync(folder).toSorted();
  const lines = tarballs.map((tarball) => `${sha256(join(folder, tarball))}  ${tarball}\n`);
  writeFileSync(join(folder, CHECKSUMS), lines.join(''));
  return tarballs;
}

function sha256(file) {
  return createHash('sha256').update(readFileSync(file)).digest('hex');
}

function readJson(file) {
  return JSON.parse(readFileSync(file, 'utf8'));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const folder = resolve(process.argv[2] ?? join(root, 'release'));
  const tarballs = pack(folder);
  process.stdout.write(`${tarballs.length} packages and ${CHECKSUMS} in ${folder}\n`);
}
