import { mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { isFull } from '../../../../test/suite.js';
import { modelPath } from '../../bench/random-model/src/model-path.js';
import { verifyCaches } from '../cache/hierarchy-check.js';
import { someTokens, TestEngine } from '../support/engine.js';
import { writePart } from '../support/split-model.js';

verifyCaches();

describe('the disk tier of a real engine', () => {
  let engine: TestEngine;
  let directory: string;

  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'warmpath-disk-tier-'));
  });
  afterEach(async () => {
    await engine.close();
    await rm(directory, { recursive: true });
  });

  const start = async (options: object = {}): Promise<void> => {
    engine = await TestEngine.start({
      contextTokens: 1024,
      // About two of the documents below.
      hostTier: 600_000,
      diskTier: directory,
      ...options,
    });
  };
  const document = (id: number): number[] => someTokens(300, 100 + id);
  const ask = async (...ids: number[]) => {
    const prompt = [...ids.flatMap(document), ...someTokens(20, 7)];
    const segments = ids.map((_, index) => 300 * (index + 1));
    return engine.complete(prompt, { segments, max_tokens: 8 });
  };
  const byTier = (answer: Awaited<ReturnType<typeof ask>>) => answer.usage.prompt_tokens_details.cached_tokens_by_tier;
  const states = async (): Promise<string[]> => (await readdir(directory)).filter((name) => name.endsWith('.kv'));

  it('brings documents back from files, with the same answer, also in the next process', async () => {
    await start();
    const first = await ask(1, 2);
    for (const id of [3, 5, 7, 9]) {
      await ask(id, id + 1);
    }
    const again = await ask(1, 2);
    expect(again.choices[0]!.text).toBe(first.choices[0]!.text);
    expect(byTier(again)).toEqual({ device: 0, host: 0, disk: 619 });
    expect(again.timings).toMatchObject({ cached_disk: 619, cached: 619 });
    expect(await engine.metric('warmpath_engine_disk_failures_total')).toBe(0);
    expect(await engine.metric('warmpath_engine_tier_hits_total', 'tier="disk"')).toBe(619);
    await engine.close();
    for (const name of await states()) {
      expect((await stat(join(directory, name))).mode & 0o077).toBe(0);
    }

    await start();
    const later = await ask(5, 6);
    expect(byTier(later)).toMatchObject({ device: 0, host: 0 });
    expect(byTier(later).disk).toBeGreaterThanOrEqual(600);
    expect((await ask(1, 2)).choices[0]!.text).toBe(first.choices[0]!.text);
    expect(await engine.metric('warmpath_engine_disk_refused_files_total')).toBe(0);
  });

  it('refuses the files of another model, and goes on without them', async () => {
    await start();
    await ask(1, 2);
    await engine.close();
    const files = await states();
    expect(files.length).toBeGreaterThan(1);
    await start({ model: await modelPath('random:1m') });
    expect(await engine.metric('warmpath_engine_disk_refused_files_total')).toBe(files.length);
    expect(byTier(await ask(1, 2))).toEqual({ device: 0, host: 0, disk: 0 });
  });

  it.each([
    ['of a context with other rotary factors', { contextTokens: 256 }, { contextTokens: 1024 }],
    ['with keys and values of another type', {}, { kvType: 'q8_0' }],
  ] as const)('refuses files %s', async (_, before, after) => {
    const model = await modelPath('random:1m-longrope512');
    const cached = async (options: object): Promise<number> => {
      await start({ model, hostTier: 2 ** 20, ...options });
      const { usage } = await engine.complete(someTokens(200, 1), {});
      await engine.close();
      return usage.prompt_tokens_details.cached_tokens;
    };
    expect(await cached(before)).toBe(0);
    expect(await cached(before)).toBe(199);
    expect(await cached(after)).toBe(0);
    expect(await cached(after)).toBe(199);
    await start();
  });

  it('holds its budget', async () => {
    await start({ diskTierBytes: 1_500_000 });
    for (let id = 1; id < 16; id += 2) {
      await ask(id, id + 1);
      expect(await engine.metric('warmpath_engine_disk_used_bytes')).toBeLessThanOrEqual(1_500_000);
    }
    expect(await engine.metric('warmpath_engine_disk_evicted_tokens_total')).toBeGreaterThan(600);
  });

  it('needs a host tier', async () => {
    await start();
    await expect(start({ hostTier: 0 })).rejects.toMatchObject({ code: 'WARMPATH_CONFIG_INVALID', path: 'diskTier' });
  });

  it.runIf(isFull)(
    'refuses what other weights have computed, also where only the second part of a split model is another',
    async () => {
      const folder = await mkdtemp(join(tmpdir(), 'warmpath-split-'));
      const model = await writePart(folder, 'random:1m', 1);
      await writePart(folder, 'random:1m', 2);
      const used = { model, cacheDir: join(folder, 'cache'), hostTier: 2 ** 22 };
      await start(used);
      const first = await ask(1);
      await ask(1);
      await engine.close();
      await start(used);
      expect(byTier(await ask(1))).toMatchObject({ host: 0, disk: expect.toSatisfy((tokens: number) => tokens > 290) });
      await engine.close();
      await writePart(folder, 'random:1m@2', 2);
      await start(used);
      const other = await ask(1);
      expect(byTier(other)).toEqual({ device: 0, host: 0, disk: 0 });
      expect(other.choices[0]!.text).not.toBe(first.choices[0]!.text);
      await rm(folder, { recursive: true });
    },
  );
});
