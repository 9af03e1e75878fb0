import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { llamaBindings } from '../../src/native/bindings.js';
import { NativeContext } from '../../src/native/context.js';
import { NativeModel } from '../../src/native/model.js';
import { SCRATCH_SEQUENCE } from '../../src/native/sequence-ids.js';
import { TILE_ROWS } from '../../src/native/structs.js';
import { someTokens } from '../support/engine.js';

const MODEL = fileURLToPath(new URL('../../models/warmpath-tiny.gguf', import.meta.url));
/** What the demo model's logits may differ by when the same tokens are computed in batches of another shape. */
const TOLERANCE = 0.25;

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

  async function start(isPadded: boolean): Promise<NativeContext> {
    const options = { cells: 512, batchTokens: 512, outputs: 4, threads: 1, isPadded };
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
    const [whole, padded] = [await start(false), await start(true)];
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
