import { afterEach, describe, expect, it } from 'vitest';
import { verifyCaches } from '../cache/hierarchy-check.js';
import { someTokens, TestEngine } from '../support/engine.js';

verifyCaches();

describe('cache_salt', () => {
  let engine: TestEngine;
  afterEach(() => engine.close());

  const cached = async (prompt: number[], salt?: string): Promise<{ device: number; host: number; disk: number }> => {
    const fields = { segments: [100], ...(salt !== undefined && { cache_salt: salt }) };
    return (await engine.complete(prompt, fields)).usage.prompt_tokens_details.cached_tokens_by_tier;
  };

  it('keeps what a tenant has sent from every other, on the device', async () => {
    engine = await TestEngine.start({ hostTier: 0 });
    const prompt = someTokens(200);
    expect(await cached(prompt)).toEqual({ device: 0, host: 0, disk: 0 });
    expect(await cached(prompt, 'tenant a')).toEqual({ device: 0, host: 0, disk: 0 });
    expect(await cached(prompt, 'tenant b')).toEqual({ device: 0, host: 0, disk: 0 });
    for (const salt of [undefined, 'tenant a', 'tenant b']) {
      expect(await cached(prompt, salt)).toEqual({ device: 199, host: 0, disk: 0 });
    }
  });

  it('and in host memory', async () => {
    engine = await TestEngine.start({ contextTokens: 512, hostTier: 2 ** 26 });
    const prompt = someTokens(200);
    await cached(prompt, 'tenant a');
    await cached(someTokens(400, 1));
    expect(await cached(prompt, 'tenant b')).toEqual({ device: 0, host: 0, disk: 0 });
    expect(await cached(prompt)).toEqual({ device: 0, host: 0, disk: 0 });
    await cached(someTokens(400, 2));
    expect(await cached(prompt, 'tenant a')).toEqual({ device: 0, host: 199, disk: 0 });
  });

  it('holds for chats too', async () => {
    engine = await TestEngine.start();
    const ask = async (salt: string): Promise<number> => {
      const { usage } = await engine.chat('How heavy is Marlo?', { max_tokens: 1, cache_salt: salt });
      return usage.prompt_tokens_details.cached_tokens;
    };
    expect(await ask('tenant a')).toBe(0);
    expect(await ask('tenant b')).toBe(0);
    expect(await ask('tenant a')).toBeGreaterThan(0);
  });

  it('keeps identical prompts apart that are computed at the same time', async () => {
    engine = await TestEngine.start();
    const prompt = someTokens(300);
    const answers = await Promise.all([cached(prompt, 'tenant a'), cached(prompt, 'tenant b'), cached(prompt)]);
    expect(answers.map(({ device }) => device)).toEqual([0, 0, 0]);
  });

  it.each([
    { salt: '', what: 'empty' },
    { salt: 'x'.repeat(1025), what: 'too long' },
    { salt: 7, what: 'no text' },
  ])('is refused when it is $what', async ({ salt }) => {
    engine = await TestEngine.start();
    const error = await engine.error('/v1/completions', { prompt: 'x', cache_salt: salt });
    expect(error).toMatchObject({ status: 400, code: 'WARMPATH_INVALID_REQUEST', param: 'cache_salt' });
  });
});
