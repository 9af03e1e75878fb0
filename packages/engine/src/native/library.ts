import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { WarmpathError } from '@warmpath/core';
import type { LibraryHandle } from 'koffi';
import { ffi } from './ffi.js';

/** The version of `@node-llama-cpp/<platform>` whose libraries this engine is written for. */
export const NATIVE_PACKAGE_VERSION = '3.22.1';

/** The llama.cpp release inside that package, as its build metadata names it. */
export const LLAMA_RELEASE = 'v0.5.0';

/** What a folder of libraries says of itself. */
const BUILD_METADATA = '_nlcBuildMetadata.json';

/** The packages by `process.platform` and `process.arch` that compute on the CPU, and those that also use a GPU. */
const PLATFORM_PACKAGES: Readonly<Record<string, string>> = {
  'linux-x64': 'linux-x64',
  'linux-arm64': 'linux-arm64',
  'darwin-arm64': 'mac-arm64-metal',
  'darwin-x64': 'mac-x64',
  'win32-x64': 'win-x64',
  'win32-arm64': 'win-arm64',
};
const GPU_PACKAGES: Readonly<Record<string, readonly string[]>> = {
  'linux-x64': ['linux-x64-cuda', 'linux-x64-vulkan'],
  'darwin-arm64': ['mac-arm64-metal'],
  'win32-x64': ['win-x64-cuda', 'win-x64-vulkan'],
};

/** The three libraries, loaded, and the folder they came from. */
export interface NativeLibraries {
  readonly ggmlBase: LibraryHandle;
  readonly ggml: LibraryHandle;
  readonly llama: LibraryHandle;
  /** The folder with the libraries and the CPU variants. */
  readonly directory: string;
}

/** Stack of a native call; koffi's default of 128 KiB for asynchronous calls is too small for a compute graph. */
const NATIVE_STACK_BYTES = 8 * 1024 * 1024;

/** What the native libraries are wanted for, and where they are looked for. */
export interface LibrarySearch {
  /** Layers of the model that a GPU is to compute; none when left out. */
  readonly gpuLayers?: number | undefined;
  readonly platform?: string;
  /** Resolves a module specifier to a file; throws when there is none. Injected for tests. */
  readonly resolve?: (specifier: string) => string;
}

/**
 * Finds the folder of the native libraries: with layers for a GPU, of the first installed package that can use one.
 *
 * @throws WARMPATH_NATIVE_MISSING with the install command.
 */
export function findLibraryDirectory({
  gpuLayers = 0,
  platform = `${process.platform}-${process.arch}`,
  resolve = createRequire(import.meta.url).resolve,
}: LibrarySearch = {}): string {
  const cpuPackage = PLATFORM_PACKAGES[platform];
  if (cpuPackage === undefined) {
    throw new WarmpathError('WARMPATH_NATIVE_MISSING', {
      detail: `There is no prebuilt llama.cpp library for ${platform}; the embedded engine cannot run here.`,
    });
  }
  const suffixes = gpuLayers === 0 ? [cpuPackage] : (GPU_PACKAGES[platform] ?? []);
  for (const suffix of suffixes) {
    const name = `@node-llama-cpp/${suffix}`;
    const entry = resolved(name, resolve);
    if (entry !== undefined) {
      const directory = join(dirname(entry), '..', 'bins', suffix);
      if (!existsSync(directory)) throw mismatch(`${name} has no folder bins/${suffix}`);
      return directory;
    }
  }
  const commands = suffixes.map((suffix) => `npm install @node-llama-cpp/${suffix}@${NATIVE_PACKAGE_VERSION}`);
  const detail =
    commands.length === 0
      ? `There is no llama.cpp library for ${platform} that uses a GPU; leave gpuLayers out.`
      : `The native llama.cpp library is not installed${gpuLayers === 0 ? '' : ' in a build that uses a GPU'}. Run: ${commands.join(', or: ')}`;
  throw new WarmpathError('WARMPATH_NATIVE_MISSING', { ...(gpuLayers > 0 && { path: 'gpuLayers' }), detail });
}

function resolved(name: string, resolve: (specifier: string) => string): string | undefined {
  try {
    return resolve(name);
  } catch {
    return undefined;
  }
}

/** @returns The WARMPATH_NATIVE_MISMATCH that says what was found and which version to install. */
export function mismatch(found: string): WarmpathError {
  return new WarmpathError('WARMPATH_NATIVE_MISMATCH', {
    detail: `${found}; this engine is written for llama.cpp ${LLAMA_RELEASE} as packed in @node-llama-cpp/<platform>@${NATIVE_PACKAGE_VERSION}.`,
  });
}

/**
 * Loads the libraries of a folder in the order in which they need each other, so that the dynamic linker finds them.
 *
 * @throws WARMPATH_NATIVE_MISMATCH when the folder holds another build.
 */
export function loadLibraries(directory: string): NativeLibraries {
  checkBuildMetadata(directory);
  const files = readdirSync(directory);
  enlargeStacks();
  const load = (pattern: RegExp, what: string): LibraryHandle => {
    const file = files.find((name) => pattern.test(name));
    if (file === undefined) throw mismatch(`${directory} has no ${what} library`);
    try {
      return ffi().load(join(directory, file));
    } catch (cause) {
      throw new WarmpathError('WARMPATH_NATIVE_MISMATCH', { detail: `${file} cannot be loaded`, cause });
    }
  };
  // Builds for a GPU name it: libllama.vulkan.v0.5.0.so.
  const extension = String.raw`(\.(cuda|metal|vulkan))?(\.v\d+\.\d+\.\d+)?\.(so|dylib|dll)$`;
  const ggmlBase = load(new RegExp(`^(lib)?ggml-base${extension}`), 'ggml-base');
  const ggml = load(new RegExp(`^(lib)?ggml${extension}`), 'ggml');
  const llama = load(new RegExp(`^(lib)?llama${extension}`), 'llama');
  return { ggmlBase, ggml, llama, directory };
}

/** The sizes can be set only before the process loads its first library through koffi, whoever that is for. */
function enlargeStacks(): void {
  const config = ffi().config();
  if (config.sync_stack_size === NATIVE_STACK_BYTES && config.async_stack_size === NATIVE_STACK_BYTES) return;
  try {
    ffi().config({ ...config, sync_stack_size: NATIVE_STACK_BYTES, async_stack_size: NATIVE_STACK_BYTES });
  } catch (cause) {
    throw new WarmpathError('WARMPATH_ENGINE_FAILED', {
      detail: 'This process uses koffi for another library already; run the engine in a process of its own.',
      cause,
    });
  }
}

function checkBuildMetadata(directory: string): void {
  const path = join(directory, BUILD_METADATA);
  let release: unknown;
  try {
    release = JSON.parse(readFileSync(path, 'utf8')).buildOptions?.llamaCpp?.release;
  } catch {
    throw mismatch(`${path} cannot be read`);
  }
  if (release !== LLAMA_RELEASE) throw mismatch(`The library is llama.cpp ${String(release)}`);
}
