import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import { isFull } from '../../../../test/suite.js';
import { modelPath } from '../../bench/random-model/src/model-path.js';
import { verifyCaches } from '../cache/hierarchy-check.js';
import { type Answer, someTokens, TestEngine } from '../support/engine.js';

verifyCaches();

describe.each(['random:1m-hybrid', ...(isFull ? ['random:1m-recurrent'] : [])])(
  'a model with recurrent layers, %s',
  (spec) => {
    let model: string;
    let engine: TestEngine | undefined;
    beforeAll(async () => {
      model = await modelPath(spec);
    });
    afterEach(() => engine?.close());

    const fields = { max_tokens: 24, ignore_eos: true };
    const textOf = ({ choices }: Answer): string => choices[0]!.text!;
    const cached = ({ usage }: Answer): number => usage.prompt_tokens_details.cached_tokens;
    const document = (id: number): number[] => someTokens(60, 100 + id);
    const question = someTokens(20, 7);
    const ask = (ids: readonly number[], more: object = {}): Promise<Answer> =>
      engine!.complete([...ids.flatMap(document), ...question], {
        segments: ids.map((_, index) => 60 * (index + 1)),
        ...fields,
        ...more,
      });
    /** What a salt of its own computes, which shares nothing. */
    const askFresh = (ids: readonly number[]): Promise<Answer> => ask(ids, { cache_salt: `fresh ${ids.join()}` });

    it('goes on at the ends of documents and at the end of a prompt, with the answers of a cold run', async () => {
      engine = await TestEngine.start({ model, contextTokens: 1024 });
      for (const [ids, expected] of [
        [[1, 2, 3, 4, 5], 0],
        [[1, 2, 3, 4, 5], 319],
        [[1, 2, 5, 4, 3], 120],
        [[1, 2, 5, 3, 4], 180],
        [[2, 1], 0],
        [[1, 2], 120],
      ] as const) {
        const answer = await ask(ids);
        expect([ids, cached(answer)]).toEqual([ids, expected]);
        expect(textOf(answer)).toBe(textOf(await askFresh(ids)));
      }
      expect(JSON.parse(await engine.get('/kv'))).toMatchObject({ reuse: 'checkpoint', cells: { used: 0 } });
    });

    it('saves its state where two prompts part, for the next one that begins like them', async () => {
      engine = await TestEngine.start({ model, contextTokens: 1024 });
      const begin = someTokens(203, 40);
      const counts: number[] = [];
      for (const id of [1, 2, 3, 4]) {
        counts.push(cached(await engine.complete([...begin, ...document(id)], fields)));
      }
      expect(counts).toEqual([0, 128, 203, 203]);
    });

    it('goes on where the prompt before ended, or its answer, in the next turn of a conversation', async () => {
      engine = await TestEngine.start({ model, contextTokens: 1024 });
      const prompt = [...document(1), ...question];
      let before = 0;
      for (const _ of [0, 1, 2]) {
        const answer = await engine.complete(prompt, fields);
        expect(cached(answer)).toBeGreaterThanOrEqual(before);
        before = prompt.length - 1;
        prompt.push(...(await engine.tokenize({ content: textOf(answer), add_special: false })), ...question);
      }
      expect(before).toBeGreaterThan(120);
    });

    it('counts in /kv/lookup what a prompt would get, which ends at a checkpoint', async () => {
      engine = await TestEngine.start({ model, contextTokens: 1024 });
      await ask([1, 2]);
      const lookup = async (prompt: number[]): Promise<unknown> => (await engine!.call('/kv/lookup', { prompt })).body;
      expect(await lookup([...document(1), ...document(2)])).toMatchObject({ cached_tokens: 120 });
      expect(await lookup([...document(1), ...document(2).slice(0, 30)])).toMatchObject({ cached_tokens: 60 });
      expect(await lookup(document(1).slice(0, 59))).toMatchObject({ cached_tokens: 0 });
    });

    it('keeps its answers while checkpoints give way to others, go to files and come back in the next process', async () => {
      const directory = await mkdtemp(join(tmpdir(), 'warmpath-checkpoints-'));
      const expected = new Map<string, string>();
      engine = await TestEngine.start({ model, contextTokens: 1024 });
      const orders = [1, 2, 3, 4, 5, 6, 1, 3, 5, 1, 2].map((id) => [id, (id % 4) + 1]);
      for (const ids of orders) {
        expected.set(ids.join(), expected.get(ids.join()) ?? textOf(await ask(ids)));
      }
      const bytes = (JSON.parse(await engine.get('/kv')) as { tiers: { host: { bytes: number } } }).tiers.host.bytes;
      await engine.close();
      let found = 0;
      for (const _ of [0, 1]) {
        engine = await TestEngine.start({
          model,
          contextTokens: 1024,
          hostTier: Math.ceil(bytes / 3),
          diskTier: directory,
        });
        for (const ids of orders) {
          const answer = await ask(ids);
          expect(textOf(answer)).toBe(expected.get(ids.join()));
          found += answer.usage.prompt_tokens_details.cached_tokens_by_tier.disk;
        }
        expect(await engine.metric('warmpath_engine_disk_failures_total')).toBe(0);
        await engine.close();
      }
      expect(found).toBeGreaterThan(300);
      engine = undefined;
      await rm(directory, { recursive: true });
    });

    it('gives the same answers side by side, in any order, also when requests are aborted and give way', async () => {
      const prompts = Array.from({ length: 8 }, (_, index) => someTokens(30 + 25 * index, 40 + index));
      engine = await TestEngine.start({ model, contextTokens: 1024, maxRunning: 1 });
      const alone: string[] = [];
      for (const prompt of prompts) {
        alone.push(textOf(await engine.complete(prompt, fields)));
      }
      await engine.close();
      // All at once they need more cells than there are.
      engine = await TestEngine.start({ model, contextTokens: 768, maxRunning: 4 });
      const left = engine.stream('/v1/completions', { prompt: prompts[7]!, max_tokens: 200, ignore_eos: true });
      await left.next();
      left.destroy();
      const together = await Promise.all(prompts.map((prompt) => engine!.complete(prompt, fields)));
      // Beside others a row may be computed in another order of sums, which may change a token that two are close to.
      const same = together.filter((answer, index) => textOf(answer) === alone[index]).length;
      expect(same).toBeGreaterThanOrEqual(6);
      expect(JSON.parse(await engine.get('/kv'))).toMatchObject({ cells: { used: 0 }, sequences: { running: 0 } });
    });

    it('computes every prompt whole without a host tier, and says so', async () => {
      engine = await TestEngine.start({ model, contextTokens: 1024, hostTier: 0 });
      await ask([1]);
      expect(cached(await ask([1]))).toBe(0);
      expect(JSON.parse(await engine.get('/kv'))).toMatchObject({ reuse: 'none' });
    });
  },
);
