import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { costOf, newProfile, profileSubject, storedProfile, storeProfile } from '../../src/profile/engine-profile.js';
import type { ProfileProgress } from '../../src/profile/measure-engine.js';
import { runProfileCommand } from '../../src/profile/profile-engine.js';
import { startEngineServer } from '../../src/server.js';

const SUBJECT = {
  model: 'm',
  library: 'l',
  processor: 'p',
  processors: 1,
  threads: 1,
  batchTokens: 128,
  kvType: 'f16',
  gpuLayers: 0,
} as const;
const PREFILL = {
  cachedTokens: [0, 100],
  newTokens: [10, 20],
  prefillMs: [
    [10, 20],
    [30, 60],
  ],
};
const HOST_COPY = { saveMsPerByte: 1e-6, restoreMsPerByte: 2e-6 };

describe('the profile of an engine', () => {
  let folder: string;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'warmpath-profile-'));
  });
  afterEach(() => rm(folder, { recursive: true }));

  it('costs what was measured, between it what lies between, and beyond it what its parts cost', () => {
    const cost = costOf(newProfile({ subject: SUBJECT, prefill: PREFILL, hostCopy: HOST_COPY }));
    expect(cost.prefillMs(0, 10)).toBe(10);
    expect(cost.prefillMs(50, 20)).toBe(40);
    expect(cost.prefillMs(0, 0)).toBe(0);
    // Twenty behind nothing, then twenty behind twenty.
    expect(cost.prefillMs(0, 40)).toBe(20 + cost.prefillMs(20, 20));
  });

  it('is measured with the engine that it is for, and found by the next start of the same kind', async () => {
    const options = { contextTokens: 512, threads: 1, batchTokens: 64, maxRunning: 4, cacheDir: folder };
    const served = async (more: object): Promise<boolean> => {
      const server = await startEngineServer({ ...options, port: 0, ...more });
      await server.close();
      return server.model.profiled;
    };
    expect(await served({})).toBe(false);

    const written: string[] = [];
    const seen: ProfileProgress[] = [];
    await runProfileCommand(
      { ...options, hostTier: 2 ** 24, diskTier: join(folder, 'disk') },
      { output: { write: (text) => written.push(text) }, onMeasured: (progress) => seen.push(progress) },
    );
    const { type, profile, file } = JSON.parse(written.join(''));
    expect(type).toBe('profiled');
    expect(profile.prefill).toMatchObject({ cachedTokens: [0, 32, 128, 256], newTokens: [1, 16, 64, 256] });
    const figures = [
      ...profile.prefill.prefillMs.flat(),
      ...Object.values(profile.hostCopy),
      ...Object.values(profile.disk),
    ];
    expect(figures).toHaveLength(16 + 2 + 2);
    expect(figures.every((figure) => Number(figure) > 0)).toBe(true);
    expect(seen).toHaveLength(16);
    expect(seen.at(-1)!.tokens).toBe(seen.at(-1)!.totalTokens);
    expect(await readdir(join(folder, 'disk'))).toEqual([]);

    expect(await served({ hostTier: 2 ** 24 })).toBe(true);
    expect(await served({ batchTokens: 128 })).toBe(false);
    expect(await served({ kvType: 'q8_0' })).toBe(false);
    await writeFile(file, '{"version":1');
    expect(await served({})).toBe(false);
  });

  it('is not used when it is damaged', async () => {
    const model = join(folder, 'model.gguf');
    await writeFile(model, 'weights');
    expect(await storedProfile(model, SUBJECT, folder)).toBeUndefined();
    const subject = await profileSubject(model, SUBJECT, folder);
    const sound = newProfile({ subject, prefill: PREFILL, hostCopy: HOST_COPY });
    await storeProfile(sound, folder);
    expect(await storedProfile(model, SUBJECT, folder)).toEqual(sound);
    for (const broken of [
      { ...sound, version: 2 },
      { ...sound, prefill: { ...PREFILL, prefillMs: [[1, 2]] } },
      { ...sound, hostCopy: { saveMsPerByte: 1 } },
    ]) {
      await storeProfile(broken as typeof sound, folder);
      expect(await storedProfile(model, SUBJECT, folder)).toBeUndefined();
    }
  });
});
