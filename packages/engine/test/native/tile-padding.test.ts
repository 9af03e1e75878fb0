import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { llamaBindings } from '../../src/native/bindings.js';
import { NativeContext } from '../../src/native/context.js';
import { NativeModel } from '../../src/native/model.js';
import { SCRATCH_SEQUENCE } from '../../src/native/sequence-ids.js';
import { TILE_ROWS, TilePadding } from '../../src/native/tile-padding.js';
import { someTokens } from '../support/engine.js';

const MODEL = fileURLToPath(new URL('../../models/warmpath-tiny.gguf', import.meta.url));
/** What the demo model's logits may differ by when the same tokens are computed in batches of another shape. */
const TOLERANCE = 0.25;

const SHAPE = { layers: 7, heads: 8, headWidth: 64, weights: 20e6, threads: 1, wideVectors: true };

describe('the padding of small batches', () => {
  it('fills a batch up to a whole tile, or leaves it as it is', () => {
    const batches = fc.record({ rows: fc.integer({ min: 1, max: 200 }), depth: fc.nat({ max: 100_000 }) });
    fc.assert(
      fc.property(batches, ({ rows, depth }) => {
        const padding = new TilePadding(SHAPE).wanted({ rows, attended: rows * depth, span: depth + rows });
        expect([0, TILE_ROWS - rows]).toContain(padding);
        expect(rows < TILE_ROWS || padding === 0).toBe(true);
      }),
    );
  });

  it('fills up every small batch where all are to be computed in the same way', () => {
    for (const rows of [1, 63, 64, 200]) {
      const padding = new TilePadding(SHAPE, true).wanted({ rows, attended: rows, span: rows });
      expect(padding).toBe(Math.max(0, TILE_ROWS - rows));
    }
  });

  it.each([
    // Measured: what was faster by more than a quarter when it was filled up.
    ['little stands before it', SHAPE, 48, 100, false],
    ['it is nearly full', SHAPE, 63, 512, true],
    ['it is half full and a lot stands before it', SHAPE, 32, 6_144, true],
    ['it is half full and not much stands before it', SHAPE, 32, 512, false],
    ['a single token is generated', SHAPE, 1, 6_144, false],
    ['heads are narrower than a vector', { ...SHAPE, layers: 4, heads: 4, headWidth: 32, weights: 7e5 }, 8, 512, true],
    [
      'heads are narrow and vectors too',
      { ...SHAPE, layers: 4, heads: 4, headWidth: 32, weights: 7e5, wideVectors: false },
      8,
      512,
      false,
    ],
    ['so many threads share it that no tile is full', { ...SHAPE, threads: 16 }, 32, 6_144, false],
  ])('knows whether it pays when %s', (_when, shape, rows, depth, isWorth) => {
    const padding = new TilePadding(shape).wanted({ rows, attended: rows * depth, span: depth + rows });
    expect(padding).toBe(isWorth ? TILE_ROWS - rows : 0);
  });
});

describe('the estimate of a batch', () => {
  const padding = new TilePadding(SHAPE);
  const at = (rows: number, depth: number) => ({ rows, attended: rows * depth, span: depth + rows });

  it('grows with rows and depth, and says what is computed in tiles', () => {
    const batches = fc.record({ rows: fc.integer({ min: 1, max: 300 }), depth: fc.integer({ min: 1, max: 20_000 }) });
    fc.assert(
      fc.property(batches, fc.boolean(), ({ rows, depth }, isPadded) => {
        const estimate = padding.estimate(at(rows, depth), isPadded);
        const filled = rows + (isPadded ? padding.wanted(at(rows, depth)) : 0);
        expect(estimate.isTiled).toBe(filled >= TILE_ROWS);
        expect(padding.estimate(at(rows, depth + 100), isPadded).nanoseconds).toBeGreaterThan(estimate.nanoseconds);
        const more = padding.estimate(at(rows + TILE_ROWS, depth), isPadded);
        expect(rows < TILE_ROWS || more.nanoseconds > estimate.nanoseconds).toBe(true);
        expect(padding.estimate(at(rows, depth), false).nanoseconds * 1.01).toBeGreaterThan(estimate.nanoseconds);
      }),
      { seed: 2 },
    );
  });

  it('knows that a row too many costs a whole tile', () => {
    const [full, over] = [TILE_ROWS, TILE_ROWS + 1].map((rows) => padding.estimate(at(rows, 4_000), true).nanoseconds);
    expect(over! / full!).toBeGreaterThan(1.5);
  });
});

describe('a padded batch', () => {
  let model: NativeModel;
  const contexts: NativeContext[] = [];
  beforeAll(async () => {
    model = await NativeModel.load(llamaBindings(), MODEL);
  });
  afterAll(() => {
    for (const context of contexts) {
      context.free();
    }
    model.free();
  });

  async function start(padding?: 'faster' | 'all'): Promise<NativeContext> {
    const options = { cells: 512, batchTokens: 512, outputs: 4, threads: 1, ...(padding !== undefined && { padding }) };
    const context = await NativeContext.create(llamaBindings(), model, options);
    contexts.push(context);
    return context;
  }

  /** Computes tokens from a position on; answers the logits after the last, and how many tokens were computed. */
  async function compute(context: NativeContext, tokens: readonly number[], from: number, to: number) {
    const { batch } = context;
    batch.clear();
    let last = 0;
    for (let position = from; position < to; position++) {
      last = batch.add(tokens[position]!, position, 1, position === to - 1);
    }
    expect(await context.decode()).toBe(0);
    return { logits: context.logits(last).slice(), computed: context.batch.count };
  }

  it('gives the logits of one large batch, also when every cell is taken, and leaves no cell behind', async () => {
    const tokens = someTokens(512, 3);
    const [whole, padded] = [await start(), await start('faster')];
    expect(padded.cells).toBe(whole.cells);
    expect((await compute(padded, tokens, 0, 300)).computed).toBe(300);
    for (const [from, to] of [
      [300, 340],
      [340, 349],
      [349, 512],
    ] as const) {
      const { logits, computed } = await compute(padded, tokens, from, to);
      expect(computed).toBe(Math.max(TILE_ROWS, to - from));
      expect(padded.lastPosition(SCRATCH_SEQUENCE)).toBe(-1);
      whole.remove(1, 0, -1);
      const expected = (await compute(whole, tokens, 0, to)).logits;
      const difference = Math.max(...logits.map((value, token) => Math.abs(value - expected[token]!)));
      expect(difference).toBeLessThan(TOLERANCE);
    }
    padded.remove(1, 500, -1);
    expect((await compute(padded, tokens, 500, 512)).computed).toBe(TILE_ROWS);
  });
});
