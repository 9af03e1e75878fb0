import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import {
  type CachedPrompt,
  createWorkload,
  GraftCache,
  type GraftCacheOptions,
  promptTokens,
  SglangRadixCache,
  simulate,
  VllmBlockCache,
} from '../src/index.js';
import { itIsAPrefixCache } from './conformance/prefix-cache.cases.js';
import { LONGEST_RUN, promptsArbitrary } from './prompts.js';

itIsAPrefixCache('grafts', () => new GraftCache(), { isShared: true });
itIsAPrefixCache(
  'grafts, limited',
  () => new GraftCache({ prefix: new SglangRadixCache({ tokens: LONGEST_RUN + 40 }), tokens: 60 }),
  { isShared: true },
);
itIsAPrefixCache('grafts, kept apart', () => new GraftCache({ sharesGrafted: false }), { isShared: false });

/** Serves prompts one by one; what each found as a prefix, and at other places. */
function serve(cache: GraftCache, prompts: readonly CachedPrompt[]) {
  return prompts.map((prompt) => {
    const admission = cache.admit(prompt)!;
    admission.enter(promptTokens(prompt));
    admission.release();
    return { cached: admission.cachedTokens, grafted: admission.graftedTokens! };
  });
}

/** A prompt of documents by name, 100 tokens each, and a question. */
function promptOf(names: string, question = 'q'): CachedPrompt {
  const documents = [...names].map((key) => ({ key, tokens: 100 }));
  return {
    spans: [{ key: 'p', tokens: 20 }, ...documents, { key: question, tokens: 10 }],
    documents: [1, 1 + names.length],
  };
}

const radix = (options: GraftCacheOptions = {}) => new GraftCache({ prefix: new SglangRadixCache(), ...options });

describe('GraftCache', () => {
  it('computes the seam and a share of each document that was had at another place', () => {
    const cache = radix({ seam: 10, recomputed: 0.2 });
    const served = serve(cache, [promptOf('ab', '1'), promptOf('ba', '2'), promptOf('bca', '3')]);
    expect(served).toEqual([
      { cached: 0, grafted: 0 },
      { cached: 20, grafted: 144 },
      // `b` stands behind the preamble as before; `c` is new; `a` is grafted.
      { cached: 120, grafted: 72 },
    ]);
  });

  it('keeps paths behind grafts apart where it is told to', () => {
    const prompts = [promptOf('ab', '1'), promptOf('ba', '2'), promptOf('ba', '3')];
    expect(serve(radix(), prompts)[2]).toEqual({ cached: 220, grafted: 0 });
    const apart = serve(radix({ sharesGrafted: false }), prompts);
    expect(apart[2]).toEqual(apart[1]);
    expect(apart[1]!.cached).toBe(20);
  });

  it('grafts exactly what an earlier prompt of the same salt computed whole, never a whole prompt', () => {
    fc.assert(
      fc.property(
        promptsArbitrary,
        fc.nat({ max: 20 }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        (prompts, seam, recomputed) => {
          const cache = new GraftCache({ prefix: new VllmBlockCache(), seam, recomputed });
          const seen = new Set<string>();
          for (const prompt of prompts) {
            const [{ cached, grafted }] = serve(cache, [prompt]) as [ReturnType<typeof serve>[number]];
            let end = 0;
            let expected = 0;
            const { spans, documents, salt = '' } = prompt;
            for (const [place, { key, tokens }] of spans.entries()) {
              end += tokens;
              if (place >= documents![1]) break;
              const left = Math.min(tokens, end - cached);
              if (left > seam && seen.has(`${salt}/${key}`)) {
                expected += left - seam - Math.ceil(recomputed * (left - seam));
              }
            }
            for (const { key } of spans.slice(0, documents![1])) seen.add(`${salt}/${key}`);
            expect(grafted).toBe(expected);
            expect(cached + grafted).toBeLessThan(promptTokens(prompt));
          }
        },
      ),
      { seed: 31, numRuns: runs(200) },
    );
  });

  it('forgets the documents used least recently, and never keeps more than it has room for', () => {
    const cache = radix({ tokens: 200, seam: 0, recomputed: 0 });
    serve(cache, [promptOf('ab', '1'), promptOf('ac', '2')]);
    // `b` had to go for `c`.
    const admission = cache.admit(promptOf('bca', '3'))!;
    expect(admission.graftedTokens).toBe(200);
    const none = radix({ tokens: 0 });
    expect(serve(none, [promptOf('ab', '1'), promptOf('ba', '2')])[1]).toEqual({ cached: 20, grafted: 0 });
  });

  it('saves in simulation what the prefix cache saves, and more', () => {
    const workload = createWorkload('geospatial', { seed: 7 });
    const saved = (cache: GraftCache | SglangRadixCache) =>
      simulate(workload, 'exact', { cache }).reduce((sum, o) => sum + o.cachedTokens + (o.graftedTokens ?? 0), 0);
    const plain = saved(new SglangRadixCache());
    expect(saved(radix({ recomputed: 1 }))).toBe(plain);
    expect(saved(radix())).toBeGreaterThan(1.5 * plain);
    const [first] = simulate(workload, 'exact', { cache: radix() });
    expect(first).not.toHaveProperty('graftedTokens');
  });

  it.each([
    ['recomputed', { recomputed: 1.2 }],
    ['recomputed', { recomputed: Number.NaN }],
    ['seam', { seam: -1 }],
    ['tokens', { tokens: 1.5 }],
  ])('refuses %s that is none', (path, options) => {
    expect(() => new GraftCache(options)).toThrow(expect.objectContaining({ path }));
  });
});
