import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import { isFull } from '../../../../test/suite.js';
import { modelPath } from '../../bench/random-model/src/model-path.js';
import { type Answer, someTokens, TestEngine } from '../support/engine.js';

describe.each(['random:1m-recurrent', ...(isFull ? ['random:1m-hybrid'] : [])])(
  'a model that cannot share prefixes, %s',
  (spec) => {
    let model: string;
    let engine: TestEngine | undefined;
    beforeAll(async () => {
      model = await modelPath(spec);
    });
    afterEach(() => engine?.close());

    const fields = { max_tokens: 24, ignore_eos: true };
    const textOf = ({ choices }: Answer): string => choices[0]!.text!;

    it('gives the answers of an engine that was asked nothing before, whatever it was asked', async () => {
      const prompts = Array.from({ length: 6 }, (_, index) => [
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

    it('gives the same answers side by side, in any order, also when requests are aborted and give way', async () => {
      const prompts = Array.from({ length: 8 }, (_, index) => someTokens(30 + 25 * index, 40 + index));
      engine = await TestEngine.start({ model, contextTokens: 1024, verifyCache: true, maxRunning: 1 });
      const alone: string[] = [];
      for (const prompt of prompts) {
        alone.push(textOf(await engine.complete(prompt, fields)));
      }
      await engine.close();
      // All at once they need more cells than there are.
      engine = await TestEngine.start({ model, contextTokens: 768, verifyCache: true, maxRunning: 4 });
      const left = engine.stream('/v1/completions', { prompt: prompts[7]!, max_tokens: 200, ignore_eos: true });
      await left.next();
      left.destroy();
      const together = await Promise.all(prompts.map((prompt) => engine!.complete(prompt, fields)));
      // Beside others a row may be computed in another order of sums, which may change a token that two are close to.
      const same = together.filter((answer, index) => textOf(answer) === alone[index]).length;
      expect(same).toBeGreaterThanOrEqual(6);
      expect(JSON.parse(await engine.get('/kv'))).toMatchObject({ cells: { used: 0 }, sequences: { running: 0 } });
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
  },
);
