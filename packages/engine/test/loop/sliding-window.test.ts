import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import { modelPath } from '../../bench/random-model/src/model-path.js';
import { type Answer, someTokens, TestEngine } from '../support/engine.js';

describe('a model of which layers attend to a sliding window', () => {
  let model: string;
  let engine: TestEngine | undefined;
  beforeAll(async () => {
    model = await modelPath('random:4m-window32');
  });
  afterEach(() => engine?.close());

  const fields = { max_tokens: 24, ignore_eos: true };
  const textOf = ({ choices }: Answer): string => choices[0]!.text!;

  it('gives the answers of an engine that was asked nothing before, whatever it was asked', async () => {
    const prompts = Array.from({ length: 12 }, (_, index) => [
      ...someTokens(150, 1 + (index % 3)),
      ...someTokens(20 + 7 * index, 10 + index),
    ]);
    const expected: string[] = [];
    for (const prompt of prompts) {
      const cold = await TestEngine.start({ model, contextTokens: 1024 });
      expected.push(textOf(await cold.complete(prompt, fields)));
      await cold.close();
    }
    engine = await TestEngine.start({ model, contextTokens: 1024, verifyCache: true });
    for (let round = 0; round < 2; round++) {
      for (const [index, prompt] of prompts.entries()) {
        const answer = await engine.complete(prompt, fields);
        expect(textOf(answer)).toBe(expected[index]);
        expect(answer.usage.prompt_tokens_details.cached_tokens).toBe(0);
      }
    }
    expect(JSON.parse(await engine.get('/kv'))).toMatchObject({ reuse: 'none', cells: { used: 0 } });
  });

  it('says that nothing of it can be kept', async () => {
    await expect(TestEngine.start({ model, hostTier: 2 ** 20 })).rejects.toMatchObject({
      code: 'WARMPATH_CONFIG_INVALID',
    });
  });

  it('says of another that prefixes are', async () => {
    engine = await TestEngine.start();
    expect(JSON.parse(await engine.get('/kv'))).toMatchObject({ reuse: 'prefix' });
  });
});
