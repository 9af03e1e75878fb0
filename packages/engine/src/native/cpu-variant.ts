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

/** What the choice of a variant depends on beside the processor. */
export interface CpuVariantChoice {
  /** Path of the model that the process will load. */
  readonly model?: string | undefined;
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
export function loadCpuVariant(libraries: NativeLibraries, choice: CpuVariantChoice): CpuVariant {
  const { ggml, directory } = libraries;
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
  for (const file of files.filter((file) => OTHER_BACKEND_FILE.test(file))) load(join(directory, file));
  const chosen =
    choice.cpuVariant === undefined
      ? chooseCpuVariant(
          variants.map((variant) => ({ ...variant, score: scoreOf(variant.path) })),
          choice.model !== undefined && hasNarrowHeads(libraries, choice.model),
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
  hasNarrowHeads = false,
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

/** `GGUF_TYPE_UINT32`, `GGUF_TYPE_STRING` (gguf.h). */
const UINT32 = 4;
const STRING = 8;

/**
 * Whether the heads of a model are narrower than a vector of AVX-512, as of the demo model: llama.cpp computes what
 * does not fill a vector number by number (`ggml_vec_dot_f16`).
 */
export function hasNarrowHeads({ ggmlBase }: Pick<NativeLibraries, 'ggmlBase'>, path: string): boolean {
  const params = ffi().struct({ no_alloc: 'bool', ctx: 'void *' });
  const file: unknown = ggmlBase.func('gguf_init_from_file', 'void *', ['str', params])(path, {
    no_alloc: true,
    ctx: null,
  });
  if (file === null) return false;
  const ask = (name: string, result: string, argument: string, value: unknown): unknown =>
    ggmlBase.func(name, result, ['void *', argument])(file, value);
  const read = (key: string, type: number, name: string, result: string): unknown => {
    const id = ask('gguf_find_key', 'int64', 'str', key);
    const isThere = Number(id) >= 0 && ask('gguf_get_kv_type', 'int', 'int64', id) === type;
    return isThere ? ask(name, result, 'int64', id) : undefined;
  };
  const architecture = String(read('general.architecture', STRING, 'gguf_get_val_str', 'str'));
  const number = (key: string): number =>
    Number(read(`${architecture}.${key}`, UINT32, 'gguf_get_val_u32', 'uint32') ?? 0);
  const width = number('attention.key_length') || number('embedding_length') / number('attention.head_count');
  ggmlBase.func('gguf_free', 'void', ['void *'])(file);
  return width < WIDE_VECTOR;
}

/** How well a variant suits this processor, by its own account: 0 when it cannot run here. */
function scoreOf(path: string): number {
  try {
    return ffi().load(path).func('ggml_backend_score', 'int', [])() as number;
  } catch {
    return 0;
  }
}
