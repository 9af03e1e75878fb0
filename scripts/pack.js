// Packs what a user installs into a folder, with the SHA-256 of each tarball:
// `npm run pack [-- <folder> [<package folder> ...]]`. Without package folders: the program and the library.
// The contents of `dist` are packed, so build before.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(import.meta.dirname, '..');

/** Its tarball holds the packages of ours that it needs. */
const PROGRAM = 'packages/cli';
const LIBRARY = 'packages/core';

/** File of the checksums, in the format of `sha256sum --check`. */
export const CHECKSUMS = 'SHA256SUMS';

/** Folders of the packages that are published. */
export function publishedPackages() {
  return [...workspaces().values()].filter(({ manifest }) => manifest.private !== true).map(({ path }) => path);
}

/** Packs these packages into `folder`, which is emptied before. Returns the names of the tarballs. */
export function pack(folder, paths) {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const plain = paths.filter((path) => path !== PROGRAM);
  if (plain.length > 0) npmPack(root, plain, folder);
  if (paths.includes(PROGRAM)) packProgram(folder);
  const tarballs = readdirSync(folder).toSorted();
  const lines = tarballs.map((tarball) => `${sha256(join(folder, tarball))}  ${tarball}\n`);
  writeFileSync(join(folder, CHECKSUMS), lines.join(''));
  return tarballs;
}

/**
 * One tarball that installs alone. Our packages are bundled in it; its manifest names their dependencies, which npm
 * takes from the registry.
 */
function packProgram(folder) {
  const stage = mkdtempSync(join(tmpdir(), 'warmpath-pack-'));
  try {
    const parts = partsOf(PROGRAM);
    const packed = join(stage, 'packed');
    mkdirSync(packed);
    npmPack(root, [PROGRAM, ...parts.map(({ path }) => path)], packed);
    const target = join(stage, 'program');
    const manifest = unpack(packed, readManifest(PROGRAM), target);
    for (const { manifest: part } of parts) {
      const own = unpack(packed, part, join(target, 'node_modules', part.name));
      writeManifest(join(target, 'node_modules', part.name), withoutDependencies(own));
    }
    writeManifest(target, { ...manifest, ...mergedDependencies([{ manifest, isOptional: false }, ...parts]) });
    execFileSync('npm', ['pack', '--silent', '--pack-destination', folder], { cwd: target });
  } finally {
    rmSync(stage, { recursive: true, force: true });
  }
}

/** The packages of ours that a package needs, each once. Optional: reached by an optional dependency alone. */
function partsOf(path) {
  const ours = workspaces();
  const required = reach([readManifest(path)], ({ dependencies }) => dependencies);
  const all = reach([readManifest(path)], ({ dependencies, optionalDependencies }) => ({
    ...dependencies,
    ...optionalDependencies,
  }));
  return [...all].map((name) => ({ ...ours.get(name), isOptional: !required.has(name) }));

  function reach(manifests, dependenciesOf, found = new Set()) {
    for (const manifest of manifests) {
      const names = Object.keys(dependenciesOf(manifest) ?? {}).filter((name) => ours.has(name) && !found.has(name));
      for (const name of names) found.add(name);
      reach(
        names.map((name) => ours.get(name).manifest),
        dependenciesOf,
        found,
      );
    }
    return found;
  }
}

/** What the program takes from the registry, and what it bundles. Throws where two packages want different versions. */
function mergedDependencies(parts) {
  const bundled = Object.fromEntries(parts.slice(1).map(({ manifest }) => [manifest.name, manifest.version]));
  const merged = { dependencies: { ...bundled }, optionalDependencies: {} };
  const add = (field, ranges = {}) => {
    for (const [name, range] of Object.entries(ranges)) {
      if (name in bundled) continue;
      const other = merged.dependencies[name] ?? merged.optionalDependencies[name] ?? range;
      if (other !== range) throw new Error(`${name} is wanted as ${other} and as ${range}`);
      if (merged.dependencies[name] === undefined) merged[field][name] = range;
    }
  };
  for (const { manifest, isOptional } of parts.toSorted((one, other) => one.isOptional - other.isOptional)) {
    add(isOptional ? 'optionalDependencies' : 'dependencies', manifest.dependencies);
  }
  for (const { manifest } of parts) add('optionalDependencies', manifest.optionalDependencies);
  return { ...merged, bundleDependencies: Object.keys(bundled) };
}

/** npm must not look for the dependencies of a bundled package: the program's manifest names them. */
function withoutDependencies(manifest) {
  const left = ['dependencies', 'optionalDependencies', 'peerDependencies', 'peerDependenciesMeta', 'devDependencies'];
  return Object.fromEntries(Object.entries(manifest).filter(([field]) => !left.includes(field)));
}

function npmPack(cwd, paths, folder) {
  const names = paths.flatMap((path) => ['--workspace', path]);
  execFileSync('npm', ['pack', '--silent', ...names, '--pack-destination', folder], { cwd });
}

/** Unpacks the tarball of a package into `target`. Returns its manifest, without what only a checkout needs. */
function unpack(packed, { name, version }, target) {
  mkdirSync(target, { recursive: true });
  const tarball = join(packed, `${name.replace('@', '').replace('/', '-')}-${version}.tgz`);
  execFileSync('tar', ['-xzf', tarball, '-C', target, '--strip-components=1']);
  const { scripts, devDependencies, ...manifest } = readJson(join(target, 'package.json'));
  return manifest;
}

/** Every package of the repository, by its name. */
function workspaces() {
  const paths = readJson(join(root, 'package.json')).workspaces;
  return new Map(paths.map((path) => [readManifest(path).name, { path, manifest: readManifest(path) }]));
}

function readManifest(path) {
  return readJson(join(root, path, 'package.json'));
}

function writeManifest(folder, manifest) {
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(manifest, undefined, 2)}\n`);
}

function sha256(file) {
  return createHash('sha256').update(readFileSync(file)).digest('hex');
}

function readJson(file) {
  return JSON.parse(readFileSync(file, 'utf8'));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [folder = join(root, 'release'), ...paths] = process.argv.slice(2);
  const tarballs = pack(resolve(folder), paths.length === 0 ? [PROGRAM, LIBRARY] : paths);
  process.stdout.write(`${tarballs.join('\n')}\n${CHECKSUMS}\nin ${resolve(folder)}\n`);
}
