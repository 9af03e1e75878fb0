import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { ffi } from './ffi.js';
import { LLAMA_RELEASE, mismatch, type NativeLibraries } from './library.js';

/** The build of llama.cpp's CPU code that a process computes with. */
export interface CpuVariant {
  /** As its file names it, for instance `zen4`; `native` where the folder has one build only. */
  readonly name: string;
  /** Why this one, for people. */
  readonly reason: string;
}

/** Variants that are never chosen while {@link LLAMA_RELEASE} is the release, and why. */
const EXCLUDED: Readonly<Record<string, string>> = {
  sapphirerapids: `the AMX kernels of llama.cpp ${LLAMA_RELEASE} abort on models with latent attention`,
};

const VARIANT_FILE = /^(?:lib)?ggml-cpu-([a-z0-9_.]+)\.(?:so|dylib|dll)$/;
/** Code for GPUs and the like, which a package has beside its CPU variants. */
const OTHER_BACKEND_FILE = /^(?:lib)?ggml-(?!base\.|cpu[-.])[a-z0-9_]+\.(?:so|dylib|dll)$/;

/**
 * Loads the CPU variant with the best score for this processor that is not excluded, and every other backend of the
 * folder. A folder with one build of the CPU code is left to llama.cpp.
 *
 * @param name Loads this variant, even an excluded one; for tests of the variants.
 * @throws WARMPATH_NATIVE_MISMATCH when no variant can be loaded.
 */
export function loadCpuVariant({ ggml, directory }: NativeLibraries, name?: string): CpuVariant {
  const files = readdirSync(directory);
  const variants = files.flatMap((file) => {
    const variant = VARIANT_FILE.exec(file)?.[1];
    return variant === undefined ? [] : [{ name: variant, path: join(directory, file) }];
  });
  if (variants.length === 0) {
    ggml.func('ggml_backend_load_all_from_path', 'void', ['str'])(directory);
    return { name: 'native', reason: 'these libraries have one CPU variant' };
  }
  const load = ggml.func('ggml_backend_load', 'void *', ['str']);
  for (const file of files.filter((file) => OTHER_BACKEND_FILE.test(file))) {
    load(join(directory, file));
  }
  const chosen =
    name === undefined
      ? chooseCpuVariant(variants.map((variant) => ({ ...variant, score: scoreOf(variant.path) })))
      : { name, reason: 'asked for by name' };
  const path = variants.find((variant) => variant.name === chosen?.name)?.path;
  if (chosen === undefined || path === undefined || load(path) === null) {
    throw mismatch(`${directory} has no CPU variant that can be loaded on this processor`);
  }
  return chosen;
}

/**
 * The variant with the best score that is not excluded.
 *
 * @param variants Their scores are 0 where they cannot run.
 * @returns `undefined` where none is left.
 */
export function chooseCpuVariant(
  variants: readonly { readonly name: string; readonly score: number }[],
): CpuVariant | undefined {
  const runnable = variants.filter(({ score }) => score > 0).sort((first, second) => second.score - first.score);
  const chosen = runnable.find(({ name }) => !(name in EXCLUDED));
  const exclusions = runnable.flatMap(({ name }) =>
    name in EXCLUDED ? [`${name} is excluded: ${EXCLUDED[name]}`] : [],
  );
  return chosen && { name: chosen.name, reason: ['the best for this processor', ...exclusions].join('; ') };
}

/** How well a variant suits this processor, by its own account: 0 when it cannot run here. */
function scoreOf(path: string): number {
  try {
    return ffi().load(path).func('ggml_backend_score', 'int', [])() as number;
  } catch {
    return 0;
  }
}
