import { spawn } from 'node:child_process';
import { hash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { cp, mkdir, mkdtemp, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { availableParallelism, cpus, platform } from 'node:os';
import { delimiter, join } from 'node:path';
import { WarmpathError } from '@warmpath/core';
import { type GgufHeader, readGgufHeader } from '../gguf/reader.js';
import { cacheFolder } from '../models/cache-folder.js';
import { headShape, prefersNarrowVectors } from './head-shape.js';
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

/** Something that is built from llama.cpp's source. */
interface BuildTarget {
  /** Folder of the cache folder that it is kept in. */
  readonly kept: string;
  /** What cmake calls it. */
  readonly name: string;
  /** Options of cmake beside those that all targets have. */
  readonly options: Readonly<Record<string, string>>;
}

const LIBRARIES: BuildTarget = {
  kept: 'libraries',
  name: 'llama',
  options: {
    // The engine brings a pool of threads of its own, as for the prebuilt libraries.
    GGML_OPENMP: 'OFF',
    LLAMA_BUILD_COMMON: 'OFF',
    LLAMA_BUILD_TOOLS: 'OFF',
    LLAMA_BUILD_SERVER: 'OFF',
  },
};

/** As its own project builds it, but without pages and certificates: what benchmarks compare the engine with. */
const SERVER: BuildTarget = {
  kept: 'llama-server',
  name: 'llama-server',
  options: { LLAMA_BUILD_UI: 'OFF', LLAMA_USE_PREBUILT_UI: 'OFF', LLAMA_BUILD_APP: 'OFF' },
};

/**
 * The folder of libraries that {@link buildLibraries} made for this machine's processor and this release.
 *
 * @returns `undefined` when there are none.
 */
export function builtLibraries(folder: string = cacheFolder()): string | undefined {
  const directory = directoryOf(LIBRARIES, folder);
  return existsSync(join(directory, BUILD_METADATA)) ? directory : undefined;
}

/** The llama-server that {@link buildServer} made for this machine's processor and this release. */
export function builtServer(folder: string = cacheFolder()): string | undefined {
  const directory = directoryOf(SERVER, folder);
  return existsSync(join(directory, BUILD_METADATA)) ? join(directory, SERVER.name) : undefined;
}

/** What {@link paysToBuild} looks at; injected for tests. */
export interface BuildConditions {
  /** The variable PATH. */
  readonly path?: string | undefined;
  /** What the processor can, as Linux writes it. */
  readonly processorFlags?: string | undefined;
}

/** What building runs, and one of the compilers that cmake looks for. */
const TOOLS = ['npm', 'tar', 'git', 'cmake'];
const COMPILERS = ['c++', 'g++', 'clang++'];

/**
 * Whether libraries built here would compute a model's prompts faster, none are there yet, and what building needs is.
 * They do for weights of 16 bits on x86 processors with AVX-512; with quantised weights they were measured to be no
 * faster, and on other processors they were not measured.
 *
 * @param model Path of the model's file, whose header is read only where everything else holds.
 * @throws WARMPATH_MODEL_FILE
 */
export async function paysToBuild(
  model: string,
  folder: string = cacheFolder(),
  { path = process.env['PATH'], processorFlags }: BuildConditions = {},
): Promise<boolean> {
  if (!hasWideVectors(processorFlags) || builtLibraries(folder) !== undefined || !canBuild(path ?? '')) {
    return false;
  }
  const header = await readGgufHeader(model);
  return isMostly16Bit(header) && !prefersNarrowVectors(headShape(header));
}

/**
 * What to tell a user for whose model {@link paysToBuild}.
 *
 * @param command How the user runs the engine's command.
 * @param folder The cache folder, where it is not the default.
 */
export function buildNote(command: string, folder?: string): string {
  const inFolder = folder === undefined ? '' : ` --cache-dir ${JSON.stringify(folder)}`;
  return `Cold prompts of this model are up to 1.7 times faster with llama.cpp built for this processor, once: \`${command} --build-libraries${inFolder}\`, then start again.`;
}

function canBuild(path: string): boolean {
  const folders = path.split(delimiter).filter((folder) => folder !== '');
  const isThere = (tool: string): boolean => folders.some((folder) => existsSync(join(folder, tool)));
  return TOOLS.every(isThere) && COMPILERS.some(isThere);
}

/** Of the tensors that tokens are multiplied with; norms are vectors. */
function isMostly16Bit({ tensors }: GgufHeader): boolean {
  const matrices = tensors.filter(({ shape }) => shape.length > 1);
  const weightsOf = (some: typeof matrices): number =>
    some.reduce((sum, { shape }) => sum + shape.reduce((product, length) => product * length, 1), 0);
  const in16Bits = matrices.filter(({ type }) => type.name === 'f16' || type.name === 'bf16');
  return weightsOf(in16Bits) > weightsOf(matrices) / 2;
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
export function buildLibraries(folder: string = cacheFolder(), hooks: BuildHooks = {}): Promise<string> {
  return build(LIBRARIES, folder, hooks);
}

/** Builds a llama-server of the same source, and keeps it likewise. @returns Its path. */
export async function buildServer(folder: string = cacheFolder(), hooks: BuildHooks = {}): Promise<string> {
  return join(await build(SERVER, folder, hooks), SERVER.name);
}

async function build(target: BuildTarget, folder: string, hooks: BuildHooks): Promise<string> {
  const { onStep = () => undefined, signal } = hooks;
  const parent = join(folder, target.kept);
  await mkdir(parent, { recursive: true });
  const work = await mkdtemp(join(parent, 'building-'));
  const run = (command: string, args: string[]): Promise<void> => runTool(command, args, work, signal);
  try {
    onStep('fetching the source');
    await run('npm', ['pack', '--silent', SOURCE_PACKAGE]);
    await run('tar', ['-xzf', `${SOURCE_PACKAGE.replace('@', '-')}.tgz`, 'package/llama/gitRelease.bundle']);
    await run('git', ['clone', '--quiet', 'package/llama/gitRelease.bundle', 'source']);
    onStep('configuring');
    await run('cmake', ['-S', 'source', '-B', 'build', ...cmakeOptions(target)]);
    onStep('compiling');
    const jobs = String(availableParallelism());
    await run('cmake', ['--build', 'build', '--config', 'Release', '--target', target.name, '--parallel', jobs]);
    const made = join(work, 'made');
    await mkdir(made);
    const isKept = (file: string): boolean => file === target.name || /\.(so|dylib)/.test(file);
    for (const name of (await readdir(join(work, 'build', 'bin'))).filter(isKept)) {
      await cp(join(work, 'build', 'bin', name), join(made, name), { verbatimSymlinks: true });
    }
    await writeFile(
      join(made, BUILD_METADATA),
      JSON.stringify({ buildOptions: { llamaCpp: { release: LLAMA_RELEASE } } }),
    );
    const directory = directoryOf(target, folder);
    await rm(directory, { recursive: true, force: true });
    await rename(made, directory);
    return directory;
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

function cmakeOptions({ options }: BuildTarget): string[] {
  const all = {
    CMAKE_BUILD_TYPE: 'Release',
    // A library finds the others beside it, wherever the folder lies.
    CMAKE_BUILD_WITH_INSTALL_RPATH: 'ON',
    CMAKE_INSTALL_RPATH: platform() === 'darwin' ? '@loader_path' : '$ORIGIN',
    GGML_NATIVE: 'ON',
    // Leaves out the AMX kernels, as cpu-variant.ts does. With GGML_NATIVE the compiler defines the macro, and the
    // options GGML_AMX_* do nothing.
    CMAKE_C_FLAGS: '-U__AMX_INT8__',
    CMAKE_CXX_FLAGS: '-U__AMX_INT8__',
    LLAMA_OPENSSL: 'OFF',
    LLAMA_BUILD_TESTS: 'OFF',
    LLAMA_BUILD_EXAMPLES: 'OFF',
    ...options,
  };
  return Object.entries(all).map(([name, value]) => `-D${name}=${value}`);
}

/** Libraries of another release, or built for another processor or with other options, are not taken. */
function directoryOf(target: BuildTarget, folder: string): string {
  const options = hash('sha256', JSON.stringify(cmakeOptions(target))).slice(0, 8);
  return join(folder, target.kept, `${LLAMA_RELEASE}-${platform()}-${processorIdentity()}-${options}`);
}

/** Tells processors apart that may need other libraries, or prefer other variants of them. */
export function processorIdentity(): string {
  return hash('sha256', JSON.stringify([process.arch, cpus()[0]?.model, readCpuFlags()])).slice(0, 16);
}

/** Whether the processor is known to have AVX-512. */
export function hasWideVectors(flags?: string): boolean {
  return processorHas('avx512f', flags);
}

/** Whether the processor is known to have a feature, as Linux names it. */
export function processorHas(feature: string, flags: string | undefined = readCpuFlags()): boolean {
  return (flags ?? '').split(/\s+/).includes(feature);
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
