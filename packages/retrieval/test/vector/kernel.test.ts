import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { KERNEL_TEXT, kernelBytes } from '../../kernel/kernel.js';
import { createKernelMemory, kernelOver, plainKernel } from '../../src/vector/kernel.js';
import { KERNEL_BYTES } from '../../src/vector/kernel-bytes.js';
import { VectorTable } from '../../src/vector/vector-table.js';
import { seededVectors } from './seeded-vectors.js';

describe('the kernel', () => {
  it('is the one that its source describes', async () => {
    expect(KERNEL_TEXT).toContain('f32x4.mul');
    expect(KERNEL_BYTES).toBe(Buffer.from(await kernelBytes()).toString('base64'));
  });

  it('runs as WebAssembly here, so that what follows tests it', () => {
    const memory = createKernelMemory(1);
    expect(String(kernelOver(memory).dot)).toContain('native code');
  });

  it('scores as plain JavaScript does, whatever stands where', () => {
    const memory = createKernelMemory(4);
    const floats = new Float32Array(memory.buffer);
    const ids = new Int32Array(memory.buffer, 65_536 - 4096, 64);
    const [wasm, plain] = [kernelOver(memory), plainKernel(memory)];
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 24 }),
        fc.integer({ min: 0, max: 30 }),
        fc.integer(),
        (blocks, count, seed) => {
          const length = 16 * blocks;
          const rows = 100;
          for (const [i, vector] of seededVectors(rows + 1, length, seed).entries()) {
            floats.set(vector, i === 0 ? 0 : 16_384 + (i - 1) * length);
          }
          for (let i = 0; i < count; i++) ids[i] = (i * 37 + seed) & 63;
          const places = [0, 65_536, 4 * length, ids.byteOffset, count] as const;
          const [outWasm, outPlain] = [65_536 - 2048, 65_536 - 1024];
          floats.fill(7, outWasm / 4, 16_384);
          wasm.dot(...places, outWasm);
          plain.dot(...places, outPlain);
          for (let i = 0; i < count; i++) {
            expect(Math.abs(floats[outWasm / 4 + i]! - floats[outPlain / 4 + i]!)).toBeLessThan(1e-5 * length * 4);
          }
          // Nothing behind the last score is written.
          expect(floats[outWasm / 4 + count]).toBe(7);
        },
      ),
      { seed: 3, numRuns: 60 },
    );
  });

  it('gives a row the same bits wherever in a batch it stands', () => {
    const table = new VectorTable(100);
    for (const vector of seededVectors(9, 100, 1)) table.push(vector, 'v');
    const score = (rows: number[]) => {
      table.ids.set(rows);
      table.score(table.row(8), rows.length);
      return [...table.scores.slice(0, rows.length)];
    };
    const together = score([0, 1, 2, 3, 4, 5, 6, 7]);
    expect([7, 6, 5, 4, 3, 2, 1, 0].map((row) => score([row])[0]).reverse()).toEqual(together);
  });

  it('computes the cosine', () => {
    const table = new VectorTable(3);
    table.push([4, 0, 3], 'b');
    table.ids[0] = 0;
    table.score(table.prepare([1, 2, 2], 'a'), 1);
    expect(table.scores[0]).toBeCloseTo(10 / (3 * 5), 6);
  });
});

describe('a table of vectors', () => {
  it('keeps its rows while it grows over pages', () => {
    const table = new VectorTable(33);
    const vectors = seededVectors(3000, 33, 5);
    for (const vector of vectors) table.push(vector, 'v');
    for (const row of [0, 1, 500, 2999]) expect(table.row(row)).toEqual(table.prepare(vectors[row]!, 'v'));
    expect([...table.row(7).slice(33)]).toEqual(Array(15).fill(0));
  });

  it.each([
    ['too short', [1, 2], 'v: '],
    ['too long', [1, 2, 3, 4], 'v: '],
    ['not a number', [1, Number.NaN, 3], 'v[1]: '],
    ['infinite', [1, 2, Number.NEGATIVE_INFINITY], 'v[2]: '],
    ['no number at all', [1, undefined, 3] as unknown as number[], 'v[1]: '],
    ['too large for its squares', [1e30, 2, 3], 'v[0]: '],
    ['without a direction', [0, 0, 0], 'v: '],
  ])('refuses a vector that is %s, and stores nothing', (_, vector, path) => {
    const table = new VectorTable(3);
    expect(() => table.push(vector, 'v')).toThrow(path);
    expect(() => table.prepare(vector, 'v')).toThrow(expect.objectContaining({ code: 'WARMPATH_INVALID_VECTOR' }));
    expect(table.count).toBe(0);
  });

  it('refuses more than 4 GiB before it takes any of it', () => {
    const table = new VectorTable(4096);
    expect(() => table.reserve(300_000)).toThrow('at most 262,1');
    expect(() => new VectorTable(0)).toThrow(expect.objectContaining({ code: 'WARMPATH_INVALID_VECTOR' }));
    expect(() => new VectorTable(5000)).toThrow('1 to 4096');
  });
});
