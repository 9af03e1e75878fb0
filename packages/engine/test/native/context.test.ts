import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { llamaBindings } from '../../src/native/bindings.js';
import { NativeContext } from '../../src/native/context.js';
import { NativeModel } from '../../src/native/model.js';
import { someTokens } from '../support/engine.js';

const MODEL = fileURLToPath(new URL('../../models/warmpath-tiny.gguf', import.meta.url));

describe('the native context', () => {
  let model: NativeModel;
  let context: NativeContext;
  beforeAll(async () => {
    model = await NativeModel.load(llamaBindings(), MODEL);
    context = await NativeContext.create(llamaBindings(), model, {
      cells: 1024,
      batchTokens: 64,
      outputs: 4,
      threads: 1,
    });
  });
  afterAll(() => {
    context.free();
    model.free();
  });

  /** Computes tokens on a sequence; answers the logits after the last. */
  async function compute(sequence: number, from: number, tokens: readonly number[]): Promise<Float32Array> {
    const { batch } = context;
    batch.clear();
    let last = 0;
    for (const [index, token] of tokens.entries()) {
      last = batch.add(token, from + index, sequence, index === tokens.length - 1);
    }
    expect(await context.decode()).toBe(0);
    return context.logits(last).slice();
  }

  it('refuses every touch while a decode is in flight, and works again afterwards', async () => {
    const { batch } = context;
    batch.clear();
    batch.add(300, 0, 1, true);
    const decoding = context.decode();
    for (const touch of [
      () => context.batch,
      () => context.copy(1, 2, 0, 1),
      () => context.remove(1, 0, -1),
      () => context.logits(0),
      () => context.lastPosition(1),
      () => context.free(),
    ]) {
      expect(touch).toThrow('touched while decoding');
    }
    await expect(context.decode()).rejects.toThrow('touched while decoding');
    expect(await decoding).toBe(0);
    expect(context.lastPosition(1)).toBe(0);
    context.remove(1, 0, -1);
    expect(context.lastPosition(1)).toBe(-1);
  });

  it('gives the same logits on a shared prefix as on one of its own', async () => {
    const prefix = someTokens(40, 1);
    const tail = someTokens(8, 2);
    await compute(1, 0, prefix);
    context.copy(1, 250, 0, 40);
    // The sharer keeps the cells when the first owner lets go of them.
    context.remove(1, 0, -1);
    const shared = await compute(250, 40, tail);
    const own = await compute(2, 0, [...prefix, ...tail]);
    const largest = Math.max(...own.map((logit, index) => Math.abs(logit - shared[index]!)));
    expect(largest).toBeLessThan(0.05);
    expect(shared.indexOf(Math.max(...shared))).toBe(own.indexOf(Math.max(...own)));
    expect(context.lastPosition(250)).toBe(47);
    context.remove(250, 0, -1);
    context.remove(2, 0, -1);
  });

  it('says when it has no cells left, and no token of the batch stays', async () => {
    for (let from = 0; from < 1024; from += 64) {
      await compute(3, from, someTokens(64, from));
    }
    const { batch } = context;
    batch.clear();
    batch.add(300, 0, 4, true);
    expect(await context.decode()).toBe(1);
    expect(context.lastPosition(4)).toBe(-1);
    context.remove(3, 0, -1);
  });

  it('gives no state when there is no memory for it, and keeps the cells', async () => {
    // Refused where the bytes are asked for: no machine has so many.
    const short = await NativeContext.create(
      { ...llamaBindings(), sequenceStateBytes: () => Number.MAX_SAFE_INTEGER },
      model,
      { cells: 256, batchTokens: 64, outputs: 4, threads: 1 },
    );
    const { batch } = short;
    batch.clear();
    for (const [position, token] of someTokens(20).entries()) {
      batch.add(token, position, 1, position === 19);
    }
    expect(await short.decode()).toBe(0);
    expect(short.save(1, 0, 20)).toBeUndefined();
    expect(short.lastPosition(0)).toBe(-1);
    expect(short.lastPosition(1)).toBe(19);
    short.free();
  });

  it('waits on a native thread for what a GPU computes, and only then counts as idle', async () => {
    // The library without a GPU takes the layers for itself.
    const bindings = { ...llamaBindings(), supportsGpu: () => true };
    const onGpu = await NativeModel.load(bindings, MODEL, 1);
    const waits: string[] = [];
    let finish: (() => void) | undefined;
    const synchronize = Object.assign(() => undefined, {
      async: (_context: bigint, done: (error: null) => void) => {
        waits.push('asked');
        finish = () => done(null);
        // The first decode, which warms it up, is waited for too.
        if (waits.length === 1) {
          finish();
        }
      },
    }) as unknown as typeof bindings.synchronize;
    const waiting = await NativeContext.create({ ...bindings, synchronize }, onGpu, {
      cells: 256,
      batchTokens: 64,
      outputs: 4,
      threads: 1,
    });
    waiting.batch.clear();
    waiting.batch.add(300, 0, 1, true);
    const decoding = waiting.decode();
    await vi.waitFor(() => expect(waits).toHaveLength(2), 300_000);
    expect(() => waiting.logits(0)).toThrow();
    finish!();
    expect(await decoding).toBe(0);
    expect(waiting.logits(0).some(Number.isFinite)).toBe(true);
    waiting.free();
    await onGpu.free();
  });

  it('holds no more tokens in a batch than it was made for', () => {
    const { batch } = context;
    batch.clear();
    for (let index = 0; index < 64; index++) {
      batch.add(300, index, 5, false);
    }
    expect(() => batch.add(300, 64, 5, false)).toThrow(RangeError);
    batch.clear();
  });
});
