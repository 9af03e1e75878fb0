import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { modelPath } from '../../bench/random-model/src/model-path.js';
import { llamaFor } from '../../src/native/bindings.js';
import { hasWideVectors } from '../../src/native/built-libraries.js';
import { chooseVectorWidth, decide, type TimedPair, timeVariants } from '../../src/native/measured-variant.js';

/** Narrow by its shape, and not clearly so. */
const UNSURE = 'random:2m';
const pairs = (narrow: number, wide: number, count = 7): TimedPair[] => Array(count).fill({ narrow, wide });

describe('what pairs of timings say', () => {
  it.each([
    ['narrow', pairs(1, 2)],
    ['wide', pairs(2, 1)],
    ['narrow', [...pairs(1, 2, 3), ...pairs(50, 90, 2)]],
    [undefined, pairs(1, 2, 4)],
    [undefined, []],
    [undefined, [...pairs(1, 2, 6), ...pairs(2, 1, 1)]],
  ])('%s', (variant, timed) => {
    expect(decide(timed)).toBe(variant);
  });
});

describe('the variant that was measured', () => {
  let folder: string;
  let timings: number;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'warmpath-variant-'));
    timings = 0;
  });
  afterEach(() => rm(folder, { recursive: true }));

  async function choose(
    timed: TimedPair[] | Error,
    { spec = UNSURE, again = false, isWide = true } = {},
  ): Promise<string> {
    const time = async (): Promise<TimedPair[]> => {
      timings++;
      if (timed instanceof Error) {
        throw timed;
      }
      return timed;
    };
    return chooseVectorWidth(await modelPath(spec), { threads: 1, cacheDir: folder }, { again, isWide, time });
  }
  const notes = (): Promise<string[]> => readdir(join(folder, 'variants')).catch(() => []);

  it('is taken against what the shape says, and remembered until it is measured anew', async () => {
    expect(await choose(pairs(2, 1))).toBe('wide');
    expect(await choose(pairs(1, 2))).toBe('wide');
    expect(timings).toBe(1);
    expect(await choose(pairs(1, 2), { again: true })).toBe('narrow');
    expect(await choose(pairs(2, 1))).toBe('narrow');
    expect(timings).toBe(2);
    expect(await notes()).toHaveLength(1);
  });

  it('is of one shape alone', async () => {
    expect(await choose(pairs(2, 1))).toBe('wide');
    expect(await choose(pairs(1, 2), { spec: 'random:2m-q8_0' })).toBe('narrow');
    expect(await notes()).toHaveLength(2);
  });

  it.each([
    ['measuring fails', new Error('no')],
    ['there are too few pairs', pairs(2, 1, 2)],
    ['pairs contradict each other', [...pairs(2, 1, 4), ...pairs(1, 2, 3)]],
  ])('is what the shape says where %s, at the cost of one start', async (_why, timed) => {
    expect([await choose(timed), await choose(pairs(2, 1))]).toEqual(['narrow', 'narrow']);
    expect(timings).toBe(1);
  });

  it.each([
    '',
    '{"version":1,"varia',
    'null',
    '{}',
    '{"version":1,"variant":"broad","pairs":[]}',
    '{"version":99,"variant":"narrow","pairs":[]}',
  ])('is measured again where its note is %s', async (text) => {
    await choose(pairs(2, 1));
    const file = join(folder, 'variants', (await notes())[0]!);
    await writeFile(file, text);
    expect(await choose(pairs(2, 1))).toBe('wide');
    expect(timings).toBe(2);
    expect(JSON.parse(await readFile(file, 'utf8'))).toMatchObject({ version: 1, variant: 'wide' });
  });

  it('is not measured where the shape leaves no doubt, or the processor no choice', async () => {
    // Random models of 3 million weights have heads of whole wide vectors.
    expect(await choose(pairs(1, 2), { spec: 'random:3m' })).toBe('wide');
    expect(await choose(pairs(2, 1), { isWide: false })).toBe('narrow');
    expect(timings).toBe(0);
    expect(await notes()).toEqual([]);
  });

  it('is measured again at each start where it cannot be written down', async () => {
    await writeFile(join(folder, 'variants'), 'a file, and no folder');
    expect([await choose(pairs(2, 1)), await choose(pairs(2, 1))]).toEqual(['wide', 'wide']);
    expect(timings).toBe(2);
  });
});

describe('processes that time the variants', () => {
  it('answer in turns, and what was timed before the limit counts', async () => {
    const model = await modelPath(UNSURE);
    const timed = await timeVariants({ model, threads: 1 }, 50_000);
    expect(timed).toHaveLength(7);
    for (const { narrow, wide } of timed) {
      expect(Math.min(narrow, wide)).toBeGreaterThan(0);
    }
    expect(await timeVariants({ model, threads: 1 }, 1)).toEqual([]);
  });

  it('decide what a first start loads', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'warmpath-variant-'));
    try {
      const settings = { nativeLog: false, cacheDir: folder, gpuLayers: 0, threads: 1 };
      const bindings = await llamaFor(await modelPath(UNSURE), settings);
      const [note] = await readdir(join(folder, 'variants')).catch(() => []);
      expect(note !== undefined).toBe(hasWideVectors());
      if (note !== undefined) {
        const { variant } = JSON.parse(await readFile(join(folder, 'variants', note), 'utf8')) as { variant: string };
        expect(/ AVX512 = 1 /.test(bindings.systemInfo())).toBe(variant === 'wide');
      }
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  it('say that they cannot, at once', async () => {
    await expect(timeVariants({ model: '/no/such/model.gguf', threads: 1 }, 50_000)).rejects.toThrow();
  });
});
