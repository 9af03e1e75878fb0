import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { WarmpathError } from '@warmpath/core';
import koffi, { type LibraryHandle } from 'koffi';

/** The version of `@node-llama-cpp/<platform>` whose libraries this engine is written for. */
export const NATIVE_PACKAGE_VERSION = '3.22.1';

/** The llama.cpp release inside that package, as its build metadata names it. */
export const LLAMA_RELEASE = 'v0.5.0';

/** What a folder of libraries says of itself. */
export const BUILD_METADATA = '_nlcBuildMetadata.json';

/** The CPU packages by `process.platform` and `process.arch`. */
const PLATFORM_PACKAGES: Readonly<Record<string, string>> = {
  'linux-x64': 'linux-x64',
  'linux-arm64': 'linux-arm64',
  'darwin-arm64': 'mac-arm64-metal',
  'darwin-x64': 'mac-x64',
  'win32-x64': 'win-x64',
  'win32-arm64': 'win-arm64',
};

/** The three libraries, loaded, and the folder they came from. */
export interface NativeLibraries {
  readonly ggmlBase: LibraryHandle;
  readonly ggml: LibraryHandle;
  readonly llama: LibraryHandle;
  /** The folder with the libraries and the CPU variants. */
  readonly directory: string;
}

/**
 * Native code runs on a stack that the FFI layer allocates. Its default for asynchronous calls (128 KiB) is meant for
 * small functions; building and running a compute graph gets what a native thread would have.
 */
const NATIVE_STACK_BYTES = 8 * 1024 * 1024;

/**
 * Finds the folder of the native libraries for this machine.
 *
 * @param resolve Resolves a module specifier to a file; throws when there is none. Injected for tests.
 * @throws WARMPATH_NATIVE_MISSING when the package for this platform is not installed, naming the install command.
 */
export function findLibraryDirectory(
  platform: string = `${process.platform}-${process.arch}`,
  resolve: (specifier: string) => string = createRequire(import.meta.url).resolve,
): string {
  const suffix = PLATFORM_PACKAGES[platform];
  if (suffix === undefined) {
    throw new WarmpathError('WARMPATH_NATIVE_MISSING', {
      detail: `There is no prebuilt llama.cpp library for ${platform}; the embedded engine cannot run here.`,
    });
  }
  const name = `@node-llama-cpp/${suffix}`;
  let entry: string;
  try {
    entry = resolve(name);
  } catch (cause) {
    throw new WarmpathError('WARMPATH_NATIVE_MISSING', {
      detail: `The native llama.cpp library ${name} is not installed. Run: npm install ${name}@${NATIVE_PACKAGE_VERSION}`,
      cause,
    });
  }
  const directory = join(dirname(entry), '..', 'bins', suffix);
  if (!existsSync(directory)) {
    throw mismatch(`${name} has no folder bins/${suffix}`);
  }
  return directory;
}

/** @returns The WARMPATH_NATIVE_MISMATCH that says what was found and which version to install. */
export function mismatch(found: string): WarmpathError {
  return new WarmpathError('WARMPATH_NATIVE_MISMATCH', {
    detail: `${found}; this engine is written for llama.cpp ${LLAMA_RELEASE} as packed in @node-llama-cpp/<platform>@${NATIVE_PACKAGE_VERSION}.`,
  });
}

/**
 * Loads the libraries of a folder in the order in which they need each other (ggml-base, ggml, llama), so that the
 * dynamic linker finds every dependency already loaded and needs no environment variable.
 *
 * @throws WARMPATH_NATIVE_MISMATCH when the folder holds another build.
 */
export function loadLibraries(directory: string): NativeLibraries {
  checkBuildMetadata(directory);
  const files = readdirSync(directory);
  enlargeStacks();
  const load = (pattern: RegExp, what: string): LibraryHandle => {
    const file = files.find((name) => pattern.test(name));
    if (file === undefined) {
      throw mismatch(`${directory} has no ${what} library`);
    }
    try {
      return koffi.load(join(directory, file));
    } catch (cause) {
      throw new WarmpathError('WARMPATH_NATIVE_MISMATCH', { detail: `${file} cannot be loaded`, cause });
    }
  };
  const extension = String.raw`(\.v\d+\.\d+\.\d+)?\.(so|dylib|dll)$`;
  const ggmlBase = load(new RegExp(`^(lib)?ggml-base${extension}`), 'ggml-base');
  const ggml = load(new RegExp(`^(lib)?ggml${extension}`), 'ggml');
  const llama = load(new RegExp(`^(lib)?llama${extension}`), 'llama');
  return { ggmlBase, ggml, llama, directory };
}

/** The sizes can be set only before the process loads its first library through koffi, whoever that is for. */
function enlargeStacks(): void {
  const config = koffi.config();
  if (config.sync_stack_size === NATIVE_STACK_BYTES && config.async_stack_size === NATIVE_STACK_BYTES) {
    return;
  }
  try {
    koffi.config({ ...config, sync_stack_size: NATIVE_STACK_BYTES, async_stack_size: NATIVE_STACK_BYTES });
  } catch (cause) {
    throw new WarmpathError('WARMPATH_ENGINE_FAILED', {
      detail: 'This process uses koffi for another library already; run the engine in a process of its own.',
      cause,
    });
  }
}

interface BuildMetadata {
  readonly buildOptions?: { readonly llamaCpp?: { readonly release?: unknown } };
}

function checkBuildMetadata(directory: string): void {
  const path = join(directory, BUILD_METADATA);
  let metadata: BuildMetadata;
  try {
    metadata = JSON.parse(readFileSync(path, 'utf8')) as BuildMetadata;
  } catch {
    throw mismatch(`${path} cannot be read`);
  }
  const release = metadata.buildOptions?.llamaCpp?.release;
  if (release !== LLAMA_RELEASE) {
    throw mismatch(`The library is llama.cpp ${String(release)}`);
  }
}
