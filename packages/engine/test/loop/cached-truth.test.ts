import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { isFull } from '../../../../test/suite.js';
import { modelPath } from '../../bench/random-model/src/model-path.js';
import { EngineLoop } from '../../src/loop/engine-loop.js';
import type { GenerationResult } from '../../src/loop/generation.js';
import { greedyToken } from '../../src/loop/sampler.js';
import { GenerationTask } from '../../src/loop/task.js';
import { llamaBindings } from '../../src/native/bindings.js';
import { NativeModel } from '../../src/native/model.js';
import { verifyCaches } from '../cache/hierarchy-check.js';
import { someTokens } from '../support/engine.js';

verifyCaches();

const DEMO = fileURLToPath(new URL('../../models/warmpath-tiny.gguf', import.meta.url));

/**
 * Schedules for each kind of model: full attention, rope factors that depend on the size of the context, positions in
 * several dimensions, cells that hold no keys of heads, layers that attend to a window, and recurrent states.
 */
const RUNS = isFull
  ? {
      demo: 7,
      'random:1m-longrope512': 2,
      'random:1m-mrope': 2,
      'random:1m-mla': 2,
      'random:4m-window32': 1,
      'random:1m-recurrent': 2,
      'random:1m-hybrid': 2,
    }
  : { demo: 1, 'random:4m-window32': 1, 'random:1m-hybrid': 1 };

/** Sizes of batches in which the same prompts are computed without a cache, to see how far that alone moves a logit. */
const SHAPES = isFull ? [5, 13, 37, 64] : [13, 64];
/**
 * How many times more than there it may move here, where cells stand in other places too: the largest of a thousand
 * differences is larger than that of a hundred. Logits of this model span about 22, and a wrong cell moves them by
 * units.
 */
const MARGIN = 3;
/** Where the same computation hardly differs from itself; a wrong document moves logits by half a unit at least. */
const MIN_TOLERANCE = 0.1;
/** The same on average, where what is rounded differently stays small and what is wrong does not. */
const MEAN_MARGIN = 2;
const MIN_MEAN = 0.001;

interface Prompt {
  readonly tokens: number[];
  /** Where its documents end, when it says so. */
  readonly boundaries: number[];
  readonly maxTokens: number;
}

interface Outcome {
  readonly result: GenerationResult;
  /** The logits of every generated token. */
  readonly logits: readonly Float32Array[];
}

/** What the same computation differs by from itself. */
interface Noise {
  readonly largest: number;
  readonly mean: number;
}

/** Prompts that share beginnings: sequences of a few fragments, some cut short, some with one other token. */
const prompt: fc.Arbitrary<Prompt> = fc
  .record({
    fragments: fc.array(fc.nat({ max: 4 }), { minLength: 1, maxLength: 4 }),
    cut: fc.nat({ max: 30 }),
    edited: fc.option(fc.nat({ max: 150 })),
    isSegmented: fc.boolean(),
    maxTokens: fc.integer({ min: 1, max: 6 }),
  })
  .map(({ fragments, cut, edited, isSegmented, maxTokens }) => {
    let end = 0;
    const boundaries = isSegmented ? fragments.map((fragment) => (end += 20 + fragment * 17)) : [];
    const tokens = fragments.flatMap((fragment) => someTokens(20 + fragment * 17, fragment));
    if (edited !== null && edited < tokens.length) {
      tokens[edited] = 1400;
    }
    return { tokens: tokens.slice(0, Math.max(1, tokens.length - cut)), boundaries, maxTokens };
  });
const prompts = fc.array(prompt, { minLength: 2, maxLength: 10 });
/** Short prompts of long answers: they need more cells while they run than when they were let in. */
const together = fc.array(
  prompt.map(({ tokens, ...rest }) => ({ ...rest, tokens: tokens.slice(0, 90), maxTokens: 8 * rest.maxTokens })),
  { minLength: 5, maxLength: 8 },
);
const manyPrompts = fc.array(prompt, { minLength: 12, maxLength: 16 });

describe.each(Object.entries(RUNS))('an answer of %s from the cache', (spec, numRuns) => {
  const isShared = !/recurrent|hybrid/.test(spec);
  const isDemo = spec === 'demo';
  let model: NativeModel;
  /** Behind what each request has chosen its tokens. */
  const logits = new Map<string, Float32Array[]>();
  let noise: Noise;
  /** In batches of one kind. */
  let invariantNoise: Noise;
  /** There, when the cells lie elsewhere: 32-bit sums in another order, and 8-bit activations behind them. */
  let placesNoise: Noise;
  let differences: number[] = [];
  let requests = 0;
  let onPreemption = (): unknown => undefined;
  const loops: EngineLoop[] = [];
  beforeAll(async () => {
    model = await NativeModel.load(llamaBindings(), isDemo ? DEMO : await modelPath(spec));
    expect(model.reuse).toBe(isShared ? 'prefix' : 'checkpoint');
    watchLogits();
    const shapes = SHAPES.map((batchTokens) => ({ batchTokens, isElsewhere: false }));
    noise = await measureNoise(shapes, false);
    if (isDemo) {
      invariantNoise = await measureNoise(
        [64, 100].map((batchTokens) => ({ batchTokens, isElsewhere: false })),
        true,
      );
      placesNoise = await measureNoise(
        [64, 100].map((batchTokens) => ({ batchTokens, isElsewhere: true })),
        true,
      );
    }
    vi.restoreAllMocks();
  });
  afterAll(() => model.free());
  beforeEach(() => {
    differences = [];
    watchLogits();
  });
  afterEach(async () => {
    vi.restoreAllMocks();
    await Promise.all(loops.splice(0).map((loop) => loop.close(0)));
  });

  function watchLogits(): void {
    const original = GenerationTask.prototype.advance;
    vi.spyOn(GenerationTask.prototype, 'advance').mockImplementation(function (this: GenerationTask, values, ...rest) {
      logits.set(this.request.id, [...(logits.get(this.request.id) ?? []), values.slice()]);
      return original.call(this, values, ...rest);
    });
  }

  async function start(
    cells: number,
    batchTokens: number,
    { hostTierBytes = isShared ? 0 : 2 ** 26, batchInvariant = false } = {},
  ): Promise<EngineLoop> {
    const ignore = (): void => undefined;
    const loop = await EngineLoop.start({
      bindings: llamaBindings(),
      model,
      name: 'test',
      cells,
      batchTokens,
      maxRunning: 4,
      queueLimit: 8,
      threads: 1,
      hostTierBytes,
      batchInvariant,
      observer: {
        onPrompt: ignore,
        onStep: ignore,
        onToken: () => undefined,
        onPreemption: () => onPreemption(),
        onEnd: ignore,
      },
    });
    loops.push(loop);
    return loop;
  }

  async function answer(loop: EngineLoop, { tokens, boundaries, maxTokens }: Prompt): Promise<Outcome> {
    const id = `request ${requests++}`;
    const result = await new Promise<GenerationResult>((resolve, reject) => {
      loop.submit(
        {
          id,
          prompt: tokens,
          boundaries,
          maxTokens,
          sampling: { temperature: 0, topP: 1 },
          seed: 0,
          stops: [],
          ignoreEndOfGeneration: true,
        },
        { onText: () => undefined, onFinish: resolve, onError: reject },
      );
    });
    const answered = { result, logits: logits.get(id)! };
    logits.delete(id);
    return answered;
  }

  /** An engine that has never seen anything. */
  async function answerFresh(
    prompt: Prompt,
    { cells = 1024, batchTokens = 256, batchInvariant = false, isElsewhere = false } = {},
  ): Promise<Outcome> {
    const loop = await start(cells, batchTokens, { batchInvariant });
    if (isElsewhere) {
      await answer(loop, { tokens: someTokens(101, 9), boundaries: [], maxTokens: 1 });
    }
    const outcome = await answer(loop, prompt);
    await loop.close(0);
    loops.splice(loops.indexOf(loop), 1);
    return outcome;
  }

  /** How far the logits of one answer are from another's, token by token as long as both choose the same. */
  function distances(a: Outcome, b: Outcome): number[] {
    expect(a.logits.length).toBe(b.logits.length);
    const steps = a.logits.findIndex((values, step) => greedyToken(values) !== greedyToken(b.logits[step]!));
    return a.logits
      .slice(0, steps < 0 ? undefined : steps + 1)
      .map((values, step) =>
        values.reduce((most, value, at) => Math.max(most, Math.abs(value - b.logits[step]![at]!)), 0),
      );
  }

  /** How far the same prompts are from themselves in batches of other sizes, or among cells of others. */
  async function measureNoise(
    shapes: readonly { readonly batchTokens: number; readonly isElsewhere: boolean }[],
    batchInvariant: boolean,
  ): Promise<Noise> {
    const own: number[] = [];
    const [samples, fewest] = isDemo && isFull ? [9, 50] : [3, isFull ? 10 : 5];
    for (const sample of fc.sample(prompt, { seed: 10, numRuns: samples })) {
      const whole = await answerFresh(sample, { batchInvariant });
      for (const shape of shapes) {
        own.push(...distances(await answerFresh(sample, { ...shape, batchInvariant }), whole));
      }
    }
    expect(own.length).toBeGreaterThan(fewest);
    return { largest: Math.max(...own), mean: mean(own) };
  }

  /** Token by token, until the two best are so close that the noise may decide between them. */
  function expectSame(cached: Outcome, fresh: Outcome, largest = noise.largest): void {
    const tolerance = Math.max(MIN_TOLERANCE, MARGIN * largest);
    const steps = distances(cached, fresh);
    for (const [step, distance] of steps.entries()) {
      const expected = fresh.logits[step]!;
      expect(distance).toBeLessThanOrEqual(tolerance);
      differences.push(distance);
      const [first, second] = expected.slice().sort().reverse();
      if (first! - second! < 2 * tolerance) {
        return;
      }
      expect(greedyToken(cached.logits[step]!)).toBe(greedyToken(expected));
    }
    expect(steps.length).toBe(fresh.logits.length);
  }

  function expectSmallMean(most = noise.mean): void {
    expect(differences.length).toBeGreaterThan(4 * numRuns);
    expect(mean(differences)).toBeLessThanOrEqual(Math.max(MIN_MEAN, MEAN_MARGIN * most));
  }

  it('is compared with noise that a wrong cell would exceed many times, and that goes where batches are invariant', () => {
    expect(noise.largest).toBeLessThan(0.15);
    if (!isDemo) {
      return;
    }
    expect(invariantNoise.largest).toBe(0);
    expect(placesNoise.largest).toBeLessThan(noise.largest);
  });

  /** What a cache that never forgets must find: the longest common beginning with anything that was computed. */
  class NaiveTwin {
    readonly #computed: number[][] = [];

    cachedTokens(tokens: readonly number[]): number {
      const lengths = this.#computed.map((other) => {
        const differs = tokens.findIndex((token, index) => token !== other[index]);
        return differs < 0 ? tokens.length : differs;
      });
      return Math.min(tokens.length - 1, Math.max(0, ...lengths));
    }

    /** The last generated token is never computed. */
    remember(tokens: readonly number[], generated: readonly number[]): void {
      this.#computed.push([...tokens, ...generated.slice(0, -1)]);
    }
  }

  /** Compares with engines of as many cells, which on some models decide how positions are rotated. */
  async function check(loop: EngineLoop, sequence: readonly Prompt[]): Promise<{ found: number; possible: number }[]> {
    const twin = new NaiveTwin();
    const counts: { found: number; possible: number }[] = [];
    for (const prompt of sequence) {
      const cached = await answer(loop, prompt);
      expectSame(cached, await answerFresh(prompt, { cells: loop.stats.cells }));
      const possible = twin.cachedTokens(prompt.tokens);
      counts.push({ found: cached.result.cachedTokens, possible });
      twin.remember(prompt.tokens, cached.logits.map(greedyToken));
    }
    return counts;
  }

  it('is the answer of an engine without a cache, and counts what a cache that never forgets would find', async () => {
    await fc.assert(
      fc.asyncProperty(prompts, fc.constantFrom(32, 64, 256), async (sequence, batchTokens) => {
        const loop = await start(4096, batchTokens);
        for (const count of await check(loop, sequence)) {
          expect(count.found).toBeLessThanOrEqual(count.possible);
          expect(count.found === count.possible || !isShared).toBe(true);
        }
        expect(loop.stats.evictedTokens).toBe(0);
        await loop.close(0);
      }),
      { seed: 11, numRuns },
    );
    expectSmallMean();
  });

  if (isShared) {
    it('stays so while what it stands on is evicted', async () => {
      let evicted = 0;
      let found = 0;
      await fc.assert(
        fc.asyncProperty(prompts, async (sequence) => {
          const loop = await start(512, 64);
          for (const count of await check(loop, sequence)) {
            expect(count.found).toBeLessThanOrEqual(count.possible);
            found += count.found;
          }
          evicted += loop.stats.evictedTokens;
          await loop.close(0);
        }),
        { seed: 12, numRuns },
      );
      expectSmallMean();
      expect(evicted).toBeGreaterThan(40 * numRuns);
      expect(found).toBeGreaterThan(40 * numRuns);
    });
  }

  it('stays so from a host tier, which with room finds what a cache that never forgets would find', async () => {
    let restored = 0;
    await fc.assert(
      fc.asyncProperty(manyPrompts, fc.boolean(), async (sequence, isRoomy) => {
        const loop = await start(512, 64, { hostTierBytes: isRoomy ? 2 ** 24 : 2 ** 18 });
        for (const { found, possible } of await check(loop, sequence)) {
          if (isRoomy && isShared) {
            expect(found).toBe(possible);
          } else {
            expect(found).toBeLessThanOrEqual(possible);
          }
        }
        const host = loop.stats.host!;
        restored += host.restoredTokens;
        expect(host.failures).toBe(0);
        await loop.close(0);
      }),
      { seed: 14, numRuns: Math.ceil((numRuns * 2) / 3) },
    );
    expectSmallMean();
    expect(restored).toBeGreaterThan(40 * numRuns);
  });

  const tier = { hostTierBytes: 2 ** 19 };
  const ways: readonly { readonly name: string; readonly hostTierBytes?: number; readonly batchInvariant?: boolean }[] =
    [
      { name: 'on the device' },
      { name: 'with a host tier', ...tier },
      { name: 'in batches of one kind', ...tier, batchInvariant: true },
    ];
  it.each(isDemo && isFull ? ways : ways.slice(isShared ? 1 : 0, isShared ? 2 : 1))(
    'stays so for requests that run together, preempt each other and share, $name',
    {
      timeout: 300_000,
    },
    async ({ name: _, ...options }) => {
      const isInvariant = options.batchInvariant === true;
      const largest = isInvariant ? placesNoise.largest : noise.largest;
      let preemptions = 0;
      onPreemption = () => preemptions++;
      await fc.assert(
        fc.asyncProperty(together, async (sequence) => {
          const loop = await start(256, 64, options);
          const answers = await Promise.all(sequence.map((each) => answer(loop, each)));
          for (const [index, each] of sequence.entries()) {
            expectSame(answers[index]!, await answerFresh(each, { ...options, cells: 256 }), largest);
          }
          await loop.close(0);
        }),
        { seed: 13, numRuns: isInvariant ? Math.ceil(numRuns / 2) : numRuns },
      );
      expect(preemptions).toBeGreaterThan(0);
    },
  );
});

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
