import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { GgufScalar, GgufValue, GgufValueType } from '../../bench/random-model/src/gguf-format.js';
import { readGgufHeader } from '../../bench/random-model/src/gguf-reader.js';
import { type GgufTensorSource, writeGguf } from '../../bench/random-model/src/gguf-writer.js';
import { decodeWeights } from './decode.js';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-gguf-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const VALUES = {
  uint8: fc.integer({ min: 0, max: 0xff }),
  int8: fc.integer({ min: -0x80, max: 0x7f }),
  uint16: fc.integer({ min: 0, max: 0xffff }),
  int16: fc.integer({ min: -0x8000, max: 0x7fff }),
  uint32: fc.integer({ min: 0, max: 0xffffffff }),
  int32: fc.integer({ min: -0x80000000, max: 0x7fffffff }),
  float32: fc.float({ noNaN: true }),
  float64: fc.double({ noNaN: true }),
  uint64: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
  int64: fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
  bool: fc.boolean(),
  string: fc.string({ unit: 'grapheme' }),
} satisfies Record<Exclude<GgufValueType, 'array'>, fc.Arbitrary<GgufScalar>>;

const anyValue: fc.Arbitrary<GgufValue> = fc.oneof(
  ...Object.entries(VALUES).flatMap(([type, value]: [string, fc.Arbitrary<GgufScalar>]) => [
    value.map((value) => ({ type, value }) as GgufValue),
    fc.array(value, { maxLength: 20 }).map((value) => ({ type: 'array', of: type, value }) as GgufValue),
  ]),
);
const anyMetadata = fc
  .dictionary(fc.string({ minLength: 1, maxLength: 12 }), anyValue, { maxKeys: 8 })
  .map((entries) => new Map(Object.entries(entries)));

const anyTensor = fc
  .record({
    type: fc.constantFrom('f32' as const, 'f16' as const, 'q8_0' as const),
    blocks: fc.integer({ min: 1, max: 3 }),
    rows: fc.integer({ min: 1, max: 3 }),
    seed: fc.integer({ min: 1, max: 1000 }),
  })
  .map(({ type, blocks, rows, seed }) => ({
    type,
    shape: [blocks * 32, rows],
    values: Float32Array.from({ length: blocks * 32 * rows }, (_, index) => Math.sin(index * seed) * 3),
  }));

describe('a GGUF file that was written', () => {
  it('reads back the same: metadata with their types, tensors, weights within the precision of their type', async () => {
    let file = 0;
    await fc.assert(
      fc.asyncProperty(anyMetadata, fc.array(anyTensor, { maxLength: 4 }), async (metadata, tensors) => {
        const path = join(folder, `${file++}.gguf`);
        const sources = tensors.map(({ type, shape, values }, index) => ({
          name: `tensor.${index}`,
          type,
          shape,
          weights: [values.subarray(0, 32), values.subarray(32)],
        }));
        await writeGguf(path, metadata, sources);
        const header = await readGgufHeader(path);
        expect([...header.metadata]).toStrictEqual([...metadata]);
        expect(header.tensors.map(({ name, shape, type }) => ({ name, shape, type: type.name }))).toStrictEqual(
          sources.map(({ name, shape, type }) => ({ name, shape, type })),
        );
        const bytes = await readFile(path);
        for (const [index, info] of header.tensors.entries()) {
          const start = header.dataOffset + info.offset;
          expect(start % 32).toBe(0);
          const weights = decodeWeights(info.type.name, bytes.subarray(start, start + info.bytes));
          const tolerance = { f32: 0, f16: 3 * 2 ** -11, q8_0: 3 / 127 }[info.type.name]!;
          for (const [at, weight] of weights.entries()) {
            expect(Math.abs(weight - tensors[index]!.values[at]!)).toBeLessThanOrEqual(tolerance);
          }
        }
      }),
      { seed: 11, numRuns: 60 },
    );
  });

  it('honours general.alignment', async () => {
    const path = join(folder, 'aligned.gguf');
    const metadata = new Map<string, GgufValue>([['general.alignment', { type: 'uint32', value: 256 }]]);
    const tensor = { type: 'f32', shape: [3], weights: [Float32Array.of(1, 2, 3)] } as const;
    await writeGguf(path, metadata, [
      { ...tensor, name: 'a' },
      { ...tensor, name: 'b' },
    ]);
    const header = await readGgufHeader(path);
    expect(header.dataOffset % 256).toBe(0);
    expect(header.tensors.map(({ offset }) => offset)).toStrictEqual([0, 256]);
  });

  it('reports its progress up to the size of the file', async () => {
    const path = join(folder, 'progress.gguf');
    const seen: [number, number][] = [];
    const weights = [new Float32Array(64), new Float32Array(64)];
    await writeGguf(path, new Map(), [{ name: 'a', type: 'f32', shape: [128], weights }], {
      onProgress: (bytes, total) => seen.push([bytes, total]),
    });
    const size = (await readFile(path)).length;
    expect(seen.map(([, total]) => total)).toStrictEqual([size, size]);
    expect(seen.at(-1)![0]).toBe(size);
    expect(seen[0]![0]).toBe(size - 64 * 4);
  });
});

describe('a GGUF file that could not be written', () => {
  const failing: [string, GgufTensorSource][] = [
    ['too few weights', { name: 'a', type: 'f32', shape: [64], weights: [new Float32Array(32)] }],
    ['too many weights', { name: 'a', type: 'f32', shape: [16], weights: [new Float32Array(32)] }],
    ['rows that are no whole blocks', { name: 'a', type: 'q8_0', shape: [33], weights: [new Float32Array(33)] }],
    ['too long a name', { name: 'a'.repeat(64), type: 'f32', shape: [1], weights: [new Float32Array(1)] }],
    ['five dimensions', { name: 'a', type: 'f32', shape: [1, 1, 1, 1, 1], weights: [new Float32Array(1)] }],
  ];
  it.each(failing)('leaves nothing behind: %s', async (_what, tensor) => {
    const empty = await mkdtemp(join(folder, 'failed-'));
    await expect(writeGguf(join(empty, 'x.gguf'), new Map(), [tensor])).rejects.toThrow(RangeError);
    expect(await readdir(empty)).toStrictEqual([]);
  });

  it('leaves the file that was there before when it is aborted', async () => {
    const empty = await mkdtemp(join(folder, 'aborted-'));
    const path = join(empty, 'x.gguf');
    const tensor = { name: 'a', type: 'f32', shape: [1], weights: [Float32Array.of(1)] } as const;
    await writeGguf(path, new Map(), [tensor]);
    const before = await readFile(path);
    const aborted = AbortSignal.abort(new Error('enough'));
    await expect(
      writeGguf(path, new Map(), [{ ...tensor, weights: [Float32Array.of(2)] }], { signal: aborted }),
    ).rejects.toThrow('enough');
    expect(await readFile(path)).toStrictEqual(before);
    expect(await readdir(empty)).toStrictEqual(['x.gguf']);
  });
});
