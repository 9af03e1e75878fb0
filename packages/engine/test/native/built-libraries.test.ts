import { chmod, mkdir, mkdtemp, readdir, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { buildLibraries, builtLibraries } from '../../src/native/built-libraries.js';
import { findLibraryDirectory, loadLibraries } from '../../src/native/library.js';

/** The real build takes minutes and the registry: these scripts stand in for its tools, and link the prebuilt files. */
const FAKE_TOOLS = {
  npm: '',
  tar: '',
  git: '',
  cmake: `if [ "$1" = --build ]; then /bin/mkdir -p build/bin && /bin/ln -s "$PREBUILT"/libggml* "$PREBUILT"/libllama.* build/bin; fi`,
};

describe('libraries that are built for this machine', () => {
  let folder: string;
  let tools: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'warmpath-built-'));
    tools = join(folder, 'tools');
    await mkdir(tools);
    vi.stubEnv('PATH', tools);
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
    expect(loadLibraries(directory).directory).toBe(directory);
    expect(await readdir(join(folder, 'libraries'))).toHaveLength(1);
    // Again, in place of what is there.
    expect(await buildLibraries(folder)).toBe(directory);
    expect(await readdir(join(folder, 'libraries'))).toHaveLength(1);
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

  it('end with the signal', async () => {
    await addTools({ ...FAKE_TOOLS, git: 'exec /bin/sleep 1000' });
    const ending = new AbortController();
    const building = buildLibraries(folder, { signal: ending.signal });
    ending.abort(new Error('enough'));
    await expect(building).rejects.toThrow('enough');
    expect(await readdir(join(folder, 'libraries'))).toEqual([]);
  });
});
