import { afterEach, describe, expect, it } from 'vitest';
import { verifyCaches } from '../cache/hierarchy-check.js';
import { someTokens, TestEngine } from '../support/engine.js';

verifyCaches();

const NAMES = ['Marlo', 'Tibin', 'Sarek', 'Lumen', 'Dovar', 'Pelin', 'Koram', 'Vesta'];

/** A document of some 300 tokens for each name, a part of the message each. */
function parts(names: readonly string[], asked: string): { type: 'text'; text: string }[] {
  const documents = names.map((name) => {
    const at = NAMES.indexOf(name);
    const facts = Array.from({ length: 26 }, (_, fact) => `The colour of ${name}${fact} is green.`).join(' ');
    return `<document id="d${at}">\nThe weight of ${name} is ${30 + at} kg. ${facts}\n</document>\n`;
  });
  return [...documents, `Question: What is the weight of ${asked}?`].map((text) => ({ type: 'text', text }));
}

describe('the host tier of a real engine', () => {
  let engine: TestEngine;
  afterEach(() => engine.close());

  const start = async (options: object): Promise<void> => {
    engine = await TestEngine.start({ contextTokens: 1024, ...options });
  };
  const ask = async (names: readonly string[], asked: string) => {
    const messages = [
      { role: 'system', content: 'You answer from documents.' },
      { role: 'user', content: parts(names, asked) },
    ];
    const { body } = await engine.call('/v1/chat/completions', { messages, temperature: 0, max_tokens: 24 });
    const { choices, usage, timings } = body as Awaited<ReturnType<TestEngine['chat']>>;
    return { text: choices[0]!.message!.content, usage, timings };
  };

  it('brings an evicted document back by copy: counted by tier, with the same answer', async () => {
    await start({ hostTier: 2 ** 26 });
    const first = await ask(['Marlo', 'Tibin'], 'Tibin');
    expect(first.text).toContain('31');
    expect(first.usage.prompt_tokens_details.cached_tokens).toBe(0);
    const others = [await ask(['Sarek', 'Lumen'], 'Sarek'), await ask(['Dovar', 'Pelin'], 'Pelin')];

    const again = await ask(['Marlo', 'Tibin'], 'Tibin');
    expect(again.text).toBe(first.text);
    const { cached_tokens, cached_tokens_by_tier } = again.usage.prompt_tokens_details;
    expect(cached_tokens).toBe(again.usage.prompt_tokens - 1);
    expect(cached_tokens_by_tier.device + cached_tokens_by_tier.host).toBe(cached_tokens);
    // Everything but the system prompt and the opening of the user's message, which all prompts share.
    expect(cached_tokens_by_tier.host).toBeGreaterThan(0.9 * cached_tokens);
    expect(again.timings).toMatchObject({
      cached: cached_tokens,
      cached_host: cached_tokens_by_tier.host,
      prompt_n: 1,
    });
    const hits = [...others, again].map(({ usage }) => usage.prompt_tokens_details.cached_tokens_by_tier.host);
    const allHits = hits.reduce((sum, each) => sum + each, 0);
    expect(await engine.metric('warmpath_engine_tier_hits_total', 'tier="host"')).toBe(allHits);
    expect(cached_tokens_by_tier.device).toBe(0);
    expect(await engine.metric('warmpath_engine_host_restored_tokens_total')).toBe(allHits);
    expect(await engine.metric('warmpath_engine_host_failures_total')).toBe(0);
    expect(await engine.metric('warmpath_engine_host_bytes')).toBe(2 ** 26);

    // What has been copied out is not copied again, however often it comes and goes.
    const round = async (): Promise<number> => {
      await ask(['Sarek', 'Lumen'], 'Sarek');
      await ask(['Dovar', 'Pelin'], 'Pelin');
      await ask(['Marlo', 'Tibin'], 'Tibin');
      return engine.metric('warmpath_engine_host_saved_tokens_total');
    };
    const saved = await round();
    expect(await round()).toBe(saved);
  });

  it('uses a document in its own context only, also from the host', async () => {
    await start({ hostTier: 2 ** 26 });
    await ask(['Marlo', 'Tibin'], 'Tibin');
    await ask(['Sarek', 'Lumen'], 'Sarek');
    await ask(['Dovar', 'Pelin'], 'Pelin');
    const system = (await ask(['Koram'], 'Koram')).usage.prompt_tokens_details.cached_tokens;
    const moved = await ask(['Tibin', 'Marlo'], 'Tibin');
    expect(moved.usage.prompt_tokens_details.cached_tokens).toBeLessThan(system + 40);
    expect(moved.text).toContain('31');
  });

  it('can be left out: what leaves the cells is computed again', async () => {
    await start({ hostTier: 0 });
    const first = await ask(['Marlo', 'Tibin'], 'Tibin');
    await ask(['Sarek', 'Lumen'], 'Sarek');
    await ask(['Dovar', 'Pelin'], 'Pelin');
    const again = await ask(['Marlo', 'Tibin'], 'Tibin');
    expect(again.text).toBe(first.text);
    expect(again.usage.prompt_tokens_details.cached_tokens_by_tier.host).toBe(0);
    expect(again.usage.prompt_tokens_details.cached_tokens).toBeLessThan(0.2 * again.usage.prompt_tokens);
    expect(await engine.metric('warmpath_engine_host_bytes')).toBe(0);
  });

  it('is there unless it is refused', async () => {
    await start({});
    const first = await ask(['Marlo', 'Tibin'], 'Tibin');
    await ask(['Sarek', 'Lumen'], 'Sarek');
    await ask(['Dovar', 'Pelin'], 'Pelin');
    const again = await ask(['Marlo', 'Tibin'], 'Tibin');
    expect(again.text).toBe(first.text);
    expect(again.usage.prompt_tokens_details.cached_tokens_by_tier.host).toBeGreaterThan(0);
  });

  it('drops copies under its budget', async () => {
    // About 200 tokens' worth.
    await start({ hostTier: 200_000 });
    for (let round = 0; round < 12; round++) {
      await engine.complete(someTokens(600, round), { segments: [150, 300, 450] });
      expect(await engine.metric('warmpath_engine_host_used_bytes')).toBeLessThanOrEqual(200_000);
    }
    expect(await engine.metric('warmpath_engine_host_evicted_tokens_total')).toBeGreaterThan(1000);
  });
});

describe('documents that a request names', () => {
  let engine: TestEngine;
  afterEach(() => engine.close());

  it('leave the cells when no request needs them, and come back for one that does', async () => {
    engine = await TestEngine.start({ contextTokens: 512, hostTier: 2 ** 24 });
    const prompt = someTokens(400, 1);
    const first = await engine.complete(prompt, { segments: [300, 370] });
    expect(await engine.metric('warmpath_engine_used_cells')).toBe(0);
    expect(await engine.metric('warmpath_engine_evicted_tokens')).toBe(400);
    const again = await engine.complete(prompt, { segments: [300, 370] });
    expect(again.usage.prompt_tokens_details.cached_tokens_by_tier).toEqual({ device: 0, host: 399, disk: 0 });
    expect(again.choices[0]!.text).toBe(first.choices[0]!.text);
    expect(await engine.metric('warmpath_engine_used_cells')).toBe(0);
  });

  it.each([
    [{ prompt: 'x', segments: [-1] }, 'segments[0]'],
    [{ prompt: 'x', segments: ['1'] }, 'segments[0]'],
    [{ prompt: 'x', segments: 3 }, 'segments'],
  ])('are refused when they are no places: %j', async (body, path) => {
    engine = await TestEngine.start();
    expect(await engine.error('/v1/completions', body)).toMatchObject({ status: 400, param: path });
  });
});
