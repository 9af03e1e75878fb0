import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { EngineLoop } from '../../src/loop/engine-loop.js';
import type { GenerationRequest, GenerationResult } from '../../src/loop/generation.js';
import { llamaBindings } from '../../src/native/bindings.js';
import { NativeModel } from '../../src/native/model.js';
import { someTokens } from '../support/engine.js';

const MODEL = fileURLToPath(new URL('../../models/warmpath-tiny.gguf', import.meta.url));

describe('the engine loop', () => {
  let model: NativeModel;
  let loop: EngineLoop;
  const outcomes: string[] = [];
  beforeEach(async () => {
    outcomes.length = 0;
    model = await NativeModel.load(llamaBindings(), MODEL);
    loop = await EngineLoop.start({
      bindings: llamaBindings(),
      model,
      name: 'test',
      cells: 1024,
      batchTokens: 64,
      maxRunning: 4,
      queueLimit: 8,
      threads: 1,
      observer: {
        onPrompt: () => undefined,
        onStep: () => undefined,
        onToken: () => undefined,
        onPreemption: () => undefined,
        onEnd: ({ outcome }) => outcomes.push(outcome),
      },
    });
  });
  afterEach(async () => {
    await loop.close(0);
    model.free();
  });

  function run(prompt: number[], fields: Partial<GenerationRequest> = {}): Promise<GenerationResult> {
    const request: GenerationRequest = {
      id: 'request',
      prompt,
      maxTokens: 4,
      sampling: { temperature: 0, topP: 1 },
      seed: 0,
      stops: [],
      ignoreEndOfGeneration: true,
      ...fields,
    };
    return new Promise((resolve, reject) => {
      loop.submit(request, { onText: () => undefined, onFinish: resolve, onError: reject });
    });
  }

  it('fails the requests of a decode that failed, keeps what was computed before, and goes on', async () => {
    // A token that the vocabulary does not have: the HTTP layer refuses it, llama.cpp refuses the whole batch.
    const broken = [...someTokens(64, 1), 99_999];
    await expect(run(broken)).rejects.toMatchObject({ code: 'WARMPATH_ENGINE_FAILED' });
    expect(outcomes).toEqual(['failed']);
    expect(loop.stats).toMatchObject({ running: 0, leases: 0, usedCells: 64, cachedCells: 64 });
    const result = await run(someTokens(64, 1));
    expect(result).toMatchObject({ cachedTokens: 63, completionTokens: 4 });
    expect(outcomes).toEqual(['failed', 'finished']);
  });

  it('refuses an empty prompt, and one that does not fit with its answer', async () => {
    await expect(run([])).rejects.toMatchObject({ code: 'WARMPATH_EMPTY_PROMPT' });
    await expect(run(someTokens(1000), { maxTokens: 25 })).rejects.toMatchObject({ code: 'WARMPATH_CONTEXT_TOO_LONG' });
    expect((await run(someTokens(1000), { maxTokens: 24 })).completionTokens).toBe(24);
    expect(loop.stats.usedCells).toBeLessThanOrEqual(1024);
  });

  it('can be closed twice, and accepts nothing afterwards', async () => {
    await Promise.all([loop.close(0), loop.close(0)]);
    expect(loop.isOpen).toBe(false);
    await expect(run([300])).rejects.toMatchObject({ code: 'WARMPATH_SHUTTING_DOWN' });
  });

  it('hands out all sequence ids again and again', async () => {
    // More distinct prompts than there are ids: leaves must give theirs back.
    for (let round = 0; round < 300; round += 4) {
      await Promise.all([0, 1, 2, 3].map((offset) => run([300 + round + offset, 301, 302], { maxTokens: 1 })));
    }
    expect(loop.stats).toMatchObject({ running: 0, leases: 0 });
    expect(loop.stats.freeSequences + loop.stats.cachedCells / 3).toBe(255);
    expect(loop.stats.evictedTokens).toBeGreaterThan(0);
  });
});
