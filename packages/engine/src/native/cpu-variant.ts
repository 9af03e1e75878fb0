import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { readGgufHeader } from '../gguf/reader.js';
import { ffi } from './ffi.js';
import { LLAMA_RELEASE, mismatch, type NativeLibraries } from './library.js';

/** The build of llama.cpp's CPU code that a process computes with. */
export interface CpuVariant {
  /** As its file names it, for instance `zen4`; `native` where the folder has one build only. */
  readonly name: string;
  /** Why this one, for people. */
  readonly reason: string;
}

/** What the choice of a variant depends on beside the processor. */
export interface CpuVariantChoice {
  /** Of the model: see {@link hasNarrowHeads}. */
  readonly hasNarrowHeads?: boolean;
  /** Loads this variant, even an excluded one; for tests of the variants. */
  readonly cpuVariant?: string | undefined;
}

/** Variants that are never chosen while {@link LLAMA_RELEASE} is the release, and why. */
const EXCLUDED: Readonly<Record<string, string>> = {
  sapphirerapids: `the AMX kernels of llama.cpp ${LLAMA_RELEASE} abort on models with latent attention`,
};

/** Variants that compute with AVX-512, in vectors of {@link WIDE_VECTOR} 16-bit numbers. */
const WIDE = new Set(['skylakex', 'cannonlake', 'cascadelake', 'cooperlake', 'icelake', 'sapphirerapids', 'zen4']);
const WIDE_VECTOR = 64;

const VARIANT_FILE = /^(?:lib)?ggml-cpu-([a-z0-9_.]+)\.(?:so|dylib|dll)$/;
/** Code for GPUs and the like, which a package has beside its CPU variants. */
const OTHER_BACKEND_FILE = /^(?:lib)?ggml-(?!base\.|cpu[-.])[a-z0-9_]+\.(?:so|dylib|dll)$/;

/**
 * Loads the CPU variant for this processor and every other backend of the folder. A folder with one build of the CPU
 * code is left to llama.cpp. @throws WARMPATH_NATIVE_MISMATCH when no variant can be loaded.
 */
export function loadCpuVariant({ ggml, directory }: NativeLibraries, choice: CpuVariantChoice): CpuVariant {
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
    choice.cpuVariant === undefined
      ? chooseCpuVariant(
          variants.map((variant) => ({ ...variant, score: scoreOf(variant.path) })),
          choice,
        )
      : { name: choice.cpuVariant, reason: 'asked for by name' };
  const path = variants.find((variant) => variant.name === chosen?.name)?.path;
  if (chosen === undefined || path === undefined || load(path) === null) {
    throw mismatch(`${directory} has no CPU variant that can be loaded on this processor`);
  }
  return chosen;
}

/** The variant with the best score that is not excluded, of those that can run, whose score is above 0. */
export function chooseCpuVariant(
  variants: readonly { readonly name: string; readonly score: number }[],
  { hasNarrowHeads = false }: CpuVariantChoice = {},
): CpuVariant | undefined {
  const runnable = variants.filter(({ score }) => score > 0).sort((first, second) => second.score - first.score);
  const allowed = runnable.filter(({ name }) => !(name in EXCLUDED));
  const narrow = hasNarrowHeads ? allowed.find(({ name }) => !WIDE.has(name)) : undefined;
  const chosen = narrow ?? allowed[0];
  const why =
    narrow === undefined
      ? 'the best for this processor'
      : `the best for this processor without AVX-512, which slows down heads of fewer than ${WIDE_VECTOR} numbers`;
  const exclusions = runnable.flatMap(({ name }) =>
    name in EXCLUDED ? [`${name} is excluded: ${EXCLUDED[name]}`] : [],
  );
  return chosen && { name: chosen.name, reason: [why, ...exclusions].join('; ') };
}

/**
 * Whether the heads of a model are narrower than a vector of AVX-512, as of the demo model: llama.cpp computes what
 * does not fill a vector number by number (`ggml_vec_dot_f16`). @throws WARMPATH_MODEL_FILE
 */
export async function hasNarrowHeads(path: string): Promise<boolean> {
  const { metadata } = await readGgufHeader(path);
  const architecture = metadata.get('general.architecture')?.value;
  const read = (key: string): number => Number(metadata.get(`${architecture}.${key}`)?.value);
  return (read('attention.key_length') || read('embedding_length') / read('attention.head_count')) < WIDE_VECTOR;
}

/** How well a variant suits this processor, by its own account: 0 when it cannot run here. */
function scoreOf(path: string): number {
  try {
    return ffi().load(path).func('ggml_backend_score', 'int', [])() as number;
  } catch {
    return 0;
  }
}
