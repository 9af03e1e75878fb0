import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { modelPath } from '../../bench/random-model/src/model-path.js';
import { resolveModel } from '../../src/models/resolve.js';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-model-path-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));
afterEach(() => vi.unstubAllEnvs());

describe('the name of a model in benchmarks and tests', () => {
  it('is made a file that an engine takes when it has random weights', async () => {
    const path = await modelPath('random:1m', folder);
    expect(path.startsWith(folder)).toBe(true);
    expect(await resolveModel(path)).toStrictEqual({ path, name: 'random-1m.form1', kind: 'file' });
  });

  it('leads to the cache folder that the environment names', async () => {
    vi.stubEnv('WARMPATH_CACHE_DIR', join(folder, 'named'));
    expect((await modelPath('random:1m')).startsWith(join(folder, 'named'))).toBe(true);
  });

  it('is left alone when the engine knows it', async () => {
    expect(await modelPath('demo', folder)).toBe('demo');
    expect(await modelPath('./model.gguf', folder)).toBe('./model.gguf');
  });

  it('is refused with a size that is none', async () => {
    const refusal = { code: 'WARMPATH_MODEL_SPEC', path: 'random:big' };
    await expect(modelPath('random:big', folder)).rejects.toMatchObject(refusal);
  });
});
