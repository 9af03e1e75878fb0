import { copyFileSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { checkAbi, llamaBindings } from '../../src/native/bindings.js';
import { findLibraryDirectory, loadLibraries, NATIVE_PACKAGE_VERSION } from '../../src/native/library.js';
import { CONTEXT_PARAMS_LAYOUT, fieldsThatDiffer } from '../../src/native/structs.js';

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
    expect(() => findLibraryDirectory('linux-arm64', missing)).toThrow(
      expect.objectContaining({
        code: 'WARMPATH_NATIVE_MISSING',
        message: expect.stringContaining(`npm install @node-llama-cpp/linux-arm64@${NATIVE_PACKAGE_VERSION}`),
      }),
    );
    expect(() => findLibraryDirectory('plan9-mips')).toThrow(
      expect.objectContaining({ code: 'WARMPATH_NATIVE_MISSING', message: expect.stringContaining('plan9-mips') }),
    );
  });

  it('is refused when the package holds no libraries', () => {
    const empty = folder();
    expect(() => findLibraryDirectory('linux-x64', () => join(empty, 'dist', 'index.js'))).toThrow(
      expect.objectContaining({ code: 'WARMPATH_NATIVE_MISMATCH' }),
    );
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
    symlinkSync(findLibraryDirectory('linux-x64'), join(path, 'bins', 'linux-x64'));
    expect(findLibraryDirectory('linux-x64', () => join(path, 'dist', 'index.js'))).toBe(
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
