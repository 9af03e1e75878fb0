import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { modelPath } from '../../bench/random-model/src/model-path.js';
import { verifyCaches } from '../cache/hierarchy-check.js';
import { EventLog, someTokens, TestEngine, textOf } from '../support/engine.js';

verifyCaches();

const NAMES = ['Marlo', 'Tibin', 'Sarek', 'Lumen', 'Dovar', 'Pelin', 'Koram', 'Vesta'];

function question(index: number): string {
  const documents = NAMES.map(
    (name, at) => `<document id="d${at}">\nThe weight of ${name} is ${30 + at} kg.\n</document>`,
  );
  return `${documents.join('\n')}\nQuestion: What is the weight of ${NAMES[index]}?`;
}

describe('continuous batching', () => {
  let engine: TestEngine;
  let log: EventLog;
  beforeEach(() => {
    log = new EventLog();
  });
  afterEach(async () => {
    log.close();
    await engine.close();
  });

  it('gives every stream its token in every step while a long prompt is computed', async () => {
    engine = await TestEngine.start({ batchTokens: 256 });
    const streams = NAMES.map((_, index) =>
      engine.stream('/v1/completions', { prompt: someTokens(40, index), max_tokens: 2000, ignore_eos: true }),
    );
    await Promise.all(streams.map((stream) => stream.next()));
    await log.until(() => log.steps.at(-1)?.generating === 8);
    const before = log.steps.length;
    const long = await engine.complete(someTokens(1000, 50));
    const during = log.steps.slice(before).filter(({ promptTokens }) => promptTokens > 0);
    expect(long.usage.prompt_tokens_details.cached_tokens).toBe(0);
    // 64 tokens a step, eight of them for the streams: 18 steps, and every stream went on in each.
    expect(during.map(({ generating }) => generating)).toEqual(new Array(18).fill(8));
    expect(during.map(({ promptTokens }) => promptTokens)).toEqual([...new Array(17).fill(56), 48]);
    for (const stream of streams) {
      stream.destroy();
    }
    await log.until(() => log.ends.length === 9);
  });

  it('computes few prompt tokens beside a stream that somebody reads, and whole batches beside an answer that nobody does', async () => {
    engine = await TestEngine.start({ batchTokens: 128 });
    const fields = { prompt: someTokens(20), max_tokens: 2000, ignore_eos: true };
    const counts = async (prompt: number[]): Promise<number[]> => {
      const from = log.steps.length;
      await log.until(() => log.steps.length > from && log.steps.at(-1)!.promptTokens === 0);
      const before = log.steps.length;
      await engine.complete(prompt);
      const during = log.steps.slice(before).filter(({ promptTokens }) => promptTokens > 0);
      expect(during.every(({ generating }) => generating === 1)).toBe(true);
      return during.map(({ promptTokens }) => promptTokens);
    };
    const stream = engine.stream('/v1/completions', fields);
    expect(await counts(someTokens(127, 60))).toEqual([63, 63, 1]);
    stream.destroy();
    await log.until(() => log.ends.length === 2);
    const unread = engine.send('/v1/completions', fields);
    expect(await counts(someTokens(127 * 2 + 20, 61))).toEqual([127, 127, 20]);
    unread.destroy();
    await log.until(() => log.ends.length === 4);
  });

  it('answers eight at once as it answers them one after the other, while a long prompt arrives', async () => {
    engine = await TestEngine.start({ batchInvariant: true });
    const long = engine.complete(someTokens(3500, 51));
    const chunks = await Promise.all(
      NAMES.map((_, index) =>
        engine
          .stream('/v1/chat/completions', { messages: [{ role: 'user', content: question(index) }], max_tokens: 24 })
          .rest(),
      ),
    );
    await long;
    const together = chunks.map(textOf);
    const alone: string[] = [];
    for (const index of NAMES.keys()) {
      alone.push((await engine.chat(question(index))).choices[0]!.message!.content);
    }
    expect(together).toEqual(alone);
    expect(together.filter((text, index) => text === ` ${30 + index} kg`).length).toBeGreaterThanOrEqual(6);
  });

  it('computes a prefix once for requests that arrive together', async () => {
    engine = await TestEngine.start({ hostTier: 0 });
    const shared = someTokens(600, 52);
    const answers = await Promise.all(
      NAMES.map((_, index) => engine.complete([...shared, ...someTokens(20, 60 + index)])),
    );
    const counts = answers.map(({ usage }) => usage.prompt_tokens_details.cached_tokens).sort((a, b) => a - b);
    expect(counts).toEqual([0, ...new Array(7).fill(600)]);
    expect(log.steps.reduce((sum, { promptTokens }) => sum + promptTokens, 0)).toBe(600 + 8 * 20);
    expect(engine.server.stats().usedCells).toBe(600 + 8 * 20);
  });

  it('does not serialise identical prompts beyond their last token', async () => {
    engine = await TestEngine.start({ batchInvariant: true, hostTier: 0 });
    const prompt = someTokens(500, 53);
    const answers = await Promise.all(NAMES.map(() => engine.complete(prompt, { max_tokens: 4, ignore_eos: true })));
    expect(new Set(answers.map(({ choices }) => choices[0]!.text)).size).toBe(1);
    // The first computes all, the others only the last token, in one step.
    const prefill = log.steps.filter(({ promptTokens }) => promptTokens > 0);
    expect(prefill.reduce((sum, { promptTokens }) => sum + promptTokens, 0)).toBe(500 + 7);
    expect(engine.server.stats()).toMatchObject({ leases: 0, usedCells: 503 });
  });

  /** Prompt tokens and cached ones of each request that has ended, the one that found least first. */
  const prompts = (): (readonly [number, number])[] =>
    log.ends
      .map(({ result }) => [result!.promptTokens, result!.cachedTokens] as const)
      .toSorted(([, a], [, b]) => a - b);

  it.each([2, 12, 90])('computes a prompt of %i tokens once for all answers of a request', async (length) => {
    engine = await TestEngine.start();
    const prompt = someTokens(length, 54);
    const { usage } = await engine.complete(prompt, { n: 3 });
    expect(prompts()).toEqual([
      [length, 0],
      [length, length - 1],
      [length, length - 1],
    ]);
    expect(usage).toMatchObject({ prompt_tokens: length, prompt_tokens_details: { cached_tokens: 0 } });
    log.ends.length = 0;
    await engine.complete(prompt.slice(1), { prompt: [prompt.slice(1), prompt, prompt.slice(1)] });
    expect(prompts().map(([, cached]) => cached)).toEqual([0, length - 2, length - 1]);
  });

  it('computes a prompt once on a model that goes on at checkpoints, however few tokens a step holds', async () => {
    const model = await modelPath('random:1m-hybrid');
    engine = await TestEngine.start({ model, contextTokens: 1024, batchTokens: 50 });
    await engine.complete(someTokens(300, 55), { n: 2 });
    expect(prompts()).toEqual([
      [300, 0],
      [300, 299],
    ]);
  });

  it.each([
    ['the model shares nothing', { hostTier: 0 }, 'random:1m-hybrid', [400]],
    // It is known only when the first checkpoint is to be saved.
    ['there is no room for checkpoints', { hostTier: 1 }, 'random:1m-hybrid', [50, 99, 100, 100, 50, 1]],
  ])('lets no prompt wait for what another computes where %s', async (_, options, spec, steps) => {
    const model = spec === undefined ? undefined : await modelPath(spec);
    engine = await TestEngine.start({ model, contextTokens: 1024, ...options });
    await engine.complete(someTokens(100, 56), { n: 4, segments: [50] });
    expect(prompts()).toEqual(new Array(4).fill([100, 0]));
    const counts = log.steps.map(({ promptTokens }) => promptTokens).filter((count) => count > 0);
    expect(counts).toEqual(steps);
  });

  it('takes the waiting request that finds most in the cache', async () => {
    engine = await TestEngine.start({ maxRunning: 1 });
    const known = someTokens(300, 70);
    await engine.complete(known);
    const order: string[] = [];
    const stream = engine.stream('/v1/completions', { prompt: someTokens(20), max_tokens: 2000, ignore_eos: true });
    await stream.next();
    const answers = [];
    const prompts = { unknown: someTokens(200, 71), known: [...known, 300, 301] };
    for (const name of ['unknown', 'known'] as const) {
      answers.push(engine.complete(prompts[name]).then(() => order.push(name)));
      while (engine.server.stats().waiting < answers.length) {
        await engine.get('/health');
      }
    }
    order.push('long');
    stream.destroy();
    await Promise.all(answers);
    expect(order).toEqual(['long', 'known', 'unknown']);
  });

  it('serves more than its cells hold, by letting the youngest wait', async () => {
    engine = await TestEngine.start({ contextTokens: 512, maxRunning: 8 });
    expect(engine.server.cells).toBe(512);
    const answers = await Promise.all(
      [0, 1, 2, 3, 4].map((offset) => engine.complete(someTokens(60, offset), { max_tokens: 150, ignore_eos: true })),
    );
    for (const { usage, choices } of answers) {
      expect(usage.completion_tokens).toBe(150);
      expect(usage.prompt_tokens_details.cached_tokens).toBe(0);
      expect(choices[0]!.finish_reason).toBe('length');
    }
    expect(await engine.metric('vllm:num_preemptions_total')).toBeGreaterThan(0);
    expect(await engine.metric('warmpath_engine_evicted_tokens')).toBeGreaterThan(0);
    const stats = engine.server.stats();
    expect(stats).toMatchObject({ running: 0, waiting: 0, leases: 0 });
    expect(stats.usedCells).toBe(stats.cachedCells);
    expect(stats.usedCells).toBeLessThanOrEqual(512);
  });

  it('evicts what was used least when the cells run short, and keeps counting exactly', async () => {
    engine = await TestEngine.start({ contextTokens: 1024, hostTier: 0 });
    const cached = async (prompt: number[]): Promise<number> =>
      (await engine.complete(prompt)).usage.prompt_tokens_details.cached_tokens;
    const [a, b, c] = [someTokens(400, 1), someTokens(400, 2), someTokens(400, 3)];
    expect([await cached(a), await cached(b), await cached(a), await cached(c)]).toEqual([0, 0, 399, 0]);
    // 1200 tokens do not fit into 1024 cells: the last blocks of the second went, which was used once.
    expect(await cached(a)).toBe(399);
    expect(await cached(c)).toBe(399);
    expect(await cached(b)).toBe(128);
    expect(engine.server.stats().usedCells).toBeLessThanOrEqual(1024);
  });
});
