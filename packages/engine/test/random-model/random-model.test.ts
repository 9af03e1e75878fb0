import { createHash } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isFull, runs } from '../../../../test/suite.js';
import { readGgufHeader } from '../../bench/random-model/src/gguf-reader.js';
import { chooseArchitecture } from '../../bench/random-model/src/random-architecture.js';
import { parseRandomModel, randomModel, randomModelName } from '../../bench/random-model/src/random-model.js';
import { type SeededWeightsRequest, seededWeights } from '../../bench/random-model/src/seeded-weights.js';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-random-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const sha256 = async (path: string) =>
  createHash('sha256')
    .update(await readFile(path))
    .digest('hex');

describe('the name of a random-weights model', () => {
  it.each([
    ['1m', { millions: 1, weights: 'f16', seed: 1, family: '', vocabulary: 6144 }, 'random-1m'],
    ['24M', { millions: 24, weights: 'f16', seed: 1, family: '', vocabulary: 6144 }, 'random-24m'],
    ['24m@7', { millions: 24, weights: 'f16', seed: 7, family: '', vocabulary: 6144 }, 'random-24m-seed7'],
    ['24m-q8_0', { millions: 24, weights: 'q8_0', seed: 1, family: '', vocabulary: 6144 }, 'random-24m-q8_0'],
    ['4m-mla', { millions: 4, weights: 'f16', seed: 1, family: 'mla', vocabulary: 6144 }, 'random-4m-mla'],
    ['4m-mrope', { millions: 4, weights: 'f16', seed: 1, family: 'mrope', vocabulary: 6144 }, 'random-4m-mrope'],
    [
      '4m-longrope512',
      { millions: 4, weights: 'f16', seed: 1, family: 'longrope512', vocabulary: 6144 },
      'random-4m-longrope512',
    ],
    [
      '4m-window32@2',
      { millions: 4, weights: 'f16', seed: 2, family: 'window32', vocabulary: 6144 },
      'random-4m-window32-seed2',
    ],
    [
      '8m~150000',
      { millions: 8, weights: 'f16', seed: 1, family: '', vocabulary: 150_000 },
      'random-8m-vocabulary150000',
    ],
    [
      '2000m-Q8_0@4294967295',
      { millions: 2000, weights: 'q8_0', seed: 4294967295, family: '', vocabulary: 6144 },
      'random-2000m-q8_0-seed4294967295',
    ],
  ])('is read: %s', (text, request, name) => {
    const { family, ...rest } = parseRandomModel(text);
    expect({ ...rest, family: family.suffix }).toStrictEqual(request);
    expect(randomModelName(parseRandomModel(text))).toBe(name);
  });

  it.each([
    '',
    'm',
    '24',
    '0m',
    '2001m',
    '24mb',
    '-1m',
    '1.5m',
    '24m@',
    '24m@x',
    '24m@4294967296',
    '24m-q4_0',
    '24m/..',
    '24m-window',
    '24m-window0',
    '24m~',
    '24m~6143',
    '24m-mla7',
    '24m-llama',
    '24m-constructor7',
  ])('is refused: %j', (text) => {
    expect(() => parseRandomModel(text)).toThrow(
      expect.objectContaining({ code: 'WARMPATH_MODEL_SPEC', path: `random:${text}` }),
    );
  });
});

describe('the architecture for a size', () => {
  it('has about as many weights as asked for, in proportions that llama.cpp and q8_0 take', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 2000 }), (millions) => {
        const { parameters, width, feedForward, heads, kvHeads, headWidth, layers } = chooseArchitecture(
          millions * 1e6,
          6144,
        );
        expect(Math.abs(parameters / (millions * 1e6) - 1)).toBeLessThan(0.05);
        expect(heads * headWidth).toBe(width);
        expect(heads % kvHeads).toBe(0);
        expect([width % 32, feedForward % 32, headWidth % 32]).toStrictEqual([0, 0, 0]);
        expect(layers).toBeGreaterThanOrEqual(2);
      }),
      { seed: 2, numRuns: runs(200) },
    );
  });
});

describe('seeded weights', () => {
  const draw = (request: Partial<SeededWeightsRequest>): number[] => {
    const weights: number[] = [];
    for (const piece of seededWeights({ seed: 1, name: 'a', count: 200_000, deviation: 0.5, ...request })) {
      for (const weight of piece) weights.push(weight);
    }
    return weights;
  };

  it('have the mean and the spread that were asked for', () => {
    const weights = draw({});
    expect(weights).toHaveLength(200_000);
    const mean = weights.reduce((sum, weight) => sum + weight, 0) / weights.length;
    const variance = weights.reduce((sum, weight) => sum + (weight - mean) ** 2, 0) / weights.length;
    expect(Math.abs(mean)).toBeLessThan(0.01);
    expect(Math.abs(Math.sqrt(variance) - 0.5)).toBeLessThan(0.005);
  });

  it('are uncorrelated between tensors and between seeds', () => {
    const first = draw({});
    for (const other of [draw({ name: 'b' }), draw({ seed: 2 }), draw({ seed: 0 })]) {
      const correlation = first.reduce((sum, weight, index) => sum + weight * other[index]!, 0) / first.length / 0.25;
      expect(Math.abs(correlation)).toBeLessThan(0.02);
    }
  });
});

describe('a random-weights model', () => {
  it('has the same bytes on every machine', async () => {
    // When this changes on purpose, raise FORM in random-model.ts: caches hold files of the old form.
    const path = await randomModel(parseRandomModel('1m'), { cacheDir: folder });
    expect(await sha256(path)).toBe('b97160fcc16065accf23284e2808a675f7ed91d9491a2b88499e4bb74e2343ec');
  });

  it('describes itself as a llama model with a chat template and 32 768 tokens of context', async () => {
    const { metadata, tensors } = await readGgufHeader(await randomModel(parseRandomModel('1m'), { cacheDir: folder }));
    expect(metadata.get('general.architecture')).toStrictEqual({ type: 'string', value: 'llama' });
    expect(metadata.get('llama.context_length')).toStrictEqual({ type: 'uint32', value: 32_768 });
    expect(metadata.get('tokenizer.chat_template')?.value).toContain('<|im_start|>assistant');
    const tokens = metadata.get('tokenizer.ggml.tokens')?.value as readonly string[];
    const named = (key: string) => tokens[metadata.get(`tokenizer.ggml.${key}_token_id`)?.value as number];
    expect([named('bos'), named('eos'), named('padding')]).toStrictEqual(['<|bos|>', '<|im_end|>', '<|pad|>']);
    const weights = tensors.map(({ shape }) => shape.reduce((product, length) => product * length, 1));
    expect(weights.reduce((sum, count) => sum + count, 0)).toBe(chooseArchitecture(1e6, 6144).parameters);
    expect(new Set(tensors.map(({ type }) => type.name))).toStrictEqual(new Set(['f16', 'f32']));
  });

  it.runIf(isFull)('differs by seed and by type of weights, each in a file of its own', async () => {
    const paths = await Promise.all(
      ['1m', '1m@2', '1m-q8_0'].map((text) => randomModel(parseRandomModel(text), { cacheDir: folder })),
    );
    expect(new Set(await Promise.all(paths.map(sha256))).size).toBe(3);
    const { tensors } = await readGgufHeader(paths[2]!);
    expect(new Set(tensors.map(({ type }) => type.name))).toStrictEqual(new Set(['q8_0', 'f32']));
  });

  it('is made once, with its progress, and then only looked at', async () => {
    const cacheDir = await mkdtemp(join(folder, 'once-'));
    const events: { readonly bytes: number; readonly totalBytes: number }[] = [];
    const onProgress = (bytes: number, totalBytes: number) => events.push({ bytes, totalBytes });
    const options = { cacheDir, onProgress };
    const path = await randomModel(parseRandomModel('1m'), options);
    const { bytes, totalBytes } = events.at(-1)!;
    expect(bytes).toBe(totalBytes);
    events.length = 0;
    expect(await randomModel(parseRandomModel('1m'), options)).toBe(path);
    expect(events).toStrictEqual([]);
  });

  it.runIf(isFull)('comes out whole when several make it at once', async () => {
    const cacheDir = await mkdtemp(join(folder, 'race-'));
    const paths = await Promise.all([1, 2, 3].map(() => randomModel(parseRandomModel('1m@9'), { cacheDir })));
    expect(new Set(paths).size).toBe(1);
    await readGgufHeader(paths[0]!);
    expect(await readdir(dirname(paths[0]!))).toHaveLength(1);
  });

  it.each([
    ['cut short', (path: string) => truncate(path, 1_000_000)],
    ['overwritten', (path: string) => writeFile(path, 'something else')],
  ])('is made again when it was %s', async (_what, damage) => {
    const cacheDir = await mkdtemp(join(folder, 'damaged-'));
    const path = await randomModel(parseRandomModel('1m'), { cacheDir });
    const before = await sha256(path);
    await damage(path);
    await randomModel(parseRandomModel('1m'), { cacheDir });
    expect(await sha256(path)).toBe(before);
  });

  it('leaves nothing behind when it is aborted', async () => {
    const cacheDir = await mkdtemp(join(folder, 'aborted-'));
    const stop = new AbortController();
    const work = randomModel(parseRandomModel('1m'), {
      cacheDir,
      signal: stop.signal,
      onProgress: () => stop.abort(new Error('enough')),
    });
    await expect(work).rejects.toThrow('enough');
    expect(await readdir(join(cacheDir, 'random'))).toStrictEqual([]);
  });
});

describe('a folder that cannot be made', () => {
  it('is told by the option that names it', async () => {
    const file = join(folder, 'a-file');
    await writeFile(file, '');
    await expect(randomModel(parseRandomModel('1m'), { cacheDir: file })).rejects.toMatchObject({
      code: 'WARMPATH_CONFIG_INVALID',
      path: 'cacheDir',
    });
  });
});
