import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { checkAbi, type LlamaBindings, llamaBindings } from '../../src/native/bindings.js';
import { findLibraryDirectory, loadLibraries, NATIVE_PACKAGE_VERSION } from '../../src/native/library.js';
import { NativeModel } from '../../src/native/model.js';
import { CONTEXT_PARAMS_LAYOUT, fieldsThatDiffer, type ModelParams } from '../../src/native/structs.js';

describe('the native library', () => {
  const folders: string[] = [];
  const folder = (): string => {
    const path = mkdtempSync(join(tmpdir(), 'warmpath-native-'));
    folders.push(path);
    return path;
  };
  afterEach(() => {
    for (const path of folders.splice(0)) {
      rmSync(path, { recursive: true });
    }
  });

  it('is named with its install command when it is missing', () => {
    const missing = (): string => {
      throw new Error('not found');
    };
    expect(() => findLibraryDirectory({ platform: 'linux-arm64', resolve: missing })).toThrow(
      expect.objectContaining({
        code: 'WARMPATH_NATIVE_MISSING',
        message: expect.stringContaining(`npm install @node-llama-cpp/linux-arm64@${NATIVE_PACKAGE_VERSION}`),
      }),
    );
    expect(() => findLibraryDirectory({ platform: 'plan9-mips' })).toThrow(
      expect.objectContaining({ code: 'WARMPATH_NATIVE_MISSING', message: expect.stringContaining('plan9-mips') }),
    );
  });

  it('for a GPU is that of the first package that uses one, or is named with what to install', () => {
    const path = folder();
    const installed =
      (...names: string[]) =>
      (specifier: string): string => {
        if (!names.some((name) => specifier === `@node-llama-cpp/${name}`)) {
          throw new Error('not found');
        }
        return join(path, 'dist', 'index.js');
      };
    for (const name of ['linux-x64', 'linux-x64-cuda', 'linux-x64-vulkan']) {
      mkdirSync(join(path, 'bins', name), { recursive: true });
    }
    const found = (gpuLayers: number, ...names: string[]): string =>
      findLibraryDirectory({ gpuLayers, platform: 'linux-x64', resolve: installed(...names) });
    expect(found(0, 'linux-x64', 'linux-x64-cuda')).toBe(join(path, 'bins', 'linux-x64'));
    expect(found(1, 'linux-x64', 'linux-x64-vulkan')).toBe(join(path, 'bins', 'linux-x64-vulkan'));
    expect(found(99, 'linux-x64-vulkan', 'linux-x64-cuda')).toBe(join(path, 'bins', 'linux-x64-cuda'));
    expect(() => found(1, 'linux-x64')).toThrow(
      expect.objectContaining({
        code: 'WARMPATH_NATIVE_MISSING',
        path: 'gpuLayers',
        message: expect.stringContaining(
          `npm install @node-llama-cpp/linux-x64-cuda@${NATIVE_PACKAGE_VERSION}, or: npm install @node-llama-cpp/linux-x64-vulkan@`,
        ),
      }),
    );
    expect(() => findLibraryDirectory({ gpuLayers: 1, platform: 'linux-arm64', resolve: installed() })).toThrow(
      'no llama.cpp library for linux-arm64 that uses a GPU',
    );
  });

  it('is found under the names that builds for a GPU have', () => {
    const real = findLibraryDirectory();
    const path = folder();
    for (const file of readdirSync(real)) {
      const named = file.replace(/^lib(ggml|llama)\.v/, 'lib$1.vulkan.v');
      symlinkSync(join(real, file), join(path, named));
    }
    expect(readdirSync(path)).toContain('libllama.vulkan.v0.5.0.so');
    expect(loadLibraries(path).directory).toBe(path);
  });

  it('is refused for layers on a GPU where there is none', async () => {
    const bindings = llamaBindings();
    expect(bindings.supportsGpu()).toBe(false);
    await expect(NativeModel.load(bindings, 'any.gguf', 1)).rejects.toMatchObject({
      code: 'WARMPATH_ENGINE_FAILED',
      path: 'gpuLayers',
    });
    // How many layers a GPU is to compute reaches llama.cpp in its own struct.
    const seen: number[] = [];
    const load = Object.assign(() => null, {
      async: (_path: string, params: ModelParams, done: (error: unknown, result: null) => void) => {
        seen.push(params.n_gpu_layers);
        done(null, null);
      },
    });
    const withGpu = { ...bindings, supportsGpu: () => true, modelLoadFromFile: load } as unknown as LlamaBindings;
    for (const layers of [0, 7]) {
      await expect(NativeModel.load(withGpu, 'any.gguf', layers)).rejects.toMatchObject({
        code: 'WARMPATH_MODEL_UNSUPPORTED',
      });
    }
    // Each failed load is tried again, with llama.cpp's log heard.
    expect(seen).toEqual([0, 0, 7, 7]);
  });

  it('is refused when the package holds no libraries', () => {
    const empty = folder();
    expect(() =>
      findLibraryDirectory({ platform: 'linux-x64', resolve: () => join(empty, 'dist', 'index.js') }),
    ).toThrow(expect.objectContaining({ code: 'WARMPATH_NATIVE_MISMATCH' }));
  });

  it.each([
    ['of another release', { buildOptions: { llamaCpp: { release: 'b4000' } } }, 'llama.cpp b4000'],
    ['of no known release', {}, 'llama.cpp undefined'],
    ['without metadata', undefined, 'cannot be read'],
  ])('is refused before it is loaded when it is %s', (_name, metadata, message) => {
    const path = folder();
    if (metadata !== undefined) {
      writeFileSync(join(path, '_nlcBuildMetadata.json'), JSON.stringify(metadata));
    }
    expect(() => loadLibraries(path)).toThrow(
      expect.objectContaining({
        code: 'WARMPATH_NATIVE_MISMATCH',
        message: expect.stringMatching(new RegExp(`${message}.*${NATIVE_PACKAGE_VERSION.replaceAll('.', '\\.')}`)),
      }),
    );
  });

  it('is refused when a library is missing or broken', () => {
    const real = findLibraryDirectory();
    const path = folder();
    copyFileSync(join(real, '_nlcBuildMetadata.json'), join(path, '_nlcBuildMetadata.json'));
    expect(() => loadLibraries(path)).toThrow('no ggml-base library');
    writeFileSync(join(path, 'libggml-base.so'), 'no library');
    expect(() => loadLibraries(path)).toThrow(expect.objectContaining({ code: 'WARMPATH_NATIVE_MISMATCH' }));
  });

  it('is found through links, as package managers make them', () => {
    const path = folder();
    mkdirSync(join(path, 'bins'));
    symlinkSync(findLibraryDirectory(), join(path, 'bins', 'linux-x64'));
    expect(findLibraryDirectory({ platform: 'linux-x64', resolve: () => join(path, 'dist', 'index.js') })).toBe(
      join(path, 'bins', 'linux-x64'),
    );
  });

  it('has exactly the version and the struct layouts that the engine was written for', () => {
    const bindings = llamaBindings();
    expect(() => checkAbi(bindings)).not.toThrow();
    // A field that was moved or inserted shows in the defaults.
    expect(() => checkAbi({ ...bindings, version: () => '0.6.0' })).toThrow('llama.cpp 0.6.0');
    const context = bindings.contextDefaultParams();
    expect(() =>
      checkAbi({ ...bindings, contextDefaultParams: () => ({ ...context, n_batch: 512, n_ubatch: 2048 }) }),
    ).toThrow('llama_context_params has another layout (n_batch, n_ubatch)');
    const model = bindings.modelDefaultParams();
    expect(() => checkAbi({ ...bindings, modelDefaultParams: () => ({ ...model, use_extra_bufts: false }) })).toThrow(
      'use_extra_bufts',
    );
    expect(fieldsThatDiffer(CONTEXT_PARAMS_LAYOUT, context)).toEqual([]);
  });

  it('is loaded once a process', () => {
    expect(llamaBindings()).toBe(llamaBindings());
  });
});
