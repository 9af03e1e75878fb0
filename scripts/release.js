// Checks that a release can be made, packs it, and says what would be published: `npm run release`. With `--publish`
// it publishes, with provenance, which npm grants to a build on a CI service only.
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { CHECKSUMS, pack, publishedPackages } from './pack.js';

const root = resolve(import.meta.dirname, '..');
const folder = join(root, 'release');
const isPublishing = process.argv.includes('--publish');

const manifests = publishedPackages().map((path) => JSON.parse(readFileSync(join(root, path, 'package.json'), 'utf8')));
const { version } = manifests[0];
const problems = [
  ...treeProblems(),
  ...versionProblems(),
  ...changelogProblems(),
  ...repositoryProblems(),
  ...buildProblems(),
];
for (const problem of problems) process.stderr.write(`- ${problem}\n`);
if (problems.length > 0) {
  process.stderr.write(`No release: ${problems.length} of the checks failed.\n`);
  process.exit(1);
}

const tarballs = pack(folder, publishedPackages());
process.stdout.write(`${version}: ${tarballs.length} packages and ${CHECKSUMS} in ${folder}\n`);
for (const { name } of manifests) {
  const tarball = `${name.replace('@', '').replace('/', '-')}-${version}.tgz`;
  const command = ['publish', join(folder, tarball), '--provenance', '--access', 'public'];
  process.stdout.write(`npm ${command.join(' ')}\n`);
  if (isPublishing) execFileSync('npm', command, { cwd: root, stdio: 'inherit' });
}
if (!isPublishing) process.stdout.write('Nothing was published. `npm run release -- --publish` does it.\n');

/** Everything that is released must be committed. */
function treeProblems() {
  const changed = execFileSync('git', ['status', '--porcelain'], { cwd: root, encoding: 'utf8' }).trim();
  return changed === '' ? [] : [`the working tree has changes; commit or stash them:\n${changed}`];
}

/** All packages have one version, and depend on exactly that of each other. */
function versionProblems() {
  return manifests.flatMap((manifest) => {
    const own =
      manifest.version === version ? [] : [`${manifest.name} has version ${manifest.version}, not ${version}`];
    const ranges = { ...manifest.dependencies, ...manifest.optionalDependencies };
    const others = Object.entries(ranges)
      .filter(([name, range]) => isOurs(name) && range !== version)
      .map(([name, range]) => `${manifest.name} depends on ${name} ${range}, not ${version}`);
    return [...own, ...others];
  });
}

function isOurs(name) {
  return manifests.some((manifest) => manifest.name === name);
}

/** The changelog has a section of this version, and nothing waits under [Unreleased]. */
function changelogProblems() {
  const sections = readFileSync(join(root, 'CHANGELOG.md'), 'utf8').split(/^## /m);
  const sectionOf = (name) => sections.find((section) => section.startsWith(`[${name}]`));
  const missing = sectionOf(version) === undefined ? [`CHANGELOG.md has no section ## [${version}]`] : [];
  const isWaiting = /^- /m.test(sectionOf('Unreleased') ?? '');
  return isWaiting ? [...missing, 'CHANGELOG.md has entries under [Unreleased]; move them below the version'] : missing;
}

/** npm refuses `--provenance` for a package that does not name the repository that it is built from. */
function repositoryProblems() {
  const missing = manifests.filter(
    ({ repository }) => !(typeof repository === 'string' ? repository : repository?.url),
  );
  if (missing.length === 0) return [];
  const names = missing.map(({ name }) => name).join(', ');
  return [`package.json has no repository, which npm wants for --provenance; set it to the URL of yours: ${names}`];
}

/** Every package is built. */
function buildProblems() {
  return publishedPackages()
    .filter((path) => !existsSync(join(root, path, 'dist')))
    .map((path) => `${path} is not built; run npm run build`);
}
