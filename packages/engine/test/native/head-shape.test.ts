import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { readGgufHeader } from '../../src/gguf/reader.js';
import { headShape, isUnsure, prefersNarrowVectors } from '../../src/native/head-shape.js';

const DEMO = fileURLToPath(new URL('../../models/warmpath-tiny.gguf', import.meta.url));

describe('the vectors that suit the heads of a model', () => {
  it('reads the shape of the heads from the file', async () => {
    const shape = headShape(await readGgufHeader(DEMO));
    expect(shape).toMatchObject({ layers: 4, heads: 4, headWidth: 32 });
    expect(shape.weights).toBeGreaterThan(500_000);
  });

  it.each([
    ['the demo model', { layers: 4, heads: 4, headWidth: 32, weights: 0.9e6 }, true],
    ['heads of whole wide vectors', { layers: 7, heads: 8, headWidth: 64, weights: 24e6 }, false],
    [
      'heads that leave the same behind vectors of any width',
      { layers: 4, heads: 4, headWidth: 80, weights: 0.9e6 },
      false,
    ],
    ['a large model with odd heads', { layers: 32, heads: 32, headWidth: 96, weights: 3.8e9 }, false],
    ['a file that says nothing of heads', { layers: 0, heads: 0, headWidth: 0, weights: 1e6 }, false],
  ])('is chosen for %s', (_what, shape, isNarrow) => {
    expect(prefersNarrowVectors(shape)).toBe(isNarrow);
  });

  it.each([
    ['the demo model', { layers: 4, heads: 4, headWidth: 32, weights: 0.9e6 }, false],
    ['heads of whole wide vectors', { layers: 7, heads: 8, headWidth: 64, weights: 24e6 }, false],
    ['a large model with odd heads', { layers: 32, heads: 32, headWidth: 96, weights: 3.8e9 }, false],
    ['a file that says nothing of heads', { layers: 0, heads: 0, headWidth: 0, weights: 1e6 }, false],
    ['narrow heads beside some weights', { layers: 2, heads: 6, headWidth: 32, weights: 2e6 }, true],
    ['narrow heads beside more', { layers: 2, heads: 3, headWidth: 32, weights: 5e6 }, true],
  ])('leaves doubt or none for %s', (_what, shape, isOpen) => {
    expect(isUnsure(shape)).toBe(isOpen);
  });
});
