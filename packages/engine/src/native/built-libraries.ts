import { spawn } from 'node:child_process';
import { hash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { cp, mkdir, mkdtemp, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { availableParallelism, cpus, platform } from 'node:os';
import { join } from 'node:path';
import { WarmpathError } from '@warmpath/core';
import { cacheFolder } from '../models/cache-folder.js';
import { BUILD_METADATA, LLAMA_RELEASE, NATIVE_PACKAGE_VERSION } from './library.js';

/** The npm package whose archive holds llama.cpp's source, of the release that the prebuilt libraries are of. */
const SOURCE_PACKAGE = `node-llama-cpp@${NATIVE_PACKAGE_VERSION}`;

/** Lines of a failed step's output that its error shows. */
const SHOWN_LINES = 5;

export interface BuildHooks {
  /** Hears what is done next. */
  readonly onStep?: (what: string) => void;
  readonly signal?: AbortSignal;
}

/**
 * The folder of libraries that {@link buildLibraries} made for this machine's processor and this release.
 *
 * @returns `undefined` when there are none.
 */
export function builtLibraries(folder: string = cacheFolder()): string | undefined {
  const directory = directoryOf(folder);
  return existsSync(join(directory, BUILD_METADATA)) ? directory : undefined;
}

/**
 * Builds llama.cpp for this processor from its source, which comes from the npm registry, and keeps the libraries in
 * the cache folder, where later starts find them. The prebuilt ones are made by an older compiler, whose products of
 * f16 matrices take twice as long. Needs npm, git, cmake and a C++ compiler. Cost: some minutes of all cores, 40 MB
 * from the registry.
 *
 * @returns The folder of the libraries.
 * @throws WARMPATH_NATIVE_MISSING when a tool is missing or fails, with the end of what it said; the signal's reason.
 */
export async function buildLibraries(folder: string = cacheFolder(), hooks: BuildHooks = {}): Promise<string> {
  const { onStep = () => undefined, signal } = hooks;
  const parent = join(folder, 'libraries');
  await mkdir(parent, { recursive: true });
  const work = await mkdtemp(join(parent, 'building-'));
  const run = (command: string, args: string[]): Promise<void> => runTool(command, args, work, signal);
  try {
    onStep('fetching the source');
    await run('npm', ['pack', '--silent', SOURCE_PACKAGE]);
    await run('tar', ['-xzf', `${SOURCE_PACKAGE.replace('@', '-')}.tgz`, 'package/llama/gitRelease.bundle']);
    await run('git', ['clone', '--quiet', 'package/llama/gitRelease.bundle', 'source']);
    onStep('configuring');
    await run('cmake', ['-S', 'source', '-B', 'build', ...cmakeOptions()]);
    onStep('compiling');
    const jobs = String(availableParallelism());
    await run('cmake', ['--build', 'build', '--config', 'Release', '--target', 'llama', '--parallel', jobs]);
    const made = join(work, 'libraries');
    await mkdir(made);
    for (const name of (await readdir(join(work, 'build', 'bin'))).filter((file) => /\.(so|dylib)/.test(file))) {
      await cp(join(work, 'build', 'bin', name), join(made, name), { verbatimSymlinks: true });
    }
    await writeFile(
      join(made, BUILD_METADATA),
      JSON.stringify({ buildOptions: { llamaCpp: { release: LLAMA_RELEASE } } }),
    );
    const directory = directoryOf(folder);
    await rm(directory, { recursive: true, force: true });
    await rename(made, directory);
    return directory;
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

function cmakeOptions(): string[] {
  const options = {
    CMAKE_BUILD_TYPE: 'Release',
    // A library finds the others beside it, wherever the folder lies.
    CMAKE_BUILD_WITH_INSTALL_RPATH: 'ON',
    CMAKE_INSTALL_RPATH: platform() === 'darwin' ? '@loader_path' : '$ORIGIN',
    GGML_NATIVE: 'ON',
    // The engine brings a pool of threads of its own, as for the prebuilt libraries.
    GGML_OPENMP: 'OFF',
    LLAMA_OPENSSL: 'OFF',
    LLAMA_BUILD_COMMON: 'OFF',
    LLAMA_BUILD_TESTS: 'OFF',
    LLAMA_BUILD_EXAMPLES: 'OFF',
    LLAMA_BUILD_TOOLS: 'OFF',
    LLAMA_BUILD_SERVER: 'OFF',
  };
  return Object.entries(options).map(([name, value]) => `-D${name}=${value}`);
}

/** Libraries of another release, or built for another processor, are not taken: they may not run here. */
function directoryOf(folder: string): string {
  const processor = hash('sha256', JSON.stringify([process.arch, cpus()[0]?.model, readCpuFlags()]));
  return join(folder, 'libraries', `${LLAMA_RELEASE}-${platform()}-${processor.slice(0, 16)}`);
}

/** What the processor can, where the system says it. */
function readCpuFlags(): string | undefined {
  try {
    return /^(?:flags|Features)\s*:(.*)$/m.exec(readFileSync('/proc/cpuinfo', 'utf8'))?.[1];
  } catch {
    return undefined;
  }
}

function runTool(command: string, args: string[], cwd: string, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd, stdio: ['ignore', 'pipe', 'pipe'], ...(signal && { signal }) });
    let said = '';
    const hear = (text: Buffer): void => {
      said = (said + text.toString()).slice(-4_096);
    };
    child.stdout.on('data', hear);
    child.stderr.on('data', hear);
    child.once('error', (cause) => {
      const detail = `${command} cannot be run. Building needs npm, git, cmake and a C++ compiler (on Debian: apt install git cmake g++).`;
      reject(
        signal?.aborted === true ? signal.reason : new WarmpathError('WARMPATH_NATIVE_MISSING', { detail, cause }),
      );
    });
    child.once('close', (code) => {
      if (code === 0) {
        resolve();
      } else {
        const end = said.trim().split('\n').slice(-SHOWN_LINES).join('\n');
        const detail = `${command} ${args[0]} failed (exit code ${code}):\n${end}`;
        reject(signal?.aborted === true ? signal.reason : new WarmpathError('WARMPATH_NATIVE_MISSING', { detail }));
      }
    });
  });
}
