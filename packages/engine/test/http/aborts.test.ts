import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { EventLog, someTokens, TestEngine } from '../support/engine.js';

describe('a client that goes away', () => {
  let engine: TestEngine;
  let log: EventLog;
  beforeAll(async () => {
    engine = await TestEngine.start({ maxRunning: 2 });
  });
  afterAll(() => engine.close());
  beforeEach(() => {
    log = new EventLog();
  });
  afterEach(() => log.close());

  const endless = { max_tokens: 3000, ignore_eos: true };
  const aborted = (): number => log.ends.filter(({ outcome }) => outcome === 'aborted').length;

  /** Nothing runs, every cell in use is a cached one, and only cached leaves hold sequence ids. */
  function expectIdle(): void {
    const stats = engine.server.stats();
    expect(stats).toMatchObject({ running: 0, waiting: 0, leases: 0 });
    expect(stats.usedCells).toBe(stats.cachedCells);
  }

  it('ends a stream, five times of five', async () => {
    const before = await engine.metric('warmpath_engine_requests_total', 'outcome="aborted"');
    for (let round = 0; round < 5; round++) {
      const stream = engine.stream('/v1/completions', { ...endless, prompt: someTokens(50, round) });
      await stream.next();
      stream.destroy();
      await log.until(() => aborted() === round + 1);
      expectIdle();
    }
    expect(await engine.metric('warmpath_engine_requests_total', 'outcome="aborted"')).toBe(before + 5);
    // It really stopped computing: long before the tokens that were asked for, and no step has come since.
    expect(log.ends.every(({ computedTokens }) => computedTokens < 2000)).toBe(true);
    const steps = await engine.metric('warmpath_engine_steps_total');
    await engine.get('/health');
    expect(await engine.metric('warmpath_engine_steps_total')).toBe(steps);
    expect(await engine.metric('vllm:num_requests_running')).toBe(0);
  });

  it('ends an answer that is not streamed, three times of three', async () => {
    for (let round = 0; round < 3; round++) {
      const before = log.steps.length;
      const request = engine.send('/v1/completions', {
        ...endless,
        temperature: 0,
        prompt: someTokens(50, 10 + round),
      });
      await log.until(() => log.steps.length > before + 2);
      request.destroy();
      await log.until(() => aborted() === round + 1);
      expectIdle();
    }
  });

  it('is forgotten while it waits in the queue', async () => {
    const runners = [20, 21].map((offset) =>
      engine.stream('/v1/completions', { ...endless, prompt: someTokens(30, offset) }),
    );
    await Promise.all(runners.map((runner) => runner.next()));
    const queued = engine.send('/v1/completions', { ...endless, prompt: someTokens(30, 22) });
    await log.until(() => engine.server.stats().waiting === 1);
    queued.destroy();
    await log.until(() => aborted() === 1);
    expect(log.ends[0]!.computedTokens).toBe(0);
    expect(engine.server.stats()).toMatchObject({ running: 2, waiting: 0 });
    for (const runner of runners) {
      runner.destroy();
    }
    await log.until(() => aborted() === 3);
    expectIdle();
  });

  it('leaves what was prefilled in the cache', async () => {
    const prompt = someTokens(3000, 30);
    const request = engine.send('/v1/completions', { prompt, max_tokens: 1000, ignore_eos: true });
    await log.until(() => log.steps.some(({ promptTokens }) => promptTokens > 0));
    request.destroy();
    await log.until(() => aborted() === 1);
    const { computedTokens } = log.ends[0]!;
    expect(computedTokens).toBeGreaterThanOrEqual(128);
    const again = await engine.complete(prompt);
    expect(again.usage.prompt_tokens_details.cached_tokens).toBe(Math.min(computedTokens, 2999));
  });

  it('does not disturb the others', async () => {
    const alone = await engine.complete(someTokens(60, 40), { max_tokens: 40, ignore_eos: true });
    const stream = engine.stream('/v1/completions', { ...endless, prompt: someTokens(60, 41) });
    await stream.next();
    const beside = engine.complete(someTokens(60, 40), { max_tokens: 40, ignore_eos: true });
    await log.until(() => engine.server.stats().running === 2);
    stream.destroy();
    expect((await beside).choices[0]!.text).toBe(alone.choices[0]!.text);
  });
});
