// Prints the path of a llama-server, the peer of benchmarks and tests: `LLAMA_SERVER`, the one in `PATH`, or one that
// is built from the source that node-llama-cpp carries and kept in the cache folder. Building takes six minutes on two
// cores, and npm, git, cmake and a C++ compiler. `node bench/llama-server.js [--no-build]`, after a build; with
// `--no-build`, nothing is printed where there is none.
import { spawn } from 'node:child_process';
import { accessSync, constants, realpathSync, statSync } from 'node:fs';
import { delimiter, dirname, join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { buildServer, builtServer } from '../dist/native/built-libraries.js';

const NAME = 'llama-server';

/** The one that is there; `undefined` where none is. Throws: `LLAMA_SERVER` names none. */
export function findLlamaServer(environment = process.env) {
  const { LLAMA_SERVER: named, PATH: path = '' } = environment;
  if (named) {
    if (!isProgram(named)) throw new Error(`LLAMA_SERVER names no program: ${named}`);
    return resolve(named);
  }
  const folders = path.split(delimiter).filter(Boolean);
  return folders.map((folder) => join(folder, NAME)).find(isProgram) ?? builtServer();
}

/** The one that is there, or one that is built now. */
export async function llamaServer() {
  return findLlamaServer() ?? (await buildServer(undefined, { onStep: (step) => console.error(`${NAME}: ${step}`) }));
}

/** Starts it; its libraries stand beside it, and one of another build does not look for them there by itself. */
export function spawnLlamaServer(path, flags, stdio = 'ignore') {
  const folder = dirname(realpathSync(path));
  const libraries = [folder, process.env.LD_LIBRARY_PATH].filter(Boolean).join(delimiter);
  return spawn(path, flags, { env: { ...process.env, LD_LIBRARY_PATH: libraries }, stdio });
}

/** Starts it for a test, with 8,192 cells and one thread: the process, and its address once it listens. */
export function startLlamaServer(path, { model, port, flags = [] }) {
  const given = ['-m', model, '-t', '1', '-c', '8192', '--host', '127.0.0.1', '--port', `${port}`];
  const child = spawnLlamaServer(path, [...given, ...flags], ['ignore', 'ignore', 'pipe']);
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
  const path = values['no-build'] ? findLlamaServer() : await llamaServer();
  if (path !== undefined) console.log(path);
}
