import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { EngineLoop } from '../../src/loop/engine-loop.js';
import type { GenerationResult } from '../../src/loop/generation.js';
import type { EngineLoopOptions } from '../../src/loop/loop-options.js';
import { llamaBindings } from '../../src/native/bindings.js';
import { NativeModel } from '../../src/native/model.js';
import { StateStore } from '../../src/store/state-store.js';
import { someTokens } from '../support/engine.js';

const MODEL = fileURLToPath(new URL('../../models/warmpath-tiny.gguf', import.meta.url));
const IDENTITY = { model: 'tiny', library: 'llama.cpp', cells: 'f16/f16' };
const SYSTEM = someTokens(100, 1);
const DOCUMENT = someTokens(90, 2);

/** What one of these tests asks: a system prompt, perhaps a document, and a question of its own. */
interface Question {
  readonly parts: readonly number[][];
  readonly salt?: string;
}

describe('copies of what is used most, for the process after this one', () => {
  let model: NativeModel;
  let directory: string;
  let loops: EngineLoop[];
  beforeAll(async () => {
    model = await NativeModel.load(llamaBindings(), MODEL);
  });
  afterAll(() => model.free());
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'warmpath-hot-'));
    loops = [];
  });
  afterEach(async () => {
    vi.restoreAllMocks();
    await Promise.all(loops.map((loop) => loop.close(0)));
    await rm(directory, { recursive: true });
  });

  async function start(options: Partial<EngineLoopOptions> = {}, capacityBytes = 2 ** 24): Promise<EngineLoop> {
    const ignore = (): void => undefined;
    const loop = await EngineLoop.start({
      bindings: llamaBindings(),
      model,
      name: 'test',
      cells: 1024,
      batchTokens: 256,
      maxRunning: 4,
      queueLimit: 8,
      threads: 1,
      hotCopies: { directory, capacityBytes, model: 'model' },
      verifyCache: true,
      observer: { onPrompt: ignore, onStep: ignore, onToken: () => undefined, onPreemption: ignore, onEnd: ignore },
      ...options,
    });
    loops.push(loop);
    return loop;
  }

  /** As after a crash, with everything that was handed to the store written. */
  async function end(loop: EngineLoop): Promise<void> {
    loops.splice(loops.indexOf(loop), 1);
    await loop.close(0);
  }

  function ask(loop: EngineLoop, { parts, salt }: Question): Promise<{ text: string; result: GenerationResult }> {
    let position = 0;
    const boundaries = parts.map(({ length }) => {
      position += length;
      return position;
    });
    return new Promise((resolve, reject) => {
      let text = '';
      loop.submit(
        {
          id: 'request',
          prompt: parts.flat(),
          boundaries,
          maxTokens: 8,
          sampling: { temperature: 0, topP: 1 },
          seed: 0,
          stops: [],
          ignoreEndOfGeneration: true,
          ...(salt !== undefined && { salt }),
        },
        {
          onText: (piece) => {
            text += piece;
          },
          onFinish: (result) => resolve({ text, result }),
          onError: reject,
        },
      );
    });
  }

  const question = (index: number): number[] => someTokens(10, 50 + index);

  /** Asks until the loop has copied so many nodes. */
  async function askUntil(loop: EngineLoop, copies: number, parts: readonly number[][], salt?: string): Promise<void> {
    for (let index = 0; loop.stats.hot!.copies < copies; index++) {
      expect(index).toBeLessThan(40);
      await ask(loop, { parts: [...parts, question(index)], ...(salt !== undefined && { salt }) });
      // The loop copies when it has nothing to compute.
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  it('are what it begins with, with the same answer, the system prompt first', async () => {
    const first = await start();
    const asked: Question = { parts: [SYSTEM, DOCUMENT, question(99)] };
    const { text } = await ask(first, asked);
    await askUntil(first, 2, [SYSTEM, DOCUMENT]);
    await end(first);
    const second = await start();
    const again = await ask(second, asked);
    expect(again.text).toBe(text);
    expect(again.result.cachedByTier).toEqual({ device: 190, host: 0, disk: 0 });
    expect(second.stats.hot).toMatchObject({ restoredTokens: 190, copies: 2, failures: 0 });
  });

  it('are of what is used again, under a budget that the most used keep', async () => {
    const first = await start({}, 150_000);
    // 1,036 bytes a token: one of both fits.
    await askUntil(first, 1, [SYSTEM]);
    for (let index = 0; index < 4; index++) {
      await ask(first, { parts: [SYSTEM, DOCUMENT, question(index)] });
    }
    await ask(first, { parts: [someTokens(120, 9)] });
    await end(first);
    const second = await start();
    expect((await ask(second, { parts: [SYSTEM, DOCUMENT, question(7)] })).result.cachedTokens).toBe(100);
    expect((await ask(second, { parts: [someTokens(120, 9), question(8)] })).result.cachedTokens).toBe(0);
  });

  it('stay with their tenant', async () => {
    const first = await start();
    await askUntil(first, 1, [SYSTEM], 'one');
    await end(first);
    const second = await start();
    expect((await ask(second, { parts: [SYSTEM, question(7)], salt: 'two' })).result.cachedTokens).toBe(0);
    expect((await ask(second, { parts: [SYSTEM, question(7)], salt: 'one' })).result.cachedTokens).toBe(100);
  });

  it('give no more than half of the cells back', async () => {
    const first = await start();
    await askUntil(first, 2, [SYSTEM, DOCUMENT]);
    await end(first);
    const second = await start({ cells: 256 });
    await ask(second, { parts: [question(7)] });
    expect(second.stats.hot).toMatchObject({ restoredTokens: 100, copies: 1 });
  });

  it('never become a wrong token, whichever bit of them changes', async () => {
    const first = await start();
    const asked: Question = { parts: [SYSTEM, DOCUMENT, question(99)] };
    const { text } = await ask(first, asked);
    await askUntil(first, 2, [SYSTEM, DOCUMENT]);
    await end(first);
    const files = new Map<string, Buffer>();
    for (const name of await readdir(directory)) {
      files.set(name, await readFile(join(directory, name)));
    }
    const places = fc.record({
      file: fc.nat({ max: files.size - 1 }),
      // The head, the description and the tokens are the first kilobyte; the cells are the rest.
      place: fc.oneof(fc.nat({ max: 1_000 }), fc.nat({ max: 90_000 })),
      bit: fc.nat({ max: 7 }),
    });
    await fc.assert(
      fc.asyncProperty(places, async ({ file, place, bit }) => {
        const [name, bytes] = [...files][file]!;
        const changed = Buffer.from(bytes);
        changed[place]! ^= 1 << bit;
        for (const [each, content] of files) {
          await writeFile(join(directory, each), each === name ? changed : content);
        }
        const next = await start();
        const again = await ask(next, asked);
        expect(again.text).toBe(text);
        expect(next.stats.hot!.failures).toBeGreaterThan(0);
        expect(next.stats.hot!.restoredTokens).toBeLessThan(190);
        expect(again.result.cachedTokens).toBe(next.stats.hot!.restoredTokens);
        await end(next);
        for (const each of await readdir(directory)) {
          await rm(join(directory, each));
        }
      }),
      { seed: 31, numRuns: 25 },
    );
  });

  it('cost nothing but themselves when there is no room for them, or their folder is gone', async () => {
    const warnings = vi.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
    const first = await start();
    await rm(directory, { recursive: true });
    // A full memory file system fails in the same place, with ENOSPC instead of ENOENT.
    for (let index = 0; first.stats.hot!.failures === 0; index++) {
      expect(index).toBeLessThan(40);
      expect((await ask(first, { parts: [SYSTEM, question(index)] })).result.completionTokens).toBe(8);
    }
    expect(warnings).toHaveBeenCalledWith(expect.stringContaining('ENOENT'));
    expect(first.stats.hot).toMatchObject({ copies: 0, usedBytes: 0 });
    await writeFile(directory, 'a file where the folder should be');
    const second = await start();
    expect(second.stats).not.toHaveProperty('hot');
    expect((await ask(second, { parts: [SYSTEM] })).result.completionTokens).toBe(8);
  });

  it('are not made of what another model computed', async () => {
    const { store } = await StateStore.open({
      directory,
      capacityBytes: 2 ** 20,
      identity: { ...IDENTITY, model: 'another' },
      clock: () => 0,
      onWarning: () => undefined,
    });
    store.put({ salt: '', tokens: SYSTEM, from: 0, state: new Uint8Array(100), checksum: 0, uses: 0 });
    await store.close();
    const loop = await start();
    expect((await ask(loop, { parts: [SYSTEM] })).result.cachedTokens).toBe(0);
    expect(loop.stats.hot).toMatchObject({ restoredTokens: 0, failures: 1 });
  });
});
