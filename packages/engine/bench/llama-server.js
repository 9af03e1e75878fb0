// Prints the path of a llama-server, the peer of benchmarks and tests: `LLAMA_SERVER`, the one in `PATH`, or one that
// is built from the source that node-llama-cpp carries and kept in the cache folder. Building takes six minutes on two
// cores, and npm, git, cmake and a C++ compiler. `node bench/llama-server.js [--no-build]`, after a build; with
// `--no-build`, nothing is printed where there is none.
import { execFileSync, spawn } from 'node:child_process';
import {
  accessSync,
  constants,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
} from 'node:fs';
import { availableParallelism } from 'node:os';
import { delimiter, dirname, join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { cacheFolder } from '../dist/models/cache-folder.js';
import { findLibraryDirectory, LLAMA_RELEASE, NATIVE_PACKAGE_VERSION } from '../dist/native/library.js';

const NAME = 'llama-server';
/** The npm package that holds llama.cpp's source, of the release that the engine computes with. */
const SOURCE_PACKAGE = `node-llama-cpp@${NATIVE_PACKAGE_VERSION}`;
const CMAKE_OPTIONS = [
  'CMAKE_BUILD_TYPE=Release',
  'CMAKE_BUILD_WITH_INSTALL_RPATH=ON',
  'CMAKE_INSTALL_RPATH=$ORIGIN',
  'LLAMA_OPENSSL=OFF',
  'LLAMA_BUILD_TESTS=OFF',
  'LLAMA_BUILD_EXAMPLES=OFF',
  'LLAMA_BUILD_UI=OFF',
  'LLAMA_USE_PREBUILT_UI=OFF',
  'LLAMA_BUILD_APP=OFF',
].map((option) => `-D${option}`);

/** The one that is there; `undefined` where none is. Throws: `LLAMA_SERVER` names none. */
export function findLlamaServer(environment = process.env) {
  const { LLAMA_SERVER: named, PATH: path = '' } = environment;
  if (named) {
    if (!isProgram(named)) throw new Error(`LLAMA_SERVER names no program: ${named}`);
    return resolve(named);
  }
  const folders = path.split(delimiter).filter(Boolean);
  return folders.map((folder) => join(folder, NAME)).find(isProgram) ?? [builtServer()].find(isProgram);
}

/** The one that is there, or one that is built now. */
export function llamaServer() {
  return findLlamaServer() ?? buildServer();
}

/** Where a server that was built is kept. */
function builtServer() {
  return join(cacheFolder(), NAME, `${LLAMA_RELEASE}-${process.platform}-${process.arch}`, NAME);
}

function buildServer() {
  const kept = dirname(builtServer());
  mkdirSync(dirname(kept), { recursive: true });
  const work = mkdtempSync(`${kept}-building-`);
  const run = (command, ...args) => {
    console.error(`${NAME}: ${command} ${args[0]}`);
    execFileSync(command, args, { cwd: work, stdio: ['ignore', 'ignore', 'inherit'] });
  };
  try {
    run('npm', 'pack', '--silent', SOURCE_PACKAGE);
    run('tar', '-xzf', `${SOURCE_PACKAGE.replace('@', '-')}.tgz`, 'package/llama/gitRelease.bundle');
    run('git', '-c', 'advice.detachedHead=false', 'clone', '--quiet', 'package/llama/gitRelease.bundle', 'source');
    run('cmake', '-S', 'source', '-B', 'build', ...CMAKE_OPTIONS);
    run('cmake', '--build', 'build', '--target', NAME, '--parallel', `${availableParallelism()}`);
    const made = join(work, 'made');
    mkdirSync(made);
    const bin = join(work, 'build', 'bin');
    for (const file of readdirSync(bin).filter((name) => name === NAME || /\.(so|dylib)/.test(name))) {
      cpSync(join(bin, file), join(made, file), { verbatimSymlinks: true });
    }
    rmSync(kept, { recursive: true, force: true });
    renameSync(made, kept);
    return builtServer();
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/** Starts it; its libraries stand beside it, and one of another build does not look for them there by itself. */
export function spawnLlamaServer(path, flags, { stdio = 'ignore', libraries = [], cwd } = {}) {
  const folders = [...libraries, dirname(realpathSync(path)), process.env.LD_LIBRARY_PATH];
  const env = { ...process.env, LD_LIBRARY_PATH: folders.filter(Boolean).join(delimiter) };
  return spawn(path, flags, { env, stdio, cwd });
}

/**
 * How to start a llama-server of the engine's release so that it computes with the engine's own libraries: under the
 * names that it looks for, and in the folder where llama.cpp looks for CPU code. Both then differ in nothing else.
 */
export function engineLibraries() {
  const cwd = findLibraryDirectory();
  const links = join(cacheFolder(), NAME, 'links');
  rmSync(links, { recursive: true, force: true });
  mkdirSync(links, { recursive: true });
  for (const name of ['ggml-base', 'ggml', 'llama']) {
    const file = readdirSync(cwd).find((each) => new RegExp(`^lib${name}(\\.v[\\d.]+)?\\.so$`).test(each));
    symlinkSync(join(cwd, file), join(links, `lib${name}.so.0`));
  }
  return { libraries: [links, cwd], cwd };
}

/** Starts it for a test, with 8,192 cells and one thread: the process, and its address once it listens. */
export function startLlamaServer(path, { model, port, flags = [] }) {
  const given = ['-m', model, '-t', '1', '-c', '8192', '--host', '127.0.0.1', '--port', `${port}`];
  const child = spawnLlamaServer(path, [...given, ...flags], { stdio: ['ignore', 'ignore', 'pipe'] });
  const listening = async () => {
    for await (const line of createInterface(child.stderr)) if (/listening/.test(line)) break;
    child.stderr.resume();
    return `http://127.0.0.1:${port}`;
  };
  return { child, url: listening() };
}

function isProgram(path) {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

if (process.argv[1] !== undefined && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
  const { values } = parseArgs({ options: { 'no-build': { type: 'boolean' } } });
  const path = values['no-build'] ? findLlamaServer() : llamaServer();
  if (path !== undefined) console.log(path);
}
