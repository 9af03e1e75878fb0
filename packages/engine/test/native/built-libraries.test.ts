import { chmod, mkdir, mkdtemp, readdir, readFile, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { findLlamaServer, llamaServer } from '../../bench/llama-server.js';
import { modelPath } from '../../bench/random-model/src/model-path.js';
import { resolveModel } from '../../src/models/resolve.js';
import { buildLibraries, buildNote, builtLibraries, paysToBuild } from '../../src/native/built-libraries.js';
import { findLibraryDirectory, loadLibraries } from '../../src/native/library.js';

/** The real build takes minutes and the registry: these scripts stand in for its tools, and link the prebuilt files. */
const FAKE_TOOLS = {
  npm: '',
  tar: '',
  git: '',
  cmake: `if [ "$1" = --build ]; then
    /bin/mkdir -p build/bin && /bin/ln -s "$PREBUILT"/libggml* "$PREBUILT"/libllama.* build/bin
    if [ "$6" = llama-server ]; then /bin/cp /bin/true build/bin/llama-server; fi
  else echo "$@" > "$OPTIONS"; fi`,
};

describe('libraries that are built for this machine', () => {
  let folder: string;
  let tools: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'warmpath-built-'));
    tools = join(folder, 'tools');
    await mkdir(tools);
    vi.stubEnv('PATH', tools);
    vi.stubEnv('OPTIONS', join(folder, 'options'));
    vi.stubEnv('PREBUILT', await realpath(findLibraryDirectory()));
  });
  afterEach(async () => {
    vi.unstubAllEnvs();
    await rm(folder, { recursive: true });
  });
  const addTools = async (scripts: Record<string, string>): Promise<void> => {
    for (const [name, script] of Object.entries(scripts)) {
      await writeFile(join(tools, name), `#!/bin/bash\n${script}\n`);
      await chmod(join(tools, name), 0o755);
    }
  };

  it('are taken from then on, and are what the engine loads', async () => {
    await addTools(FAKE_TOOLS);
    expect(builtLibraries(folder)).toBeUndefined();
    const steps: string[] = [];
    const directory = await buildLibraries(folder, { onStep: (what) => steps.push(what) });
    expect(builtLibraries(folder)).toBe(directory);
    expect(steps).toEqual(['fetching the source', 'configuring', 'compiling']);
    // Whatever the processor has, without the AMX kernels.
    expect(await readFile(join(folder, 'options'), 'utf8')).toMatch(
      /-DCMAKE_C_FLAGS=-U__AMX_INT8__ .*CXX_FLAGS=-U__AMX/,
    );
    expect(loadLibraries(directory).directory).toBe(directory);
    expect(await readdir(join(folder, 'libraries'))).toHaveLength(1);
    // Again, in place of what is there.
    expect(await buildLibraries(folder)).toBe(directory);
    expect(await readdir(join(folder, 'libraries'))).toHaveLength(1);
  });

  it('a llama-server of the same source is kept beside them, and found unless another one is named', async () => {
    await addTools(FAKE_TOOLS);
    vi.stubEnv('WARMPATH_CACHE_DIR', folder);
    vi.stubEnv('LLAMA_SERVER', '');
    expect(findLlamaServer()).toBeUndefined();
    const built = await llamaServer();
    expect(built.startsWith(join(folder, 'llama-server'))).toBe(true);
    // The server needs what the libraries leave out, and runs as its own project builds it.
    const options = await readFile(join(folder, 'options'), 'utf8');
    expect(options).toContain('-DLLAMA_BUILD_UI=OFF');
    expect(options).not.toMatch(/LLAMA_BUILD_(COMMON|TOOLS|SERVER)=OFF|GGML_OPENMP/);
    expect(builtLibraries(folder)).toBeUndefined();
    expect(findLlamaServer()).toBe(built);
    await addTools({ 'llama-server': '' });
    expect(findLlamaServer()).toBe(join(tools, 'llama-server'));
    expect(await llamaServer()).toBe(join(tools, 'llama-server'));
    expect(findLlamaServer({ LLAMA_SERVER: '/bin/true' })).toBe('/bin/true');
    expect(() => findLlamaServer({ LLAMA_SERVER: join(folder, 'none') })).toThrow(/LLAMA_SERVER names no program/);
    expect(() => findLlamaServer({ LLAMA_SERVER: folder })).toThrow(/LLAMA_SERVER names no program/);
  });

  it('say which tool is missing, or what it said when it failed, and leave nothing behind', async () => {
    const { cmake: _, ...others } = FAKE_TOOLS;
    await addTools(others);
    await expect(buildLibraries(folder)).rejects.toMatchObject({
      code: 'WARMPATH_NATIVE_MISSING',
      message: expect.stringMatching(/cmake cannot be run.*apt install/),
    });
    await addTools({ cmake: 'echo "no compiler was found" >&2; exit 3' });
    await expect(buildLibraries(folder)).rejects.toMatchObject({
      message: expect.stringMatching(/exit code 3.*\n.*no compiler was found/),
    });
    expect(builtLibraries(folder)).toBeUndefined();
    expect(await readdir(join(folder, 'libraries'))).toEqual([]);
  });

  describe('are worth building', () => {
    const WIDE = { processorFlags: 'fpu sse2 avx2 avx512f avx512bw' };
    const BUILDING = { ...FAKE_TOOLS, 'clang++': '' };
    const sixteenBits = (): Promise<string> => modelPath('random:3m');

    it('for 16-bit weights on a processor with AVX-512 where the tools are, until they are built', async () => {
      const model = await sixteenBits();
      expect(await paysToBuild(model, folder, WIDE)).toBe(false);
      await addTools(BUILDING);
      expect(await paysToBuild(model, folder, WIDE)).toBe(true);
      await buildLibraries(folder);
      expect(await paysToBuild(model, folder, WIDE)).toBe(false);
    });

    it.each(Object.keys(BUILDING))('not where there is no %s', async (missing) => {
      await addTools(BUILDING);
      await rm(join(tools, missing));
      expect(await paysToBuild(await sixteenBits(), folder, WIDE)).toBe(false);
    });

    it.each(['fpu sse2 avx2', 'fpu avx512foo', 'asimd', ''])('not on a processor with «%s»', async (processorFlags) => {
      await addTools(BUILDING);
      expect(await paysToBuild(await sixteenBits(), folder, { processorFlags })).toBe(false);
    });

    it('not for quantised weights, nor for a model that computes better with narrow vectors', async () => {
      await addTools(BUILDING);
      for (const model of [await modelPath('random:3m-q8_0'), (await resolveModel('demo')).path]) {
        expect(await paysToBuild(model, folder, WIDE)).toBe(false);
      }
    });

    it('and the note names the folder that was asked for', () => {
      expect(buildNote('warmpath engine')).toContain('`warmpath engine --build-libraries`');
      expect(buildNote('warmpath engine', '/a b')).toContain('--build-libraries --cache-dir "/a b"`');
    });
  });

  it('end with the signal', async () => {
    await addTools({ ...FAKE_TOOLS, git: 'exec /bin/sleep 1000' });
    const ending = new AbortController();
    const building = buildLibraries(folder, { signal: ending.signal });
    ending.abort(new Error('enough'));
    await expect(building).rejects.toThrow('enough');
    expect(await readdir(join(folder, 'libraries'))).toEqual([]);
  });
});
