import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { PrefixCache } from '../../src/cache/prefix-cache.js';
import { EngineLoop } from '../../src/loop/engine-loop.js';
import type { GenerationListener, GenerationRequest, GenerationResult } from '../../src/loop/generation.js';
import type { EngineLoopOptions } from '../../src/loop/loop-options.js';
import { llamaBindings } from '../../src/native/bindings.js';
import { NativeContext } from '../../src/native/context.js';
import { NativeModel } from '../../src/native/model.js';
import { writeGrammar } from '../../src/structured/gbnf.js';
import { readJsonSchema } from '../../src/structured/json-schema.js';
import { someTokens } from '../support/engine.js';

const MODEL = fileURLToPath(new URL('../../models/warmpath-tiny.gguf', import.meta.url));

describe('the loop when something breaks', () => {
  let model: NativeModel;
  let loop: EngineLoop;
  let preemptions: () => void;
  const start = async (options: Partial<EngineLoopOptions> = {}): Promise<void> => {
    loop = await EngineLoop.start({
      bindings: llamaBindings(),
      model,
      name: 'test',
      cells: 512,
      batchTokens: 64,
      maxRunning: 4,
      queueLimit: 8,
      threads: 1,
      observer: {
        onPrompt: () => undefined,
        onStep: () => undefined,
        onToken: () => undefined,
        onPreemption: () => preemptions(),
        onEnd: () => undefined,
      },
      ...options,
    });
  };
  beforeEach(async () => {
    preemptions = () => undefined;
    model = await NativeModel.load(llamaBindings(), MODEL);
    await start();
  });
  afterEach(async () => {
    vi.restoreAllMocks();
    await loop.close(0);
    model.free();
  });

  function request(prompt: number[], maxTokens: number): GenerationRequest {
    return {
      id: 'request',
      prompt,
      maxTokens,
      sampling: { temperature: 0, topP: 1 },
      seed: 0,
      stops: [],
      ignoreEndOfGeneration: true,
    };
  }

  function run(prompt: number[], maxTokens = 4, fields: Partial<GenerationListener> = {}): Promise<GenerationResult> {
    return new Promise((resolve, reject) => {
      loop.submit(request(prompt, maxTokens), {
        onText: () => undefined,
        onFinish: resolve,
        onError: reject,
        ...fields,
      });
    });
  }

  /** The loop has failed for good: it said so, refuses what comes, and holds nothing. */
  async function expectFailed(message: string): Promise<void> {
    expect(await loop.failed).toMatchObject({ code: 'WARMPATH_ENGINE_FAILED', message });
    expect(loop.isOpen).toBe(false);
    expect(loop.stats).toMatchObject({ running: 0, waiting: 0 });
    await expect(run([300])).rejects.toMatchObject({ code: 'WARMPATH_ENGINE_FAILED' });
  }

  it('fails instead of turning for ever when a request alone finds no cells', async () => {
    vi.spyOn(PrefixCache.prototype, 'grow').mockReturnValue(false);
    await expect(run(someTokens(20))).rejects.toMatchObject({ code: 'WARMPATH_ENGINE_FAILED' });
    await expectFailed('A request that runs alone finds no cells');
  });

  it('fails instead of sleeping for ever when nothing can be admitted', async () => {
    vi.spyOn(PrefixCache.prototype, 'acquire').mockReturnValue(undefined);
    await expect(run(someTokens(20))).rejects.toMatchObject({ code: 'WARMPATH_ENGINE_FAILED' });
    await expectFailed('A request cannot be admitted although nothing runs');
  });

  it('fails when the library has fewer free cells than the account says, and every request hears of it', async () => {
    vi.spyOn(NativeContext.prototype, 'decode').mockResolvedValue(1);
    const ends = await Promise.allSettled([0, 1, 2, 3, 4, 5].map((offset) => run(someTokens(20, offset))));
    expect(ends.map((end) => (end as PromiseRejectedResult).reason.code)).toEqual(
      new Array(6).fill('WARMPATH_ENGINE_FAILED'),
    );
    await expectFailed('llama_decode finds no free cells where there should be some');
  });

  it.each(['onText', 'onFinish'] as const)(
    'ends the request of a listener that throws in %s, and no other',
    async (name) => {
      const warnings = vi.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
      let calls = 0;
      const broken = run(someTokens(20, 1), 300, {
        [name]: () => {
          calls++;
          throw new Error('a defect');
        },
      });
      const other = run(someTokens(20, 2), 30);
      await expect(broken).rejects.toMatchObject({ code: 'WARMPATH_INTERNAL' });
      expect((await other).completionTokens).toBe(30);
      expect(calls).toBe(1);
      expect(warnings).toHaveBeenCalledTimes(1);
      expect(loop.isOpen).toBe(true);
      expect((await run(someTokens(20, 3))).completionTokens).toBe(4);
      expect(loop.stats).toMatchObject({ running: 0, waiting: 0, leases: 0 });
      expect(loop.stats.usedCells).toBe(loop.stats.cachedCells);
    },
  );

  it('tells every request when a listener throws while it hears of the failure', async () => {
    vi.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
    vi.spyOn(NativeContext.prototype, 'decode').mockResolvedValue(1);
    loop.submit(request([300, 301], 4), {
      onText: () => undefined,
      onFinish: () => undefined,
      onError: () => {
        throw new Error('a defect');
      },
    });
    await expect(run([302, 303])).rejects.toMatchObject({ code: 'WARMPATH_ENGINE_FAILED' });
  });

  it('frees every grammar, however its request ends', async () => {
    const grammar = writeGrammar(readJsonSchema({ type: 'array', items: {}, minItems: 500 }, 's').node, 's');
    const { grammars } = model.vocabulary;
    /** Two answers have begun; says when both have ended. */
    const started = async (): Promise<{ readonly ended: Promise<unknown> }> => {
      const ends: Promise<unknown>[] = [];
      const texts = [1, 2].map(
        (offset) =>
          new Promise<void>((onText) => {
            const end = new Promise((resolve) => {
              const given = { ...request(someTokens(20, offset), 400), grammar };
              loop.submit(given, { onText: () => onText(), onFinish: resolve, onError: resolve });
            });
            ends.push(end);
          }),
      );
      await Promise.all(texts);
      expect(grammars.counts.open).toBe(2);
      return { ended: Promise.all(ends) };
    };

    const failedDecode = await started();
    vi.spyOn(NativeContext.prototype, 'decode').mockResolvedValueOnce(-3);
    await failedDecode.ended;
    expect(grammars.counts.open).toBe(0);

    const shutDown = await started();
    await loop.close(0);
    await shutDown.ended;
    expect(grammars.counts.open).toBe(0);

    await start();
    const failedLoop = await started();
    vi.spyOn(NativeContext.prototype, 'decode').mockResolvedValue(1);
    await failedLoop.ended;
    expect(grammars.counts.open).toBe(0);
    await expectFailed('llama_decode finds no free cells where there should be some');
  });

  it('ends the request whose grammar no token continues, and no other', async () => {
    const { grammars } = model.vocabulary;
    const dead = { allows: () => [false], allowed: () => [], accept: () => undefined, free: vi.fn() };
    vi.spyOn(grammars, 'open').mockReturnValueOnce(dead);
    const other = run(someTokens(20, 3), 8);
    const ended = new Promise((_, reject) => {
      loop.submit(
        { ...request(someTokens(20, 4), 8), grammar: 'any' },
        { onText: () => undefined, onFinish: () => undefined, onError: reject },
      );
    });
    await expect(ended).rejects.toMatchObject({ code: 'WARMPATH_ENGINE_FAILED' });
    expect((await other).completionTokens).toBe(8);
    expect(dead.free).toHaveBeenCalledTimes(1);
    expect(loop.isOpen).toBe(true);
    expect(loop.stats).toMatchObject({ running: 0, waiting: 0, leases: 0 });
  });

  it('lets a request that had to give its cells away finish at shutdown', async () => {
    await loop.close(0);
    await start({ cells: 256 });
    const preempted = new Promise<void>((resolve) => {
      preemptions = resolve;
    });
    const running = Promise.all([1, 2].map((offset) => run(someTokens(60, offset), 120)));
    await preempted;
    const unbegun = run(someTokens(200, 3));
    unbegun.catch(() => undefined);
    await loop.close(600_000);
    expect((await running).map(({ completionTokens }) => completionTokens)).toEqual([120, 120]);
    await expect(unbegun).rejects.toMatchObject({ code: 'WARMPATH_SHUTTING_DOWN' });
  });
});
